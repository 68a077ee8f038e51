"""Workflows without a server, in virtual time: an event loop whose clock jumps, and a record in memory."""

from __future__ import annotations

import asyncio
import json
import random
import selectors
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from schedq.errors import RecordFull
from schedq.model.backoff import Fixed
from schedq.model.outcome import Policy
from schedq.model.records import ClaimedJob
from schedq.model.runs import Memo, RunLost, RunWait
from schedq.workflows.context import WorkflowContext
from schedq.workflows.recorder import Suspended
from schedq.workflows.run import WorkflowRun

T = TypeVar("T")
Workflow = Callable[[WorkflowContext], Coroutine[Any, Any, Any]]
BEGAN_MS = 1_000_000_000
FOREVER = 10**15


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer whenever nothing else is left to do."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing is left to do, and the program has not ended"
        self._loop.now += timeout
        return []


def in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on such a loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def now_ms() -> int:
    """The present instant of the running loop."""
    return BEGAN_MS + round(asyncio.get_running_loop().time() * 1000)


@dataclass
class Stored:
    """What a server would have of one run.

    Attributes:
        token: the attempt that may write.
        boxes: messages that were not taken, with their arrival, by topic.
        taken: which message each receive took.
        writes: the names of all memos, in the order in which they were written.
        sent: set when a message arrives.
    """

    token: int = 0
    memos: dict[str, Memo] = field(default_factory=dict)
    tries: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    untils: dict[str, int] = field(default_factory=dict)
    boxes: dict[str, list[tuple[int, Any]]] = field(default_factory=lambda: defaultdict(list))
    taken: dict[str, tuple[str, int, Any]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    args: tuple[Sequence[Any], Mapping[str, Any]] | None = None
    most: int = 500
    deadline_ms: int | None = None

    def send(self, topic: str, value: Any) -> None:
        self.boxes[topic].append((now_ms(), value))
        self.sent.set()

    def is_over(self, wait: RunWait) -> bool:
        until = FOREVER if wait.until_ms is None else wait.until_ms
        return until <= now_ms() or any(arrival <= until for arrival, _ in self.boxes[wait.topic])


class MemoryRecorder:
    """The record as one attempt sees it. Each request takes a random moment."""

    def __init__(self, stored: Stored, chance: random.Random) -> None:
        stored.token += 1
        self._stored, self._token, self._chance = stored, stored.token, chance
        self.memos, self.tries = dict(stored.memos), dict(stored.tries)
        self.since: dict[str, int] = {}
        self.topics: set[str] = set()
        self.begun = {*stored.memos, *stored.tries, *stored.untils}
        self.version, self.began_ms, self.deadline_ms, self.args = 1, BEGAN_MS, stored.deadline_ms, stored.args
        self.life, self.requeued = int(stored.args is not None), 0
        self.undos: dict[str, str] = {}
        self.undoing: str | None = None

    async def _request(self) -> None:
        await asyncio.sleep(self._chance.uniform(0, 0.003))
        if self._token != self._stored.token:
            raise RunLost

    async def add_undo(self, name: str, call: str) -> str:
        await self._request()
        return self.undos.setdefault(name, call)

    def check(self, name: str) -> None:
        if len(self.memos) >= self._stored.most:
            raise RecordFull(f"{name}: the record is full")

    async def write(self, name: str, memo: Memo, replaced: str = "") -> Memo:
        json.dumps(memo)
        await self._request()
        if name not in self._stored.memos:
            self._stored.memos[name] = memo
            self._stored.writes.append(name)
            self._stored.tries.pop(name, None)
        return self._stored.memos[name]

    async def failed(self, name: str, error: str, delay_ms: int, *, counts: bool = True) -> tuple[int, int]:
        await self._request()
        tries = self._stored.tries.get(name, (0, 0, ""))[0] + counts
        self._stored.tries[name] = (tries, now_ms() + delay_ms, error)
        return self._stored.tries[name][:2]

    async def until(self, name: str, *, delay_ms: int | None = None, at_ms: int | None = None) -> tuple[int, int]:
        await self._request()
        instant = at_ms if at_ms is not None else now_ms() + (delay_ms or 0)
        return self._stored.untils.setdefault(name, instant), now_ms()

    async def receive(self, name: str, topic: str, timeout_ms: int | None) -> Memo | RunWait:
        await self._request()
        if name in self._stored.memos:
            return self._stored.memos[name]
        until = self._stored.untils.setdefault(name, FOREVER if timeout_ms is None else now_ms() + timeout_ms)
        box = self._stored.boxes[topic]
        if box and box[0][0] <= until:
            arrival, value = box.pop(0)
            self._stored.taken[name] = (topic, arrival, value)
            return await self._keep(name, Memo("receive", "ok", value, now_ms(), arrival, 1))
        if until <= now_ms():
            return await self._keep(name, Memo("receive", "timeout", None, now_ms(), until, 1))
        return RunWait("receive", name, None if until == FOREVER else until, topic)

    async def _keep(self, name: str, memo: Memo) -> Memo:
        self._stored.memos[name] = memo
        self._stored.writes.append(name)
        return memo

    async def decide(self, name: str, memo: Memo, losers: Sequence[str]) -> Memo:
        found = await self.write(name, memo)
        for loser in losers:
            if loser in self._stored.taken:
                topic, arrival, value = self._stored.taken.pop(loser)
                self._stored.boxes[topic].insert(0, (arrival, value))
                del self._stored.memos[loser]
        return found

    async def start_over(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        await self._request()
        stored = self._stored
        stored.memos, stored.tries, stored.untils, stored.taken = {}, {}, {}, {}
        stored.args = (args, kwargs)


@dataclass
class Lives:
    """How a run went.

    Attributes:
        attempts: how many there were.
        result: what it returned.
        error: what it failed with, after its last attempt.
        suspensions: what it waited for, each time.
    """

    attempts: int = 0
    result: Any = None
    error: BaseException | None = None
    suspensions: list[tuple[RunWait, ...]] = field(default_factory=list)


async def live(
    workflow: Workflow | Callable[[int], Workflow],
    stored: Stored,
    *,
    seed: int = 0,
    max_attempts: int = 1,
    kill_after: Callable[[int], float | None] = lambda _: None,
    release_after: Callable[[int], float | None] = lambda _: None,
    by_attempt: bool = False,
    in_place_ms: int = 500,
    most: int = 500,
) -> Lives:
    """Run a workflow to its end, in as many attempts as it takes.

    Args:
        kill_after, release_after: after how many seconds the worker of the n-th attempt dies, or asks it to end.
        by_attempt: `workflow` returns the code of the n-th attempt: a deploy.
    """
    lives, failures = Lives(), 0
    while lives.attempts < most:
        lives.attempts += 1
        chance = random.Random(seed * 1000 + lives.attempts)
        code: Any = workflow(lives.attempts) if by_attempt else workflow  # type: ignore[arg-type]
        run = WorkflowRun(
            MemoryRecorder(stored, chance),
            ClaimedJob("job", None, 1, "token", claimed_at_ms=now_ms()),
            Policy(3, Fixed(30), 10_000),
            _in_thread,
            lambda args, kwargs: (args, kwargs),
            name="workflow",
            in_place_ms=in_place_ms,
        )
        attempt = asyncio.ensure_future(_settled(run.execute(code(WorkflowContext(run)))))
        if (seconds := kill_after(lives.attempts)) is not None:
            await asyncio.wait([attempt], timeout=seconds)
            if not attempt.done():
                stored.token += 1  # its lease has ended; its code continues until it notices
                continue
        if (seconds := release_after(lives.attempts)) is not None:
            await asyncio.wait([attempt], timeout=seconds)
            attempt.cancel()
        try:
            lives.result, lives.error = await attempt
        except asyncio.CancelledError:
            continue
        if isinstance(lives.error, Suspended):
            lives.suspensions.append(lives.error.waits)
            await _woken(stored, lives.error.waits)
        elif lives.error is None or (failures := failures + 1) >= max_attempts:
            return lives
    raise AssertionError(f"after {most} attempts the run has not ended")


async def _settled(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await work, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, error


async def _woken(stored: Stored, waits: Sequence[RunWait]) -> None:
    while waits and not any(map(stored.is_over, waits)):
        due = min((each.until_ms for each in waits if each.until_ms is not None), default=None)
        stored.sent.clear()
        sent = asyncio.ensure_future(stored.sent.wait())
        await asyncio.wait([sent], timeout=None if due is None else (due - now_ms()) / 1000)
        sent.cancel()


def _in_thread(function: Callable[[], Any]) -> asyncio.Future[Any]:
    """Stands in for a thread: a plain function takes no virtual time."""
    future = asyncio.get_running_loop().create_future()
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)
    return future
