"""Requests of one event loop that are answered only when replicas or a disk have what they wrote.

They have a connection of their own, since a wait holds up whatever comes behind it. While one is under way the
requests of other coroutines gather, and go together behind the next: thousands share what one of them would wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import ConnectionError as LineBroken

from schedq.connection.address import Address
from schedq.connection.aline import AsyncLine
from schedq.durability import Wait
from schedq.operations import Argument
from schedq.settings import Settings

_MOST_TOGETHER: Final = 250


@dataclass(frozen=True, slots=True)
class _Passenger:
    """A request that waits for the next convoy."""

    commands: Callable[[], Sequence[tuple[Argument, ...]]]
    is_in_time: Callable[[], bool]
    waits: tuple[Wait, ...]
    replies: asyncio.Future[list[Any]]


class Convoy:
    """Sends requests that wait for the same together, one convoy at a time."""

    def __init__(self, address: Address, queue: Settings) -> None:
        self._line = AsyncLine(address, queue)
        self._gathered: deque[_Passenger] = deque()
        self._under_way: asyncio.Task[None] | None = None

    async def ask(
        self,
        commands: Callable[[], Sequence[tuple[Argument, ...]]],
        waits: tuple[Wait, ...],
        is_in_time: Callable[[], bool],
    ) -> list[Any]:
        """The replies to the commands, and behind them those to the waits.

        Args:
            commands: called when they are sent.
            waits: what to wait for.
            is_in_time: called just before that; false if they must not be sent any more.

        Raises:
            ConnectionError, TimeoutError, OSError, SchedqError: as `AsyncLine.ask`.
        """
        passenger = _Passenger(commands, is_in_time, waits, asyncio.get_running_loop().create_future())
        self._gathered.append(passenger)
        if self._under_way is None:
            self._start()
        return await passenger.replies

    async def aclose(self) -> None:
        """Close the connection; whoever waits hears that it was closed."""
        under_way = self._under_way
        if under_way is not None:
            under_way.cancel()
        await self._line.aclose()
        if under_way is not None:
            await asyncio.gather(under_way, return_exceptions=True)

    def _start(self) -> None:
        self._under_way = asyncio.create_task(self._go(), name="schedq convoy")
        self._under_way.add_done_callback(self._ended)

    async def _go(self) -> None:
        while some := self._next():
            await self._send(some)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way = None
        if task.cancelled():  # by `aclose`, or with all tasks of the loop
            _fail(self._gathered, LineBroken("the connection was closed"))
            self._gathered.clear()
        elif self._gathered:
            self._start()

    def _next(self) -> list[_Passenger]:
        """Those that go together; a caller who was cancelled has nothing sent."""
        some: list[_Passenger] = []
        while self._gathered and len(some) < _MOST_TOGETHER:
            if some and self._gathered[0].waits != some[0].waits:
                break
            passenger = self._gathered.popleft()
            if not passenger.replies.done():
                some.append(passenger)
        return some

    async def _send(self, some: Sequence[_Passenger]) -> None:
        waits = some[0].waits
        try:
            if not self._line.is_ready:
                await self._line.connect()
            _fail(
                [passenger for passenger in some if not passenger.is_in_time()], LineBroken("too late to be sent again")
            )
            some = [passenger for passenger in some if not passenger.replies.done()]
            if not some:
                return
            lengths: list[int] = []
            commands: list[tuple[Argument, ...]] = []
            for passenger in some:
                theirs = passenger.commands()
                lengths.append(len(theirs))
                commands += theirs
            replies = await self._line.ask(commands, waits=waits)
        except asyncio.CancelledError:
            _fail(some, LineBroken("the connection was closed"))
            raise
        except Exception as error:  # noqa: BLE001 - it is its callers'
            _fail(some, error)
            return
        first, kept = 0, replies[len(commands) :]
        for passenger, length in zip(some, lengths, strict=True):
            end = first + length
            if not passenger.replies.done():
                passenger.replies.set_result([*replies[first:end], *kept])
            first = end


def _fail(passengers: Iterable[_Passenger], error: Exception) -> None:
    for passenger in passengers:
        if not passenger.replies.done():
            passenger.replies.set_exception(error)
