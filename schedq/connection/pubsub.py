"""One asyncio connection that listens to any number of channels and reconnects when it is lost."""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from redis.asyncio.connection import Connection as RedisConnection
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from schedq.connection import channels, redis_errors
from schedq.connection.address import Address
from schedq.connection.async_connection import cancelled, open_connection
from schedq.connection.endpoint import warn_unheard
from schedq.connection.redis_internals import abort
from schedq.errors import SchedqError
from schedq.model.settings import Settings

_LONGEST_WAIT_S: Final = 2.0
Callback = Callable[[str], None]


class Subscriber(Protocol):
    """What calls a function for each message of a channel; see `PubSub`."""

    @property
    def is_used(self) -> bool:
        """Whether anything is subscribed to."""

    async def subscribe(self, channel: str, callback: Callback) -> None:
        """Call `callback` for each message of `channel` from now on."""

    async def unsubscribe(self, channel: str, callback: Callback) -> None:
        """Stop calling `callback`."""

    def renew(self, losses: int) -> None:
        """Use a new connection if more outages of the server are known now than at the last call."""

    async def aclose(self) -> None:
        """Stop listening."""


class PubSub:
    """Calls a function for each message of a channel.

    It also calls the function with '' after each subscription, including the one after a reconnect, because messages
    may have been missed until then.

    Args:
        address: where Redis is.
        queue: the queue whose channels to listen to, on the server that holds it.
        purpose: follows the queue's name in the name that CLIENT LIST shows.
    """

    def __init__(self, address: Address, queue: Settings, purpose: str = "") -> None:
        self._address = address
        self._key = queue.keys.prefix
        self._queue = queue
        self._name = f"schedq-{queue.name}{purpose}"
        self._callbacks: dict[str, list[Callback]] = {}
        self._connection: RedisConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._losses = 0

    @property
    def is_used(self) -> bool:
        """Whether anything is subscribed to."""
        return bool(self._callbacks)

    async def subscribe(self, channel: str, callback: Callback) -> None:
        """Call `callback` for each message of `channel` from now on."""
        callbacks = self._callbacks.setdefault(channel, [])
        callbacks.append(callback)
        if self._task is None or self._task.done():  # it may have been cancelled together with all tasks of the loop
            # The task may be started by a job's handler and outlives it, so it must not inherit the job's context.
            self._task = asyncio.create_task(
                self._run(), name=f"{self._name} subscription", context=contextvars.Context()
            )
        elif self._connection is None:
            return  # `_run` subscribes and calls back as soon as there is a connection
        elif len(callbacks) == 1:
            await self._send(channels.subscribe(self._queue, channel))
        else:
            callback("")

    async def unsubscribe(self, channel: str, callback: Callback) -> None:
        """Stop calling `callback`."""
        callbacks = self._callbacks.get(channel, [])
        if callback in callbacks:
            callbacks.remove(callback)
        if not callbacks and self._callbacks.pop(channel, None) is not None and self._connection is not None:
            await self._send(channels.unsubscribe(self._queue, channel))

    def renew(self, losses: int) -> None:
        """Use a new connection if more outages of the server are known now than at the last call."""
        connection = self._connection
        if losses != self._losses and connection is not None:
            self._connection = None  # first: redis-py would open it again to send something
            abort(connection)
        self._losses = losses

    async def aclose(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        listeners = [callback for callbacks in self._callbacks.values() for callback in callbacks]
        self._callbacks.clear()
        for callback in listeners:
            callback("")  # no more messages will arrive, so waiting callers must check again
        if task is not None:
            await cancelled(task)

    async def _send(self, commands: Sequence[tuple[str, ...]]) -> None:
        # An abandoned iteration may be closed on another loop, which must not use this connection.
        is_here = self._task is not None and self._task.get_loop() is asyncio.get_running_loop()
        connection = self._connection
        if is_here and connection is not None:
            with suppress(*redis_errors.CONNECTION_LOST):  # `_run` notices the loss and subscribes to all again
                for command in commands:
                    await connection.send_command(*command, check_health=False)

    async def _run(self) -> None:
        wait = 0.05
        while True:
            try:
                self._connection, _ = await open_connection(self._address, self._key, self._name)
                if self._callbacks:
                    await self._send(channels.subscribe(self._queue, *self._callbacks))
                wait = 0.05
                while self._connection is not None:
                    self._dispatch(await self._receive(self._connection))
            except NoPermissionError as error:
                warn_unheard(self._address.label, error)
            except (RedisError, OSError, SchedqError):
                pass  # requests that are made meanwhile report the error
            finally:
                connection, self._connection = self._connection, None
                if connection is not None:
                    abort(connection)
            await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311 - spreads load
            wait = min(_LONGEST_WAIT_S, 2 * wait)

    async def _receive(self, connection: RedisConnection) -> object:
        """The next message; None for an error after which messages still arrive."""
        try:
            return await connection.read_response(timeout=math.inf, disconnect_on_error=False)
        except ResponseError as error:
            refused = channels.refused([error])
            if refused is not None and not channels.is_about_shards(refused):
                raise
            if refused is not None:
                warn_unheard(self._address.label, refused)
            return None

    def _dispatch(self, message: object) -> None:
        if not isinstance(message, list) or len(message) != 3:
            return
        kind, channel, _ = message
        text = "" if kind == "subscribe" else channels.text_of(message, self._callbacks)
        if text is not None:
            for callback in tuple(self._callbacks.get(channel, ())):
                callback(text)
