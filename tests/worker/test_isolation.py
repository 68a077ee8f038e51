"""Plain functions in child processes: what they can do, what ends them, and what the error says."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
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
from tests.worker.crew import Crew
from tests.worker.processes import Start, freeze, is_alive, outcome, written_pid

pytestmark = pytest.mark.processes


def test_an_isolated_task_has_what_a_task_in_a_thread_has(queue: Handle, start: Start):
    _, tasks = start(concurrency=1, pool="process")

    def run(task: str, *args: Any) -> Any:
        job = tasks[task].options(headers={"tenant": "acme"}).enqueue(*args)
        return outcome(queue, job.id)

    pids = [run("pid").result for _ in range(3)]
    assert len(set(pids)) == 1, "a process is used again"
    assert pids[0] != os.getpid() == run("on_the_loop").result, "async tasks stay in the worker"

    facts = run("facts", date(2026, 1, 2))
    assert facts.result == ["date", facts.id, {"tenant": "acme"}, queue.name, "facts", True]
    assert (facts.progress.done, facts.progress.total, facts.progress.note) == (1, 2, "half")
    assert facts.meta == {"seen": True}
    assert run("with_dependencies").result == [True, True], "dependencies and lifespans are those of the process"
    logged = run("log_fields")
    expected = {"job_id": logged.id, "queue": queue.name, "task": "log_fields", "attempt": 1, "tenant": "acme"}
    assert logged.result == expected

    # systemd sends SIGTERM to all processes of a service, and jobs may finish within the worker's grace period
    assert run("survive_sigterm").result == "still here"
    assert run("fork_and_return").result == EXIT_CODE, "a fork sends no outcome"
    assert run("pid").result == pids[0]


ENDS = {
    "crash": "ProcessDied: its process was ended by signal 11 (SIGSEGV: Segmentation fault)",
    "end_with": "ProcessDied: its process ended with exit code 3",
    "killed": "ProcessDied: its process was killed from outside, often by the kernel for lack of memory (SIGKILL)",
    "fail": "OutOfStockError: no such thing",
    "loop_in_c": "TimeoutError: timed out after 2.5 s",
}
"""Tasks that fail, and what the error says."""


def test_a_death_costs_one_attempt_and_says_how_and_where(queue: Handle, start: Start):
    _, tasks = start(kill_after=3)  # time to write the stack on a busy machine

    for task, error in ENDS.items():
        found = outcome(queue, tasks[task].enqueue(*([3] if task == "end_with" else [])).id)

        assert (found.last_error, found.attempts) == (error, 1)
        if task in ("crash", "loop_in_c"):
            assert "isolated_app.py" in found.traceback == found.fields["traceback"]
            assert f"in {task}" in found.fields["traceback"]
        assert outcome(queue, tasks["pid"].enqueue().id).status == "completed"


def test_the_worker_calls_the_hooks_of_an_attempt_whose_process_dies_or_is_ended(
    queue: Handle, start: Start, tmp_path: Path
):
    """Each hook once: a child that is being ended leaves them to the worker."""
    _, tasks = start(concurrency=6, kill_after=3)
    file, died = tmp_path / "calls", "its process was ended by signal 11 (SIGSEGV: Segmentation fault)"
    errors = dict.fromkeys(("clean up", "swallow", "loop"), "timed out after 0.5 s")
    errors |= {"crash": died, "fail": "no such thing"}

    def options(error: str) -> Any:
        return tasks["end_badly"].options(timeout=0.5 if "timed out" in error else None)

    for job in [options(error).enqueue(str(file), how) for how, error in errors.items()]:
        assert outcome(queue, job.id).status == "failed"

    calls = [re.fullmatch(r"([^:]+): (.+) in (\d+), (.+)", line) for line in file.read_text().splitlines()]
    found = sorted(call.groups() for call in calls if call)
    assert [(how, hook, error) for how, hook, _, error in found] == [
        (how, hook, error) for how, error in sorted(errors.items()) for hook in ("failure", "retry")
    ]
    for how, _, pid, _ in found:
        assert (pid == str(os.getpid())) == (how != "fail"), "a child that lives calls them itself"


def test_a_hook_that_does_not_end_holds_up_no_failed_attempt(
    queue: Handle, start: Start, tmp_path: Path, logs: Logs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("schedq.worker.isolated_call.HOOKS_S", 0.2)
    _, tasks = start()

    job = tasks["end_badly"].options(max_attempts=1).enqueue(str(tmp_path / "calls"), "hang")

    assert outcome(queue, job.id).status == "failed"
    assert f"hang: failure in {os.getpid()}" in (tmp_path / "calls").read_text()
    until(lambda: [line for line in logs() if f"job {job.id}: hook " in line])


def test_middleware_runs_in_the_process_of_the_function(queue: Handle, start: Start):
    _, tasks = start(middleware=True)

    outer, inner = outcome(queue, tasks["pid"].enqueue().id).result

    assert outer == inner != os.getpid()


def test_a_function_can_clean_up_after_its_timeout(queue: Handle, start: Start, tmp_path: Path):
    _, tasks = start(kill_after=60)
    mark = tmp_path / "mark"

    found = outcome(queue, tasks["clean_up_when_ended"].options(timeout=2.5).enqueue(str(mark)).id)

    assert found.last_error == "TimeoutError: timed out after 2.5 s"
    until(lambda: mark.exists() and mark.read_text() == "cleaned up: timed out after 2.5 s")


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


@pytest.mark.parametrize("how", ["cancelled", "released"])
def test_a_function_that_is_ended_before_its_timeout_gets_no_timeout(
    queue: Handle, start: Start, tmp_path: Path, hasty: None, how: str
):
    post, tasks = start(kill_after=10, grace=0.1)
    mark = tmp_path / "mark"
    job = tasks["clean_up_when_ended"].options(timeout=600).enqueue(str(mark))
    until(lambda: mark.exists() and mark.read_text() == "runs", 60)

    queue.cancel(job.id) if how == "cancelled" else post.stop()

    until(lambda: mark.read_text() not in ("", "runs"), 60)
    assert mark.read_text() == "cleaned up: the worker ends this attempt"
    assert not queue.get_job(job.id).last_error


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
        seat = await pool.run(Assignment(queue.name, "w", job).message(), current, 60)
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

    def logged() -> list[list[str]]:
        told = [record for record in caplog.records if "for good" in record.getMessage()]
        return [record.exc_text.splitlines() for record in told if record.exc_text]  # others are not complete yet

    until(lambda: len(watcher.ends) == 3 and len(logged()) == 2)

    assert watcher.pids == {os.getpid()}
    assert [end.outcome for end in watcher.ends] == ["completed", "failed", "failed"]
    none, error, died = (end.exception for end in watcher.ends)
    assert watcher.seen == [none, error, died]
    assert none is None
    assert (type(error).__module__, type(error).__qualname__) == ("tests.worker.isolated_app", "OutOfStockError")
    assert str(error) == "no such thing"
    for each, function in ((error, "fail"), (died, "crash")):
        assert f"in {function}" in "".join(traceback.format_exception(each))
    failed, crashed = logged()
    assert failed[-1].strip() == "tests.worker.isolated_app.OutOfStockError: no such thing"
    assert any(line.endswith("in fail") for line in failed)
    assert any(line.endswith("in crash") for line in crashed)


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
    queue = make_queue()
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


def test_what_a_child_has_started_ends_although_its_worker_is_killed_before_it_sees_the_death_of_the_child(
    make_queue: MakeQueue, tmp_path: Path
):
    queue = make_queue()
    tasks = isolated_app.define(queue.queue)
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.worker.isolated_app", queue.name, queue.server.unix_url],
        stdin=subprocess.DEVNULL,
    )
    try:
        tasks["start_a_process"].enqueue(str(tmp_path / "pid"), "wait")
        pid = until(lambda: written_pid(tmp_path / "pid"))
        child = os.getpgid(pid)
        freeze(worker.pid)
        os.kill(child, signal.SIGKILL)
        until(lambda: not is_alive(child))
        assert is_alive(pid)
    finally:
        worker.kill()
        worker.wait()

    until(lambda: not is_alive(pid))
