"""One asyncio connection that listens to any number of channels, and finds its way back after a loss."""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from collections.abc import Callable
from typing import Final

from redis.asyncio.connection import Connection
from redis.exceptions import RedisError

from schedq.connection import faults
from schedq.connection.address import Address
from schedq.connection.aline import connected, drop
from schedq.errors import SchedqError
from schedq.settings import Settings

_LONGEST_WAIT_S: Final = 2.0
Hearing = Callable[[str], None]


class Subscription:
    """Calls a function for each message of a channel.

    It also calls it with '' whenever it has (re)subscribed, because messages may have been missed until then.

    Args:
        address: where Redis is.
        queue: the queue whose channels are heard: on the server that holds it.
        purpose: follows the queue's name in the name that CLIENT LIST shows.
    """

    def __init__(self, address: Address, queue: Settings, purpose: str = "") -> None:
        self._address = address
        self._key = queue.keys.prefix
        self._name = f"schedq-{queue.name}{purpose}"
        self._heard: dict[str, list[Hearing]] = {}
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    async def listen(self, channel: str, hearing: Hearing) -> None:
        """Call `hearing` for each message of `channel` from now on."""
        hearings = self._heard.setdefault(channel, [])
        hearings.append(hearing)
        if self._task is None or self._task.done():  # perhaps cancelled with all tasks of the loop
            # It outlives the job in whose handler it may begin, and so has nothing of that job's context.
            self._task = asyncio.create_task(self._run(), name="schedq subscription", context=contextvars.Context())
        elif self._connection is None:
            return  # it is subscribed to, and told so, as soon as there is a connection
        elif len(hearings) == 1:
            await self._tell("SUBSCRIBE", channel)
        else:
            hearing("")

    async def forget(self, channel: str, hearing: Hearing) -> None:
        """Stop calling `hearing`."""
        hearings = self._heard.get(channel, [])
        if hearing in hearings:
            hearings.remove(hearing)
        if not hearings and self._heard.pop(channel, None) is not None and self._connection is not None:
            await self._tell("UNSUBSCRIBE", channel)

    async def aclose(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        listeners = [hearing for hearings in self._heard.values() for hearing in hearings]
        self._heard.clear()
        for hearing in listeners:
            hearing("")  # nothing comes any more; whoever waits for it looks around
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _tell(self, verb: str, *channels: str) -> None:
        try:
            # An iteration that was left may be closed on another loop, which must not touch this connection.
            if self._connection is not None and self._task is not None and _is_here(self._task):
                await self._connection.send_command(verb, *channels, check_health=False)
        except faults.BROKEN_LINE:
            pass  # the reading side finds out, reconnects and subscribes to all

    async def _run(self) -> None:
        wait = 0.05
        while True:
            try:
                self._connection, _ = await connected(self._address, self._key, self._name)
                if self._heard:
                    await self._connection.send_command("SUBSCRIBE", *self._heard, check_health=False)
                wait = 0.05
                while True:
                    self._hear(await self._connection.read_response(timeout=math.inf, disconnect_on_error=False))
            except (RedisError, OSError, SchedqError):
                pass  # whoever asks Redis at the same time reports it
            finally:
                connection, self._connection = self._connection, None
                if connection is not None:
                    drop(connection)
            await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311 - spreads load
            wait = min(_LONGEST_WAIT_S, 2 * wait)

    def _hear(self, message: object) -> None:
        if not isinstance(message, list) or len(message) != 3:
            return
        kind, channel, text = message
        for hearing in tuple(self._heard.get(channel, ())):
            if kind == "message":
                hearing(text)
            elif kind == "subscribe":
                hearing("")


def _is_here(task: asyncio.Task[None]) -> bool:
    return task.get_loop() is asyncio.get_running_loop()
