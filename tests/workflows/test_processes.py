"""Worker processes that are killed between any two lines of a workflow, and code that changes under its runs."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedq import Fixed
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import environment_now
from tests.stories.processes.forkserver import Fork, fork_server
from tests.stories.processes.scene import ROOT, system_of
from tests.waiting import until

pytestmark = pytest.mark.processes
RUNS = int(os.environ.get("TEST_RUNS", "30"))
"""Runs in progress while their code changes; 1,000 take 13 s."""

WORKER = ("worker", "orders:queue", "--concurrency", "3")
HEAD = """
import os, signal
from pathlib import Path
from schedq import Discard, Fixed, Queue, StepFailed, WorkflowContext, current_job

queue = Queue(os.environ["NAME"], redis=os.environ["SERVER"], visibility_ms=1000, backoff=Fixed(0), max_attempts=20)

def act(name):
    line = f"{current_job().id} {name}\\n"
    fd = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line.encode())
    os.close(fd)
    die_at(name)
    return name

def die_at(place):
    # The first process that comes here dies.
    if os.environ.get("DIES"):
        try:
            os.close(os.open(f"death-{place}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
"""
ORDER = """
@queue.workflow
async def order(ctx: WorkflowContext, number: int) -> list:
    found = [await ctx.options(name="a").step(act, "a")]
    die_at("between")
    winner, value = await ctx.first(paid=ctx.receive("paid"), late=ctx.sleep(600))
    die_at("after the message")
    found += await ctx.gather(ctx.options(name="b").step(act, "b"), ctx.options(name="c").step(act, "c"))
    await ctx.sleep(0.6)
    found.append(await ctx.options(name="d").step(act, "d"))
    return [winner, value, *found]
"""
IMPORT = """
@queue.task
def child(number: int) -> int:
    act(f"child {number}")
    return number

@queue.workflow
async def order(ctx: WorkflowContext, number: int) -> list:
    die_at("begin")
    found = [each async for each in await ctx.map(child, [1, 2, 3], concurrency=2)]
    die_at("after the map")
    found.append(await ctx.call(child, 4))
    die_at("end")
    return found
"""
TAKE_BACK = """
@queue.task
def take_back(name: str) -> None:
    if name == "b":
        die_at("between the undos")
    act(f"undo {name}")
"""
TAKEN_BACK = f"""{TAKE_BACK}
@queue.workflow
async def order(ctx: WorkflowContext, number: int) -> None:
    for name in "abc":
        await ctx.options(name=name, undo=take_back.with_args(name)).step(act, name)
    die_at("before the end")
    if number % 2:
        raise Discard("sold out")
    await ctx.receive("packed")
"""
FATAL = f"""{TAKE_BACK}
@queue.workflow(max_attempts=2)
async def order(ctx: WorkflowContext, number: int) -> None:
    await ctx.options(name="a", undo=take_back.with_args("a")).step(act, "a")
    await ctx.step(os.kill, os.getpid(), signal.SIGKILL)
"""
BROKEN = ORDER.replace("found.append(", "found.extend(undefined); found.append(")
CHANGED = ORDER.replace('die_at("between")', 'await ctx.options(name="new").step(act, "new")').replace(
    'await ctx.options(name="d")', 'await ctx.options(name="e")'
)


class Processes:
    """Worker processes of one program, in a folder."""

    def __init__(self, folder: Path, queue: Handle) -> None:
        self.folder, self._queue = folder, queue
        self._running: list[Fork] = []

    def write(self, code: str) -> None:
        (self.folder / "orders.py").write_text(HEAD + code)

    def start(self, *words: str, **environment: str) -> Fork:
        known, ours = environment_now(), {"NAME": self._queue.name, "SERVER": self._queue.server.unix_url}
        words = words or WORKER
        with (self.folder / "log").open("ab") as log:
            server = fork_server(ROOT, system_of(known))
            made = server.start(words, known | ours | environment, log, log, folder=self.folder)
        self._running.append(made)
        return made

    def keep(self, count: int, **environment: str) -> None:
        """Start others in the place of those that are dead."""
        for _ in range(count - sum(each.poll() is None for each in self._running)):
            self.start(*WORKER, "--no-promoter", **environment)

    def start_promoter(self) -> None:
        """Start one that lives on, so that leases are looked at all the time."""
        self.start("promoter", self._queue.name, "--redis", self._queue.server.unix_url)

    def stop(self) -> None:
        for each in self._running:
            each.send_signal(signal.SIGTERM)
        for each in self._running:
            each.wait(60)

    def tell(self, jobs: list[Any]) -> str:
        """Why jobs have not ended, and the end of the log."""
        reasons = [f"{job.id}: {self._queue.inspector.why(job.id)}" for job in jobs if job.status() != "completed"]
        return "\n".join([*reasons, (self.folder / "log").read_text()[-3000:]])

    @property
    def deaths(self) -> int:
        """The places where a process died. Two threads of one process may come to two places before it is dead."""
        return len(list(self.folder.glob("death-*")))

    @property
    def effects(self) -> Counter[str]:
        return Counter(self.lines)

    @property
    def lines(self) -> list[str]:
        """The effects of all jobs, in their order."""
        return (self.folder / "effects").read_text().splitlines()


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    """A queue whose leases end soon."""
    return make_queue(visibility_ms=1000, backoff=Fixed(0), max_attempts=20)


@pytest.fixture
def processes(tmp_path: Path, queue: Handle) -> Iterator[Processes]:
    """Starts them; stops them at the end."""
    found = Processes(tmp_path, queue)
    yield found
    found.stop()


def enqueue(queue: Handle, count: int) -> list[Any]:
    @queue.queue.workflow
    async def order(ctx: Any, number: int) -> list[Any]:
        raise AssertionError("runs in another process")

    return [order.options(job_id=f"order-{number}").enqueue(number) for number in range(count)]


def test_runs_survive_workers_that_are_killed_anywhere(queue: Handle, processes: Processes):
    processes.write(ORDER)
    jobs = enqueue(queue, 8)
    for job in jobs:
        job.send("paid", job.id, id="once")
    worker = processes.start(DIES="1")

    def all_have_ended() -> bool:
        nonlocal worker
        if worker.poll() is not None:
            worker = processes.start(DIES="1")
        return all(job.status() == "completed" for job in jobs)

    until(all_have_ended, within=120, failing=lambda: processes.tell(jobs))

    for job in jobs:
        assert job.result(0) == ["paid", job.id, "a", "b", "c", "d"]
    assert processes.deaths == 6, "one at each place"
    effects = processes.effects
    assert set(effects) == {f"{job.id} {name}" for job in jobs for name in "abcd"}
    assert sum(effects.values()) - len(effects) <= processes.deaths * 3, "an effect is repeated only if its worker died"
    assert max(effects.values()) <= 1 + processes.deaths


def test_runs_and_their_jobs_survive_workers_that_are_killed_anywhere(queue: Handle, processes: Processes):
    processes.write(IMPORT)
    jobs = enqueue(queue, 6)
    worker = processes.start(DIES="1")

    def all_have_ended() -> bool:
        nonlocal worker
        if worker.poll() is not None:
            worker = processes.start(DIES="1")
        return all(job.status() == "completed" for job in jobs)

    until(all_have_ended, within=120, failing=lambda: processes.tell(jobs))

    assert [job.result(0) for job in jobs] == [[1, 2, 3, 4]] * len(jobs)
    assert processes.deaths == 7, "one at each place"
    effects = Counter(line.partition(" ")[2] for line in processes.effects.elements())
    assert set(effects) == {f"child {number}" for number in range(1, 5)}
    assert sum(effects.values()) - 4 * len(jobs) <= processes.deaths * 3, (
        "an effect is repeated only if its worker died"
    )


def test_code_that_changes_forward_and_back_loses_no_run(queue: Handle, processes: Processes):
    processes.write(ORDER)
    jobs = enqueue(queue, RUNS)
    first = processes.start()
    until(lambda: all(job.status() == "delayed" for job in jobs))
    first.send_signal(signal.SIGTERM)
    first.wait(60)

    processes.write(BROKEN)
    for job in jobs[: RUNS // 3]:
        job.send("paid", 1)
    second = processes.start()
    until(
        lambda: all(job.status() == "failed" for job in jobs[: RUNS // 3]),
        failing=lambda: (processes.folder / "log").read_text()[-3000:],
    )
    second.send_signal(signal.SIGTERM)
    second.wait(60)
    assert all(job.status() == "delayed" for job in jobs[RUNS // 3 :])

    processes.write(CHANGED)
    for job in jobs[: RUNS // 3]:
        assert job.requeue()
    for job in jobs[RUNS // 3 :]:
        job.send("paid", 1)
    processes.start()
    until(lambda: all(job.status() == "completed" for job in jobs))

    effects = processes.effects
    assert effects == Counter(f"{job.id} {name}" for job in jobs for name in ("a", "new", "b", "c", "d"))


def test_runs_are_undone_by_workers_that_are_killed_anywhere(queue: Handle, processes: Processes):
    processes.write(TAKEN_BACK)
    processes.start_promoter()
    jobs = enqueue(queue, 6)
    asked: set[str] = set()

    def all_have_ended() -> bool:
        processes.keep(4, DIES="1")
        for job in jobs[::2]:
            if job.id not in asked and 'message on topic "packed"' in job.why().text:
                assert job.cancel() == "asked"
                asked.add(job.id)
        return {job.status() for job in jobs} <= {"failed", "cancelled"}

    until(all_have_ended, within=120, failing=lambda: processes.tell(jobs))

    assert [job.status() for job in jobs] == ["cancelled", "failed"] * 3
    assert {job.record().last_error for job in jobs[1::2]} == {"sold out"}
    assert processes.deaths == 8, "one at each place"
    names = ["a", "b", "c", "undo c", "undo b", "undo a"]
    for job in jobs:
        did = [line.removeprefix(f"{job.id} ") for line in processes.lines if line.startswith(f"{job.id} ")]
        assert sorted(did, key=names.index) == did, "the undos follow all steps, and the newest comes first"
        assert set(did) == set(names)
    effects = processes.effects
    assert sum(effects.values()) - len(effects) <= processes.deaths * 3, "an effect is repeated only if its worker died"
    assert max(effects.values()) <= 1 + processes.deaths


def test_a_run_whose_workers_die_until_no_attempt_is_left_is_undone(queue: Handle, processes: Processes):
    processes.write(FATAL)
    processes.start_promoter()
    jobs = enqueue(queue, 1)

    def has_ended() -> bool:
        processes.keep(2)
        return bool(jobs[0].status() == "failed")

    until(has_ended, within=60, failing=lambda: processes.tell(jobs))

    assert processes.lines == ["order-0 a", "order-0 undo a"]
    assert "lease expired" in jobs[0].record().last_error
