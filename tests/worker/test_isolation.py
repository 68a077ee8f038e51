"""Plain functions in child processes: what they can do, what ends them, and what the error says."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from schedq import AsyncQueue, Queue, UsageError
from schedq.isolation.settings import IsolationSettings
from schedq.isolation.wire import Assignment
from schedq.model.current_job import CurrentJob
from schedq.model.records import ClaimedJob
from schedq.observer import AttemptEnd, AttemptFacts, Observer
from schedq.worker import Worker
from schedq.worker.forks import EXIT_CODE
from schedq.worker.isolation_options import Isolation
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker import isolated_app
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Post

pytestmark = pytest.mark.processes
Start = Callable[..., tuple[Post, dict[str, Any]]]


@pytest.fixture
def start(queue: Handle, crew: Crew) -> Start:
    """Starts a worker of the isolated tasks; returns it and the tasks."""

    def started(*, middleware: bool = False, concurrency: int = 2, **options: Any) -> Any:
        names = {"kill_after", "jobs_per_child", "memory_limit"} & options.keys()
        settings = {name: options.pop(name) for name in names}
        tasks = isolated_app.define(queue.queue, middleware=middleware)
        load = partial(isolated_app.load, queue.name, queue.server.unix_url, middleware)
        isolation = IsolationSettings(load=load, **settings)
        post = crew.start(queue, concurrency=concurrency, isolation=isolation, **options)
        return post, tasks

    return started


def outcome(queue: Handle, job_id: str) -> Any:
    """The record of a job that has ended."""
    return until(lambda: (found := queue.get_job(job_id)).status in ("completed", "failed", "cancelled") and found, 60)


def test_an_isolated_task_runs_in_a_process_of_its_own_that_is_used_again(queue: Handle, start: Start):
    _, tasks = start(concurrency=1)

    pids = [outcome(queue, tasks["pid"].enqueue().id).result for _ in range(3)]

    assert len(set(pids)) == 1
    assert pids[0] != os.getpid()


def test_an_isolated_task_knows_its_job(queue: Handle, start: Start):
    from datetime import date

    _, tasks = start()
    job = tasks["facts"].options(headers={"tenant": "acme"}).enqueue(date(2026, 1, 2))

    found = outcome(queue, job.id)

    assert found.result == ["date", job.id, {"tenant": "acme"}, queue.name, "facts", True]
    assert (found.progress.done, found.progress.total, found.progress.note) == (1, 2, "half")
    assert found.meta == {"seen": True}


def test_dependencies_and_lifespans_are_those_of_the_child(queue: Handle, start: Start):
    _, tasks = start()

    assert outcome(queue, tasks["with_dependencies"].enqueue().id).result == [True, True]


def test_middleware_runs_in_the_process_of_the_function(queue: Handle, start: Start):
    _, tasks = start(middleware=True)

    outer, inner = outcome(queue, tasks["pid"].enqueue().id).result

    assert outer == inner != os.getpid()


@pytest.mark.parametrize(
    ("task", "args", "error"),
    [
        ("crash", (), "ProcessDied: its process was ended by signal 11 (SIGSEGV: Segmentation fault)"),
        ("end_with", (3,), "ProcessDied: its process ended with exit code 3"),
        (
            "killed",
            (),
            "ProcessDied: its process was killed from outside, often by the kernel for lack of memory (SIGKILL)",
        ),
        ("fail", (), "OutOfStockError: no such thing"),
        ("loop_in_c", (), "TimeoutError: timed out after 2 s"),
    ],
)
def test_a_death_costs_one_attempt_and_says_how(queue: Handle, start: Start, task: str, args: Any, error: str):
    _, tasks = start(kill_after=0.2)
    other = tasks["pid"].enqueue()
    outcome(queue, other.id)

    found = outcome(queue, tasks[task].enqueue(*args).id)

    assert found.last_error == error
    assert found.attempts == 1
    assert outcome(queue, tasks["pid"].enqueue().id).status == "completed"


@pytest.mark.parametrize("task", ["crash", "loop_in_c"])
def test_the_error_has_the_stack_at_which_the_process_ended(queue: Handle, start: Start, task: str):
    _, tasks = start(kill_after=3)  # time to write it on a busy machine

    found = outcome(queue, tasks[task].enqueue().id)

    trace = found.fields["traceback"]
    assert "isolated_app.py" in trace
    assert f"in {task}" in trace


def test_a_sigterm_from_elsewhere_leaves_a_process_at_work(queue: Handle, start: Start):
    """systemd sends SIGTERM to all processes of a service, and jobs may finish within the worker's grace period."""
    _, tasks = start()

    assert outcome(queue, tasks["survive_sigterm"].enqueue().id).result == "still here"


def test_a_function_can_clean_up_after_its_timeout(queue: Handle, start: Start, tmp_path: Path):
    _, tasks = start(kill_after=60)
    mark = tmp_path / "mark"

    found = outcome(queue, tasks["clean_up_after_timeout"].options(timeout=2).enqueue(str(mark)).id)

    assert found.last_error == "TimeoutError: timed out after 2 s"
    until(lambda: mark.exists() and mark.read_text() == "cleaned up")


@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_a_function_renews_its_lease_with_either_client(queue: Handle, crew: Crew, kind: type[Queue]):
    tasks = isolated_app.define(queue.queue)
    load = partial(isolated_app.load, queue.name, queue.server.unix_url, kind=kind)
    crew.start(queue, isolation=IsolationSettings(load=load))

    assert outcome(queue, tasks["renew"].enqueue().id).result is True


def test_a_worker_on_uvloop_isolates_tasks_too(queue: Handle):
    uvloop = pytest.importorskip("uvloop")
    tasks = isolated_app.define(queue.queue)
    load = partial(isolated_app.load, queue.name, queue.server.unix_url)
    jobs = [tasks[name].enqueue(*args) for name, args in (("pid", ()), ("end_with", (3,)), ("pid", ()))]
    worker = Worker([queue.queue], concurrency=1, burst=True, isolation=IsolationSettings(load=load))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(worker.run())

    assert [queue.get_job(job.id).status for job in jobs] == ["completed", "failed", "completed"]


def test_a_queue_that_no_child_could_import_is_refused(queue: Handle):
    queue.queue.task(isolate=True)(isolated_app.fail)

    with pytest.raises(UsageError, match="isolated tasks need a queue that is defined at the top of a module"):
        asyncio.run(Worker([queue.queue]).run())


def test_a_process_above_the_memory_limit_is_ended(queue: Handle, start: Start):
    _, tasks = start(memory_limit=256 * 1024**2)

    found = outcome(queue, tasks["hog"].enqueue().id)

    assert found.last_error == "ProcessDied: its process used more memory than the memory limit of 268,435,456 bytes"


def test_a_process_is_replaced_after_its_number_of_jobs(queue: Handle, start: Start):
    _, tasks = start(concurrency=1, jobs_per_child=2)

    pids = [outcome(queue, tasks["pid"].enqueue().id).result for _ in range(4)]

    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_cancelled_job_sees_it_in_its_process(queue: Handle, start: Start):
    _, tasks = start()
    job = tasks["until_cancelled"].enqueue()
    until(lambda: queue.get_job(job.id).status == "processing", 60)

    queue.cancel(job.id)

    assert outcome(queue, job.id).status in ("cancelled", "completed")


def test_a_function_that_ignores_the_cancellation_of_its_job_is_ended(
    queue: Handle, start: Start, tmp_path: Path, hasty: None
):
    post, tasks = start(kill_after=0.1, grace=0.1, concurrency=1)
    job = tasks["ignore"].enqueue(str(tmp_path / "pid"))
    pid = until(lambda: written_pid(tmp_path / "pid"))

    queue.cancel(job.id)

    assert outcome(queue, job.id).status == "cancelled"
    assert outcome(queue, tasks["pid"].enqueue().id).status == "completed"
    until(lambda: not is_alive(pid))
    assert post.worker.stuck == []


def test_a_stopping_worker_ends_what_ignores_it_and_another_runs_the_job(
    queue: Handle, start: Start, tmp_path: Path, hasty: None
):
    post, tasks = start(kill_after=0.1, grace=0.1)
    job = tasks["ignore"].enqueue(str(tmp_path / "pid"))
    pid = until(lambda: written_pid(tmp_path / "pid"))

    post.stop()
    post.join()
    assert not is_alive(pid)
    start()

    found = outcome(queue, job.id)
    assert (found.result, found.attempts) == ("second", 1)


@pytest.mark.parametrize("end", ["crash", "wait", "return"])
def test_what_a_function_has_started_ends_with_its_process(queue: Handle, start: Start, tmp_path: Path, end: str):
    post, tasks = start(kill_after=0.2)
    job = tasks["start_a_process"].enqueue(str(tmp_path / "pid"), end)
    pid = until(lambda: written_pid(tmp_path / "pid"))
    if end == "return":
        outcome(queue, job.id)
        assert is_alive(pid)

    if end != "crash":
        post.stop(times=2)
        post.join()

    until(lambda: not is_alive(pid))


def test_a_fork_that_returns_from_its_function_sends_no_outcome(queue: Handle, start: Start):
    _, tasks = start(concurrency=1)

    assert outcome(queue, tasks["fork_and_return"].enqueue().id).result == EXIT_CODE
    assert outcome(queue, tasks["pid"].enqueue().id).status == "completed"


def test_a_process_that_multiprocessing_has_reaped_is_replaced(queue: Handle, start: Start):
    """The module reaps ended processes whenever someone starts one or asks for those that live."""
    post, tasks = start(concurrency=1)
    pid = outcome(queue, tasks["pid"].enqueue().id).result

    def kill_and_reap() -> None:
        os.kill(pid, signal.SIGKILL)
        until(lambda: pid not in [each.pid for each in multiprocessing.active_children()])

    post.do(kill_and_reap)
    until(lambda: pid not in post.worker._isolation._pool.pids)

    found = outcome(queue, tasks["pid"].enqueue().id)
    assert found.status == "completed"
    assert found.result != pid


def test_jobs_are_put_back_without_an_attempt_while_no_process_can_start(
    queue: Handle, crew: Crew, logs: Logs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("schedq.worker.isolated_call._START_S", 1.0)
    tasks = isolated_app.define(queue.queue)
    crew.start(queue, concurrency=1, isolation=IsolationSettings(load=isolated_app.load_nothing))

    job = tasks["pid"].enqueue()

    found = until(lambda: (record := queue.get_job(job.id)).status == "delayed" and record)
    assert found.attempts == 0
    said = "a child process could not start: the application can't be imported: ImportError: no module named 'shop'"
    until(lambda: any(said in line for line in logs()))
    assert any(f"job {job.id}: pid was put back for 10 s" in line for line in logs())


def test_a_worker_stops_while_its_processes_still_start(queue: Handle, start: Start):
    post, tasks = start()
    job = tasks["pid"].enqueue()
    until(lambda: (pool := post.worker._isolation._pool) and pool.pids)

    post.stop(times=2)
    post.join()

    assert queue.get_job(job.id).status in ("pending", "completed")
    assert post.worker._isolation._pool.pids == []


def test_a_process_that_ends_a_job_above_the_memory_limit_is_replaced(
    queue: Handle, start: Start, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("schedq.isolation.pool._MEMORY_S", 3600)  # it would end the job if that took longer
    _, tasks = start(concurrency=1, memory_limit=256 * 1024**2)

    first = outcome(queue, tasks["waste"].enqueue(300 * 1024**2).id)
    second = outcome(queue, tasks["pid"].enqueue().id)

    assert first.status == second.status == "completed"
    assert first.result != second.result


def test_records_of_the_log_have_the_fields_of_the_job(queue: Handle, start: Start):
    _, tasks = start()
    job = tasks["log_fields"].options(headers={"tenant": "acme"}).enqueue()

    expected = {"job_id": job.id, "queue": queue.name, "task": "log_fields", "attempt": 1, "tenant": "acme"}
    assert outcome(queue, job.id).result == expected


def test_a_process_that_dies_when_no_attempt_waits_for_it_causes_no_complaint(queue: Handle):
    """As when a worker that is stopping has released the job of a function that does not end."""
    isolated_app.define(queue.queue)
    settings = IsolationSettings(load=partial(isolated_app.load, queue.name, queue.server.unix_url))
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        pool = Isolation("w", [queue.queue], (), 1, "thread", settings).open()
        assert pool is not None
        job = ClaimedJob("a", {"task": "until_cancelled", "args": []}, 1, "mine.1")
        current = CurrentJob(job, deadline=None, renew=queue.queue.blocking.renew, arenew=queue.queue.aio.renew)
        seat = await pool.run(Assignment(queue.name, "w", job), current)
        os.kill(seat.child.pid or 0, signal.SIGKILL)
        await seat.child.ended()
        await pool.close(60)

    asyncio.run(main())
    gc.collect()

    assert complaints == []


class Watcher(Observer):
    """Keeps how attempts ended, and what its `around` saw, with the processes in which it was called."""

    def __init__(self) -> None:
        self.ends: list[AttemptEnd] = []
        self.seen: list[BaseException | None] = []
        self.pids: set[int] = set()

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        self.pids.add(os.getpid())
        self.ends.append(end)

    @contextmanager
    def around(self, attempt: AttemptFacts) -> Iterator[None]:
        self.pids.add(os.getpid())
        try:
            yield
        except BaseException as error:
            self.seen.append(error)
            raise
        self.seen.append(None)


def test_observers_and_the_log_of_the_worker_get_the_error_by_its_name(
    queue: Handle, start: Start, caplog: pytest.LogCaptureFixture
):
    watcher = Watcher()
    _, tasks = start(observers=[watcher], kill_after=0.2)

    for task in ("pid", "fail", "crash"):
        outcome(queue, tasks[task].enqueue().id)
    until(lambda: len(watcher.ends) == 3)

    assert watcher.pids == {os.getpid()}
    assert [end.outcome for end in watcher.ends] == ["completed", "failed", "failed"]
    none, error, died = (end.exception for end in watcher.ends)
    assert watcher.seen == [none, error, died]
    assert none is None
    assert (type(error).__module__, type(error).__qualname__) == ("tests.worker.isolated_app", "OutOfStockError")
    assert str(error) == "no such thing"
    for each, function in ((error, "fail"), (died, "crash")):
        assert f"in {function}" in "".join(traceback.format_exception(each))
    logged = [str(record.exc_text).splitlines() for record in caplog.records if "for good" in record.getMessage()]
    assert logged[0][-1].strip() == "tests.worker.isolated_app.OutOfStockError: no such thing"
    assert any(line.endswith("in fail") for line in logged[0])
    assert any(line.endswith("in crash") for line in logged[1])


def test_async_tasks_stay_in_the_worker_with_a_pool_of_processes(queue: Handle, start: Start):
    _, tasks = start(pool="process")

    assert outcome(queue, tasks["on_the_loop"].enqueue().id).result == os.getpid()


def test_isolation_of_an_async_function_is_refused(queue: Handle):
    with pytest.raises(UsageError, match="isolate=True is for plain functions"):
        queue.task(isolate=True)(isolated_app.on_the_loop)


def test_no_process_is_left_when_the_worker_has_stopped(queue: Handle, start: Start):
    post, tasks = start()
    pid = outcome(queue, tasks["pid"].enqueue().id).result

    post.stop()
    post.join()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_nothing_outlives_a_killed_worker_neither_loops_in_c_nor_imports(make_queue: MakeQueue, tmp_path: Path):
    queue = make_queue(visibility_ms=3000)
    tasks = isolated_app.define(queue.queue)
    slow, started = tmp_path / "slow", tmp_path / "started"
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.worker.isolated_app", queue.name, queue.server.unix_url],
        stdin=subprocess.DEVNULL,
        env=os.environ | {"SLOW_IMPORT": str(slow)},
    )
    try:
        tasks["start_a_process"].enqueue(str(started), "wait")
        looping = outcome(queue, tasks["pid"].enqueue().id).result
        tasks["loop_in_c"].options(timeout=600).enqueue()  # gets the process that is idle
        slow.touch()
        tasks["pid"].enqueue()
        pids = [looping, until(lambda: written_pid(started)), until(lambda: written_pid(slow))]
        assert all(map(is_alive, pids))
    finally:
        worker.kill()
        worker.wait()

    until(lambda: not any(map(is_alive, pids)))


def written_pid(file: Path) -> int:
    """The process id in a file; 0 before it is there."""
    return int(file.read_text() or 0) if file.exists() else 0


def children_of(pid: int) -> list[int]:
    """The child processes of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def is_alive(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
