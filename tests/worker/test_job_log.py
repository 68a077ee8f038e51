"""What a worker logs at its start, and for each finished job."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from schedq import JobCancelled, Queue, Snooze
from schedq.cli import daemon
from schedq.logs import AttemptLog
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import Server
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, Post

Lines = Callable[[], list[str]]


@pytest.fixture
def finished(logs: Logs) -> Lines:
    """The lines about single jobs and about many of them."""
    return lambda: [line for line in logs() if re.match(r"INFO (job|worker \S+: [\d,]+ jobs) ", line)]


def report_of(post: Post) -> Any:
    """The object that logs finished jobs, once the worker has started."""
    return post.queue_worker.fetcher.dispatcher._executor._report._lines


def test_a_worker_logs_what_it_is_ready_for(make_queue: MakeQueue, crew: Crew, logs: Logs) -> None:
    mail, files = make_queue("mail"), make_queue("files")
    for name in ("send", "bounce"):
        mail.task(name=name)(lambda: None)
    files.handler(lambda payload: None)
    post = crew.start(mail, files, concurrency=3)

    (line,) = until(lambda: [line for line in logs() if "ready" in line])

    place = mail.queue.address.label
    assert re.fullmatch(
        rf"INFO worker {post.worker.id}: ready for mail \(send, bounce\), files \(a handler\) at {re.escape(place)}, "
        r"3 at a time, schedq \d\S*",
        line,
    )


def test_a_worker_is_ready_when_redis_has_replied_and_not_before(crew: Crew, logs: Logs, server: Server) -> None:
    up, down = Queue("up", redis=server.unix_url), Queue("down", redis="redis://127.0.0.1:1/0")
    for queue in (up, down):
        queue.task(name="nothing")(lambda: None)

    class Both:
        def __init__(self, queue: Queue) -> None:
            self.queue = queue

    crew.start(Both(down), Both(up), watchdog=0)
    until(lambda: up.list_workers())

    until(lambda: [line for line in logs() if line.startswith("WARNING redis://127.0.0.1:1/0: lost (")])
    assert not [line for line in logs() if "ready" in line]
    up.close()
    down.close()


def test_each_finished_job_has_a_line_with_its_outcome_and_time(
    queue: Handle, crew: Crew, gate: Gate, finished: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    snoozed: list[int] = []

    @queue.task
    def send() -> None: ...

    hold = gate.task(queue)

    @queue.task
    def wait() -> None:
        snoozed.append(1)
        if len(snoozed) == 1:
            raise Snooze(0.001)

    post = crew.start(queue, grace=0)
    jobs = [send.enqueue(), wait.enqueue(), hold.enqueue(), hold.enqueue()]
    gate.until_held(2)
    until(lambda: all(job.status() == "completed" for job in jobs[:2]))
    jobs[2].cancel()
    with pytest.raises(JobCancelled):
        jobs[2].result(20)
    post.stop()
    post.join()

    def told(number: int, task: str, outcome: str) -> str:
        return rf"INFO job {jobs[number].id}: {task} {outcome}, attempt 1, \d+\.\d\d\d s"

    said = [line for line in finished() if "asked to stop" not in line]
    ends = [(0, "send", "completed"), (1, "wait", "snoozed"), (1, "wait", "completed"), (2, "hold", "cancelled")]
    for number, task, outcome in [*ends, (3, "hold", "released")]:
        assert len([line for line in said if re.fullmatch(told(number, task, outcome), line)]) == 1, said
    assert len(said) == 5

    sent = next(entry for entry in caplog.records if f"{jobs[0].id}: send completed" in entry.message)
    entry = json.loads(daemon._JsonFormatter().format(sent))
    assert (entry["job_id"], entry["task"], entry["outcome"]) == (jobs[0].id, "send", "completed")
    assert entry["duration_s"] >= 0


def test_at_high_rates_one_line_summarizes_many_jobs(
    queue: Handle, crew: Crew, finished: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.worker.attempt_report._WINDOW_S", 1.0)
    monkeypatch.setattr("schedq.worker.attempt_report._SUMMARY_S", 0.2)
    arrivals: list[None] = []
    all_may_end = asyncio.Event()

    @queue.task
    async def nothing() -> None:
        arrivals.append(None)
        await all_may_end.wait()

    def summaries() -> list[int]:
        found = [re.search(r"worker \S+: ([\d,]+) jobs completed in the last \d+ s$", line) for line in finished()]
        return [int(match[1].replace(",", "")) for match in found if match]

    nothing.enqueue_many([((), {})] * 500)
    post = crew.start(queue, debug=False, concurrency=500)
    until(lambda: len(arrivals) == 500)
    post.do(all_may_end.set)  # so that all end in the same turn of the loop, however slow the machine is

    until(lambda: sum(summaries()) + len([line for line in finished() if "INFO job" in line]) == 500)
    assert len([line for line in finished() if "INFO job" in line]) == 20
    assert len(summaries()) <= 10

    until(lambda: post.do(lambda: report_of(post)._timer is None))
    job = nothing.enqueue()
    job.result(20)
    assert until(lambda: any(job.id in line for line in finished())), "it is quiet again"


def test_a_worker_that_stops_logs_what_it_had_only_counted(
    queue: Handle, crew: Crew, finished: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.worker.attempt_report._WINDOW_S", 60)

    @queue.task
    async def nothing() -> None: ...

    jobs = nothing.enqueue_many([((), {})] * 100)
    post = crew.start(queue, debug=False)
    jobs[-1].result(20)
    until(lambda: len(queue.places()["completed"]) == 100)
    post.stop()
    post.join()

    expected = rf"INFO worker {post.worker.id}: 80 jobs completed in the last \d+ s"
    assert re.fullmatch(expected, finished()[-1])


def test_with_a_log_of_every_attempt_there_is_no_second_line(
    queue: Handle, crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="schedq")
    task = queue.task(lambda: None, name="nothing")
    crew.start(queue, observers=[AttemptLog()])
    job = task.enqueue()
    job.result(20)

    until(lambda: [entry for entry in caplog.records if "nothing completed" in entry.getMessage()])
    about = [entry.getMessage() for entry in caplog.records if job.id in entry.getMessage()]
    assert len([text for text in about if "nothing completed" in text]) == 1


def test_a_line_has_no_context_variable_of_the_job_that_started_a_timer(
    queue: Handle, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.worker.attempt_report._WINDOW_S", 600)  # the timer is there when the test looks

    @queue.task
    async def nothing() -> None: ...

    post = crew.start(queue)
    nothing.enqueue().result(20)

    def of_the_timer() -> str:
        timer = report_of(post)._timer
        return repr(timer._context.get(current)) if timer is not None else ""

    from schedq.model.current_job import context as current

    assert until(lambda: post.do(of_the_timer)) == "None"
