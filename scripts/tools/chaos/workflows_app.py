"""The application of `scripts/chaos --workflows`: handlers that record what they did, and what they saw of it later.

`limits_records` reads the lines `begin` and `left` of all attempts. The others are:

    step     t, run, life, label, token        a step began
    stepped  t, run, life, label, token, value it returned
    stumbled t, run, life, label, token        it raised
    waits    t, run, life, label, kind, ms     an attempt came to a wait: for ms, or until that instant
    undo     t, run, life, label, token, claimed at in ms   what undoes a step began
    undone   the same: it returned
    saw      t, run, life, requeued, label, token, value   what an operation came to, as an attempt saw it
    returned t, run, life, token, value        the run's function ended with this result
    end      t, batch, job, what, token, values, [completed, failed, total]   the call at the end of a batch
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from schedq import (
    BatchResults,
    Discard,
    Fixed,
    Flow,
    FlowNode,
    MapFailed,
    Queue,
    StepFailed,
    Task,
    WorkflowContext,
    current_job,
)
from scripts.tools.chaos.attempts import VISIBILITY_MS, noted, now_ms
from scripts.tools.chaos.record import Recorder, now
from scripts.tools.chaos.request_log import RequestLog
from scripts.tools.chaos.workflows_plan import (
    FAILED,
    Program,
    child_value,
    flag_of,
    joined_value,
    link_value,
    value_of,
)

P = ParamSpec("P")
R = TypeVar("R")
NAME: Final = "workflows"
TIMEOUT: Final = "timeout"
RUN_TIMEOUT_S: Final = 5.0


def made(name: str) -> Queue:
    """A queue."""
    return Queue(
        name,
        redis=os.environ.get("CHAOS_REDIS"),
        visibility_ms=VISIBILITY_MS,
        max_attempts=200,
        backoff=Fixed(0.3),
        completed_history=1_000_000,
        failed_history=1_000_000,
        completed_ttl=36_000,
        min_keep=36_000,  # a full Redis deletes no results
    )


queue, elsewhere = made(NAME), made(f"{NAME}-elsewhere")

recorder: Recorder | None = None
if "CHAOS_FOLDER" in os.environ and "CHAOS_KEY" in os.environ:  # in the processes of a run
    recorder = Recorder(Path(os.environ["CHAOS_FOLDER"]), os.environ["CHAOS_KEY"])
    recorder.write("clock", now(), now_ms())
    RequestLog(recorder).install()


def marker(name: str) -> Path:
    """A file that remembers, across processes, that something has happened."""
    return Path(os.environ["CHAOS_FOLDER"]) / f"{name}.marker"


def write(*fields: Any) -> None:
    """Write a record."""
    assert recorder is not None
    recorder.write(fields[0], now_ms(), *fields[1:])


def go_as(flag: str, number: int, name: str) -> None:
    """Raise as a flag says."""
    if flag == "bad" or (flag == "mended" and not marker(f"mended-{number}").exists()):
        raise Discard("as planned")
    if flag == "once":
        stumble(name, 1)


def stumble(name: str, times: int) -> None:
    """Raise so often."""
    for n in range(times):
        try:
            marker(f"{name}-{n}").touch(exist_ok=False)
        except FileExistsError:
            continue
        raise RuntimeError("not yet")


def group_of(job_id: str) -> str:
    """The group of a child."""
    return job_id.rsplit("-", 2)[0]


@queue.task
async def child(number: int, label: str, n: int, flag: str, ms: int) -> int:
    """A child of a map or a batch."""
    job = current_job()
    with noted(recorder, group_of(job.id), f"{number} {label}", n):
        await asyncio.sleep(ms / 1000)
        go_as(flag, number, f"child-{group_of(job.id)}-{n}")
        return child_value(number, label, n)


@queue.task
async def joined(before: list[int], number: int, label: str, flag: str, ms: int) -> int:
    """A node of a flow. Those of a race have the same label up to a bar, and return the same."""
    group = group_of(current_job().id)
    with noted(recorder, group, f"{number} {label}", 0):
        await asyncio.sleep(ms / 1000)
        go_as(flag, number, f"joined-{group}")
        return joined_value(number, label.partition("|")[0], before)


@queue.task
def added(rows: BatchResults[int]) -> int:
    """What the children of a map in a flow came to."""
    return sum(rows) % 1000


for each in (child, joined, added):
    elsewhere.register(each)


def placed(task: Task[P, R], number: int, label: str) -> Task[P, R]:
    """The task, in the other queue for a third of the operations."""
    return task.options(queue=elsewhere) if zlib.crc32(f"{number} {label}".encode()) % 3 == 0 else task


@queue.flow
def graph(flow: Flow, number: int, nodes: list[list[Any]]) -> FlowNode[int]:
    """A flow, see `workflows_plan`."""
    made: list[FlowNode[int]] = []
    for kind, label, sources, *more in nodes:
        before = [made[each] for each in sources]
        results: Any = [node.result for node in before]
        if kind == "call":
            made.append(flow.call(placed(joined, number, label), results, number, label, *more))
        elif kind == "map":
            total, concurrency, ms = more
            items = [child.with_args(number, label, n, "ok", ms) for n in range(total)]
            rows = flow.options(after=before).map(placed(child, number, label), items, concurrency=concurrency)
            made.append(flow.call(placed(added, number, f"{label} added"), rows.result))
        elif kind == "first":
            made.append(flow.first(*before))
        else:
            made.append(flow.options(after=before, when=kind).call(joined, [], number, label, "ok", *more))
    return made[-1]


@queue.task
def link(before: int, number: int, n: int, flag: str, ms: int) -> int:
    """A link of a chain."""
    with noted(recorder, f"chain-{number}", f"{number} {before}", n):
        time.sleep(ms / 1000)
        go_as(flag, number, f"link-{number}-{n}")
        return link_value(n, before)


@queue.task
def report(rows: BatchResults[int], number: int) -> int:
    """The call that is made when a batch has completed."""
    job = current_job()
    with noted(recorder, "then", f"{number} then", number):
        values, progress = [*rows], rows.progress()
        counts = [progress.completed, progress.failed, progress.total]
        write("end", rows.id, job.id, "then", job.claim_token, values, counts)
        return len(values)


@queue.task
async def alert(rows: BatchResults[int], number: int) -> int:
    """The call that is made when a batch has failed."""
    job = current_job()
    with noted(recorder, "then", f"{number} otherwise", number):
        values = [value async for value in rows]
        failed = await asyncio.to_thread(lambda: sorted(each.number for each in rows.failures()))
        progress = await asyncio.to_thread(rows.progress)
        counts = [progress.completed, progress.failed, progress.total, failed]
        write("end", rows.id, job.id, "otherwise", job.claim_token, values, counts)
        return len(failed)


@queue.task
def take_back(label: str, life: int, failures: int, ms: int) -> None:
    """Undoes a step, in a thread."""
    with undo_noted(label, life, failures):
        time.sleep(ms / 1000)


@queue.task
async def take_back_later(label: str, life: int, failures: int, ms: int) -> None:
    """Undoes a step, on the event loop."""
    with undo_noted(label, life, failures):
        await asyncio.sleep(ms / 1000)


@contextmanager
def undo_noted(label: str, life: int, failures: int) -> Iterator[None]:
    """Record what undoes a step; so many of its tries fail."""
    job = current_job()
    fields = job.id, life, label, job.claim_token, job._job.claimed_at_ms
    write("undo", *fields)
    yield
    stumble(f"undo-{job.id}-{life}-{label}", failures)
    write("undone", *fields)


@queue.workflow
async def course(ctx: WorkflowContext, number: int, program: Program, life: int = 0) -> list[Any]:
    """Performs a program."""
    return await perform(ctx, number, program, life)


@queue.workflow(run_timeout=RUN_TIMEOUT_S)
async def hurried(ctx: WorkflowContext, number: int, program: Program, life: int = 0) -> list[Any]:
    """Performs a program within a deadline."""
    return await perform(ctx, number, program, life)


async def perform(ctx: WorkflowContext, number: int, program: Program, life: int) -> list[Any]:
    """Perform a program, and record the attempt."""
    with noted(recorder, "run", str(number), life):
        performance = Performance(ctx, number, life)
        result = await performance.play(program)
        write("returned", performance.run, life, performance.token, result)
        return result


class Performance:
    """One attempt at a program."""

    def __init__(self, ctx: WorkflowContext, number: int, life: int) -> None:
        job = current_job()
        self.run, self.token = job.id, job.claim_token
        self._ctx, self._number, self._life = ctx, number, life
        self._requeued = ctx._run.record.requeued

    async def play(self, program: Program) -> list[Any]:
        """Perform the operations one after the other."""
        found = []
        for verb, label, *more in program:
            if verb == "over":
                if self._life < more[0]:
                    await self._ctx.start_over(self._number, program, self._life + 1)
            else:
                perform: Callable[..., Any] = getattr(self, f"_{verb}")
                found.append(await perform(label, *more))
        return found

    def _placed(self, label: str) -> Task[..., Any]:
        return placed(child, self._number, label)

    def _saw(self, label: str, value: Any) -> None:
        write("saw", self.run, self._life, self._requeued, label, self.token, value)

    async def _step(self, label: str, failures: int, is_async: bool, ms: int) -> int:
        return await self._tried(label, "ok", failures, is_async, ms)

    async def _undoable(self, label: str, flag: str, failures: int, is_async: bool, ms: int, undo_failures: int) -> int:
        undo = (take_back_later if is_async else take_back).with_args(label, self._life, undo_failures, ms)
        try:
            return await self._tried(label, flag, failures, is_async, ms, undo=undo)
        except StepFailed:
            self._saw(label, FAILED)
            raise

    async def _tried(self, label: str, flag: str, failures: int, is_async: bool, ms: int, **more: Any) -> int:
        name = f"step-{self.run}-{self._life}-{label}"

        def begin() -> None:
            write("step", self.run, self._life, label, self.token)

        def end() -> list[int]:
            try:
                stumble(name, failures)
                go_as(flag, self._number, "")
            except (RuntimeError, Discard):
                write("stumbled", self.run, self._life, label, self.token)
                raise
            value = [value_of(self._number, label, self._life), time.monotonic_ns()]  # no two calls return the same
            write("stepped", self.run, self._life, label, self.token, value)
            return value

        def plain() -> list[int]:
            begin()
            time.sleep(ms / 1000)
            return end()

        async def on_the_loop() -> list[int]:
            begin()
            await asyncio.sleep(ms / 1000)
            return end()

        options = self._ctx.options(name=label, **more)
        value = await options.step(on_the_loop) if is_async else await options.step(plain)
        self._saw(label, value)
        return value[0]

    async def _ruin(self, label: str, flag: str) -> int:
        def fail() -> int:
            write("step", self.run, self._life, label, self.token)
            try:
                go_as(flag, self._number, "")
            except Discard:
                write("stumbled", self.run, self._life, label, self.token)
                raise
            return value_of(self._number, label, self._life)

        try:
            value = await self._ctx.options(name=label).step(fail)
        except StepFailed:
            self._saw(label, FAILED)
            raise
        self._saw(label, value)
        return value

    async def _keep(self, label: str) -> None:
        await self._ctx.keep()
        self._saw(label, None)

    async def _sleep(self, label: str, ms: int) -> None:
        write("waits", self.run, self._life, label, "sleep", ms)
        await self._ctx.sleep(ms / 1000, name=label)
        self._saw(label, None)

    async def _until(self, label: str, ms: int) -> None:
        instant = self._ctx.started_at.timestamp() + ms / 1000
        write("waits", self.run, self._life, label, "until", round(instant * 1000))
        await self._ctx.sleep_until(instant, name=label)
        self._saw(label, None)

    async def _receive(self, label: str, topic: str) -> Any:
        value = await self._ctx.receive(topic, name=label)
        self._saw(label, value)
        return value

    async def _patience(self, label: str, topic: str, ms: int) -> Any:
        turn = 0
        while True:
            name, turn = f"{label}.{turn}", turn + 1
            write("waits", self.run, self._life, name, topic, ms)
            try:
                value = await self._ctx.receive(topic, ms / 1000, name=name)
            except TimeoutError:
                self._saw(name, TIMEOUT)
                continue
            self._saw(name, value)
            return value

    async def _call(self, label: str, flag: str) -> Any:
        try:
            value: Any = await self._ctx.options(name=label).call(self._placed(label), self._number, label, 0, flag, 5)
        except StepFailed:
            value = FAILED
        self._saw(label, value)
        return value

    async def _graph(self, label: str, nodes: list[list[Any]]) -> Any:
        value: Any
        try:
            value = await self._ctx.options(name=label).call(graph, self._number, nodes)
        except StepFailed:
            is_mendable = any("mended" in node for node in nodes)
            self._saw(f"{label}.failed" if is_mendable else label, FAILED)
            if is_mendable:
                raise
            value = FAILED
        else:
            self._saw(label, value)
        return value

    async def _nested(self, label: str, program: Program) -> Any:
        value = await self._ctx.options(name=label).call(course, self._number, program)
        self._saw(label, value)
        return value

    async def _map(
        self, label: str, total: int, concurrency: int, tolerate: float, flags: dict[str, str], ms: int
    ) -> Any:
        items = [child.with_args(self._number, label, n, flag_of(flags, n), ms) for n in range(total)]
        try:
            options = self._ctx.options(name=label)
            rows = await options.map(self._placed(label), items, concurrency=concurrency, tolerate=tolerate)
        except MapFailed as error:
            is_mendable = "mended" in flags.values()
            self._saw(f"{label}.failed" if is_mendable else label, [FAILED, error.failed, error.total])
            if is_mendable:
                raise
            return [FAILED, error.failed, error.total]
        values = [value async for value in rows]
        self._saw(label, values)
        return values

    async def _gather(self, label: str, programs: list[Program]) -> Any:
        values = [*await self._ctx.gather(*map(self.play, programs))]
        self._saw(label, values)
        return values

    async def _race(self, label: str, topic: str, ms: int) -> Any:
        write("waits", self.run, self._life, f"{label}.late", "sleep", ms)
        winner, value = await self._ctx.first(
            soon=self._ctx.receive(topic, name=label), late=self._ctx.sleep(ms / 1000, name=label)
        )
        self._saw(f"{label}.{winner}", value)
        if winner == "late":
            value = await self._ctx.receive(topic, name=f"{label}.after")
            self._saw(f"{label}.after", value)
        return value

    async def _late(self, label: str, total: int, concurrency: int, ms: int, each_ms: int) -> Any:
        items = [child.with_args(self._number, label, n, "ok", each_ms) for n in range(total)]
        write("waits", self.run, self._life, label, "sleep", ms)
        winner, _ = await self._ctx.first(
            soon=self._ctx.options(name=label).map(self._placed(label), items, concurrency=concurrency),
            late=self._ctx.sleep(ms / 1000, name=label),
        )
        self._saw(label, winner)
        return winner
