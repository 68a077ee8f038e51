"""The child processes of one worker: kept warm, given to one attempt each, and replaced when they end."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, Protocol

from schedq.errors import UsageError
from schedq.isolation import death
from schedq.isolation.child_process import BUSY, DEAD, ENDING, IDLE, STARTING, ChildProcess, Start
from schedq.isolation.settings import IsolationSettings
from schedq.isolation.wire import Message, packed
from schedq.logs import log

_MEMORY_S: Final = 0.25
"""Seconds between two looks at the memory of the children."""
_FIRST_WAIT_S: Final = 0.25
_LONGEST_WAIT_S: Final = 15.0


class Reports(Protocol):
    """Takes in what an attempt reports: `CurrentJob` has these methods."""

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far the attempt has come."""

    def update_meta(self, values: Any = None, /) -> None:
        """Store facts with the job."""


class Seat:
    """The child that an attempt has got.

    Attributes:
        child: the child.
        ended: the last message of the child; the exception `ProcessDied` if it ends before.
    """

    def __init__(self, child: ChildProcess, reports: Reports) -> None:
        self.child = child
        self.reports = reports
        self.ended: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.is_over_memory = False

    def tell(self, kind: str) -> None:
        """Tell the child why its attempt should end: `stop` or `release`."""
        self.child.send(packed({"kind": kind}))


Line = deque[asyncio.Future[ChildProcess]]


class ProcessPool:
    """Up to `size` child processes at work. Used on the worker's event loop only.

    Attempts come before functions that async handlers hand over, of which there may be more than slots.

    A child that is being ended does not count, so its place is free at once. Once an attempt has come
    near its timeout, there may be one more than `size`, which is idle: it replaces a child that is ended.

    Args:
        start: what the children run.
        size: how many attempts run at a time.
        settings: how children are ended and replaced.

    Attributes:
        problem: why a child could not start, or ''.
    """

    def __init__(self, start: Start, size: int, settings: IsolationSettings) -> None:
        self._start = start
        self._size = size
        self._settings = settings
        self._children: set[ChildProcess] = set()
        self._seats: dict[ChildProcess, Seat] = {}
        self._attempts: Line = deque()
        self._handed: Line = deque()
        self.problem = ""
        self._failures = 0
        self._start_timer: asyncio.TimerHandle | None = None
        self._memory_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that live."""
        return [child.pid for child in self._children if child.pid is not None]

    async def run(self, message: Message, reports: Reports, within: float, *, is_handed: bool = False) -> Seat | None:
        """Give an attempt, or a function that was handed over, to a child as soon as one is idle.

        Returns:
            The child's seat; None if children could not start `within` so many seconds.

        Raises:
            UsageError: the pool is closed.
        """
        data = packed(message)  # first: it may fail
        child = await self._taken(self._handed if is_handed else self._attempts, within)
        if child is None:
            return None
        seat = self._seats[child] = Seat(child, reports)
        child.attempts += 1
        child.send(data)
        if self._settings.memory_limit is not None and self._memory_timer is None:
            self._look_at_memory()
        return seat

    def end(self, seat: Seat, *, has_timed_out: bool = False) -> None:
        """End the child of an attempt. Its place is free for another child at once."""
        self._seats.pop(seat.child, None)
        seat.ended.cancel()
        seat.child.end(has_timed_out=has_timed_out)
        self._fill()

    def prepare_successor(self) -> None:
        """Start a child before another one is ended, so that the next attempt need not wait for its start.

        If the other one is not ended after all, both are kept: attempts that come near their timeouts do so often.
        """
        living = self._living()
        is_spare_there = any(child.state in (STARTING, IDLE) for child in living)
        if not (is_spare_there or self._is_closed or self._start_timer is not None):
            self._start_child()

    async def stack(self, seat: Seat) -> str:
        """Return where the function of an attempt was when its child was ended; '' if that is unknown."""
        return death.traceback_of(await seat.child.stack(), self._start.machinery)

    async def close(self, within: float) -> None:
        """End all children; those still alive after `within` seconds are killed."""
        self._is_closed = True
        for timer in (self._start_timer, self._memory_timer):
            if timer is not None:
                timer.cancel()
        for waiting in (*self._attempts, *self._handed):
            waiting.cancel()
        for seat in self._seats.values():
            seat.ended.cancel()
        self._seats.clear()
        for child in list(self._children):
            if child.state is IDLE:
                child.retire()
            else:
                child.end()
        ends = [asyncio.ensure_future(child.ended()) for child in self._children]
        if ends:
            _, late = await asyncio.wait(ends, timeout=within)
            for child in list(self._children):
                child.kill()
            if late:
                await asyncio.wait(late)

    async def _taken(self, line: Line, within: float) -> ChildProcess | None:
        """Wait for an idle child, which is then busy."""
        if self._is_closed:
            raise UsageError("the worker's processes have been closed")
        for child in self._children:
            if child.state is IDLE and self._may_work():
                child.become(BUSY)
                return child
        waiting: asyncio.Future[ChildProcess] = asyncio.get_running_loop().create_future()
        line.append(waiting)
        self._fill()
        try:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=within)
                is_served = not self._failures and any(child.state is BUSY for child in self._children)
                if not (waiting.done() or is_served):
                    waiting.cancel()
                    return None
            return waiting.result()
        except asyncio.CancelledError:
            waiting.cancel()
            if waiting.done() and not waiting.cancelled() and waiting.result().state is BUSY:
                waiting.result().become(IDLE)
                self._offer(waiting.result())
            raise

    def _fill(self) -> None:
        """Start as many children as attempts wait for, up to the size of the pool."""
        if self._is_closed or self._start_timer is not None:
            return
        for child in list(self._children):
            self._offer(child)  # a successor whose place has become free
        living = self._living()
        starting = sum(child.state is STARTING for child in living)
        waiting = sum(not each.done() for each in (*self._attempts, *self._handed))
        missing = min(waiting - starting, self._size - len(living))
        for _ in range(missing):
            self._start_child()

    def _living(self) -> list[ChildProcess]:
        return [child for child in self._children if child.state not in (ENDING, DEAD)]

    def _may_work(self) -> bool:
        """Whether one more child may work. There may be more than `size`, but no more at work."""
        return sum(child.state is BUSY for child in self._children) < self._size

    def _start_child(self) -> None:
        self._children.add(ChildProcess(self._start, self._settings, self._heard, self._died))

    def _heard(self, child: ChildProcess, message: Message) -> None:
        kind = message["kind"]
        if kind == "ready" and child.state is STARTING:
            self._failures = 0
            child.become(IDLE)
            self._offer(child)
        elif kind == "unusable":
            self.problem = message["reason"]
        elif (seat := self._seats.get(child)) is None:
            return
        elif kind == "report":
            if message["progress"] is not None:
                seat.reports.progress(*message["progress"])
            if message["meta"]:
                seat.reports.update_meta(message["meta"])
        elif kind in ("ended", "returned", "raised"):
            del self._seats[child]
            child.become(IDLE)
            if not seat.ended.done():
                seat.ended.set_result(message)
            self._offer(child)

    def _offer(self, child: ChildProcess) -> None:
        """Give an idle child to what waits longest, attempts first, or replace it if it has served its time."""
        if child.state is not IDLE:
            return
        if self._is_spent(child) or self._is_closed:
            child.retire()
            self._fill()
            return
        for line in (self._attempts, self._handed):
            while line and self._may_work():
                waiting = line.popleft()
                if not waiting.done():
                    child.become(BUSY)
                    waiting.set_result(child)
                    return

    def _is_spent(self, child: ChildProcess) -> bool:
        most, limit = self._settings.jobs_per_child, self._settings.memory_limit
        return (most is not None and child.attempts >= most) or (limit is not None and (child.rss or 0) > limit)

    def _died(self, child: ChildProcess) -> None:
        self._children.discard(child)
        seat = self._seats.pop(child, None)
        if seat is not None and not seat.ended.done():
            how = death.described(child.code)
            if seat.is_over_memory:
                how = f"its process used more memory than the memory limit of {self._settings.memory_limit:,} bytes"
            stack = death.traceback_of(child.dump(), self._start.machinery)
            seat.ended.set_exception(death.ProcessDied(how, stack))
            seat.ended.exception()  # marks it as retrieved: an attempt that was released no longer waits for it
        elif seat is None and not child.has_been_ended and child.attempts == 0:
            self._start_later(child)
        self._fill()

    def _start_later(self, child: ChildProcess) -> None:
        """A child could not start. Try again after a while that grows, so that the machine is not busy with that."""
        wait = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        why = self.problem or death.described(child.code)
        log.error("a child process could not start: %s; a new one starts in %.2f s", why, wait)
        self._start_timer = asyncio.get_running_loop().call_later(wait, self._start_again)

    def _start_again(self) -> None:
        self._start_timer = None
        self._fill()

    def _look_at_memory(self) -> None:
        """End the children that use too much, and replace idle ones, as long as there are busy ones."""
        limit = self._settings.memory_limit
        assert limit is not None
        for child, seat in list(self._seats.items()):
            if (child.rss or 0) > limit and not seat.is_over_memory:
                seat.is_over_memory = True
                child.kill()
        for child in list(self._children):
            if child.state is IDLE and (child.rss or 0) > limit:
                child.retire()
        self._memory_timer = None
        if self._seats and not self._is_closed:
            self._memory_timer = asyncio.get_running_loop().call_later(_MEMORY_S, self._look_at_memory)
