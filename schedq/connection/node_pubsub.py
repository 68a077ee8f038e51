"""Listens to the channels of any number of queues on a cluster, with one asyncio connection per node."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from redis.asyncio.connection import Connection as RedisConnection
from redis.crc import key_slot
from redis.exceptions import MovedError, NoPermissionError, RedisError, ResponseError

from schedq.connection import channels, redis_errors
from schedq.connection.address import Address
from schedq.connection.async_connection import cancelled, connected
from schedq.connection.endpoint import Endpoint, warn_unheard
from schedq.connection.pubsub import Callback
from schedq.connection.redis_internals import abort
from schedq.errors import SchedqError
from schedq.model.settings import Settings
from schedq.model.times import monotonic

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 2.0
_MOST_TRIES: Final = 10
"""From then on the wait is not doubled any more."""


class NodeListener:
    """One connection to a node and the channels that are subscribed to there. It ends when the connection is lost.

    Attributes:
        opened_at: when it began, by the monotonic clock.
        channels: the channels.
    """

    def __init__(self, pubsub: NodePubSub, endpoint: Endpoint) -> None:
        self.opened_at = monotonic()
        self.channels: set[str] = set()
        self._pubsub = pubsub
        self._endpoint = endpoint
        self._connection: RedisConnection | None = None
        self._task = asyncio.create_task(self._run(), name=f"{pubsub.name} subscription")

    async def add(self, channel: str) -> None:
        """Subscribe to a channel."""
        self.channels.add(channel)
        await self._send(channels.subscribe(self._pubsub.queue, channel))

    async def remove(self, channel: str) -> None:
        """End the subscription to a channel; after the last one, close the connection."""
        self.channels.discard(channel)
        if self.channels:
            await self._send(channels.unsubscribe(self._pubsub.queue, channel))
        else:
            self._task.cancel()

    async def aclose(self) -> None:
        """Close the connection."""
        await cancelled(self._task)

    async def _send(self, commands: Iterable[tuple[str, ...]]) -> None:
        connection = self._connection
        if connection is not None:  # otherwise `_run` subscribes to all as soon as there is one
            with suppress(*redis_errors.CONNECTION_LOST):  # `_run` notices the loss
                for command in commands:
                    await connection.send_command(*command, check_health=False)

    async def _run(self) -> None:
        pubsub = self._pubsub
        try:
            connection = await connected(self._endpoint, pubsub.name, pubsub.label)
            try:
                self._connection = connection
                for channel in list(self.channels):  # one by one: their slots differ
                    await self._send(channels.subscribe(pubsub.queue, channel))
                while True:
                    await self._take(connection)
            finally:
                self._connection = None  # first: redis-py would open it again to send something
                abort(connection)
        except NoPermissionError as error:
            warn_unheard(pubsub.label, error)
        except (RedisError, OSError, SchedqError):
            pass  # requests that are made meanwhile report the error
        finally:
            pubsub.ended(self._endpoint, self)

    async def _take(self, connection: RedisConnection) -> None:
        """Handle the next message."""
        try:
            message = await connection.read_response(timeout=math.inf, disconnect_on_error=False)
        except MovedError as error:
            for channel in [each for each in self.channels if key_slot(each.encode()) == error.slot_id]:
                await self._pubsub.move(channel)
        except ResponseError as error:
            refused = channels.refused([error])
            if refused is not None and not channels.is_about_shards(refused):
                raise
            if refused is not None:
                warn_unheard(self._pubsub.label, refused)
        else:
            if isinstance(message, list) and len(message) == 3 and message[1] in self.channels:
                await self._hear(*message)

    async def _hear(self, kind: str, channel: str, text: str) -> None:
        if kind == "sunsubscribe":  # its slot has moved to another node
            await self._pubsub.move(channel)
        elif kind == "subscribe":
            self._pubsub.call(channel, "")
        elif kind in ("message", "smessage"):
            self._pubsub.call(channel, text)


class NodePubSub:
    """Calls a function for each message of a channel, as `PubSub` does for the channels of one server.

    When a slot has moved, only the subscription to its channel moves; when a node is lost, only those to its channels
    stop meanwhile.

    Args:
        address: the cluster.
        queue: one of the queues.
        purpose: follows the queue's name in the name that CLIENT LIST shows.

    Attributes:
        label: the name of the cluster in messages.
        name: the name in CLIENT LIST.
        queue: as given.
    """

    def __init__(self, address: Address, queue: Settings, purpose: str = "") -> None:
        self.label = address.label
        self.name = f"schedq-{queue.name}{purpose}"
        self.queue = queue
        self._address = address
        self._callbacks: dict[str, list[Callback]] = {}
        self._since: dict[str, float] = {}  # the connection of a channel must have been opened later
        self._listeners: dict[str, NodeListener] = {}
        self._places: dict[str, NodeListener] = {}
        self._due: dict[str, float] = {}  # when to look for the node of a channel that has none
        self._tries: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def subscribe(self, channel: str, callback: Callback, since: float = 0.0) -> None:
        """Call `callback` for each message of `channel` from now on.

        Args:
            channel: the channel.
            callback: also called with '' after each subscription, because messages may have been missed until then.
            since: use a connection that was opened later than this, by the monotonic clock.
        """
        self._callbacks.setdefault(channel, []).append(callback)
        self._since[channel] = since
        if channel in self._places:
            callback("")
        else:
            self._look_soon(channel, 0.0)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"{self.name} nodes")

    async def unsubscribe(self, channel: str, callback: Callback) -> None:
        """Stop calling `callback`."""
        callbacks = self._callbacks.get(channel, [])
        if callback in callbacks:
            callbacks.remove(callback)
        if not callbacks and self._callbacks.pop(channel, None) is not None:
            for each in (self._due, self._tries, self._since):
                each.pop(channel, None)
            await self._leave(channel)

    async def aclose(self) -> None:
        """Stop listening."""
        listeners = [callback for callbacks in self._callbacks.values() for callback in callbacks]
        for each in (self._callbacks, self._due, self._places):
            each.clear()
        for callback in listeners:
            callback("")  # messages no longer arrive, so waiting callers must check again
        if self._task is not None:
            await cancelled(self._task)
        for listener in [*self._listeners.values()]:
            await listener.aclose()

    def call(self, channel: str, text: str) -> None:
        """Call the functions for a channel; '' after subscribing."""
        if not text:
            self._tries.pop(channel, None)
        for callback in tuple(self._callbacks.get(channel, ())):
            callback(text)

    async def move(self, channel: str) -> None:
        """Look for the node of a channel again, which is no longer on the one where it was."""
        await self._leave(channel)
        self._look_later(channel)

    def ended(self, endpoint: Endpoint, listener: NodeListener) -> None:
        """Look for the nodes of the channels of a connection that was lost."""
        if self._listeners.get(endpoint.label) is listener:
            del self._listeners[endpoint.label]
        for channel in listener.channels:
            if self._places.get(channel) is listener:
                del self._places[channel]
                self._look_later(channel)

    async def _leave(self, channel: str) -> None:
        if (listener := self._places.pop(channel, None)) is not None:
            await listener.remove(channel)

    def _look_later(self, channel: str) -> None:
        if channel in self._callbacks:
            tries = self._tries[channel] = min(_MOST_TRIES, self._tries.get(channel, -1) + 1)
            wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**tries)
            self._look_soon(channel, wait_s * random.uniform(0.5, 1))  # noqa: S311 - spreads load

    def _look_soon(self, channel: str, wait_s: float) -> None:
        self._due[channel] = monotonic() + wait_s
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            for channel, at in [*self._due.items()]:
                if at <= monotonic() and self._due.pop(channel, None) is not None:
                    await self._place(channel)
            wait_s = max(0.0, min(self._due.values(), default=math.inf) - monotonic())
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wait_s == math.inf else wait_s):
                    await self._changed.wait()

    async def _place(self, channel: str) -> None:
        """Subscribe to a channel on the node that has its slot now."""
        try:
            endpoint = await self._address.locate(channel)
        except (RedisError, OSError, SchedqError):
            self._look_later(channel)
            return
        if channel not in self._callbacks or channel in self._places:
            return
        listener = self._listeners.get(endpoint.label)
        if listener is not None and listener.opened_at <= self._since[channel]:
            await listener.aclose()  # its channels are looked for again
            listener = None
        if listener is None:
            listener = self._listeners[endpoint.label] = NodeListener(self, endpoint)
        self._places[channel] = listener
        await listener.add(channel)
