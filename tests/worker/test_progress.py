"""What handlers report while they run: how and how often it gets to Redis, and what stops it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from schedq import ClaimedJob, Discard, Fixed, Progress, current_job, track
from schedq.model.progress import ProgressReport
from schedq.transitions import scripts
from schedq.worker.attempt import Attempt, InFlight
from schedq.worker.renewal import REPORT_S, Held, Renewal, RenewalBatch
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import Request, Server
from tests.waiting import until
from tests.worker.crew import Crew, Gate, asked, frozen
from tests.worker.layers import take_away


def done(job: Any) -> float:
    """How much Redis has of a job's progress; -1 for nothing."""
    progress = job.progress()
    return -1 if progress is None else progress.done


def reports(request: Request) -> int:
    """How many reports a renewal carries."""
    return int(request.words[3 + int(request.words[2]) + 4])


@pytest.mark.parametrize("kind", ["async", "plain", "thread"])
def test_progress_is_seen_while_the_handler_runs(queue: Handle, crew: Crew, gate: Gate, kind: str) -> None:
    def work() -> None:
        current_job().progress(3, 10, "rows")
        current_job().update_meta(page=1)
        gate.wait()

    def work_in_thread() -> None:
        job = current_job()

        def report() -> None:
            job.progress(3, 10, "rows")
            job.update_meta(page=1)

        thread = threading.Thread(target=report)
        thread.start()
        thread.join()
        gate.wait()

    async def awork() -> None:
        current_job().progress(3, 10, "rows")
        current_job().update_meta(page=1)
        await gate.passed()

    task = queue.task(name="work")({"async": awork, "plain": work, "thread": work_in_thread}[kind])
    crew.start(queue)
    job = task.enqueue()

    record = until(lambda: (found := job.record()) and found.progress and found.meta and found)

    assert (record.status, record.progress.done, record.progress.total) == ("processing", 3, 10)
    assert (record.progress.note, record.progress.fraction, record.meta) == ("rows", 0.3, {"page": 1})
    assert record.started_at_ms <= record.progress.at_ms <= queue.stats()["now_ms"]


def test_a_handler_that_blocks_the_event_loop_can_still_report(queue: Handle, crew: Crew) -> None:
    ended = threading.Event()

    @queue.task
    async def block() -> None:
        current_job().progress(1, 2)
        assert ended.wait(60)  # on the loop

    crew.start(queue, watchdog=0)
    job = block.enqueue()
    try:
        until(lambda: done(job) == 1)
    finally:
        ended.set()


@pytest.mark.parametrize("end", ["returns", "fails", "fails for good"])
def test_the_last_report_is_stored_when_the_attempt_has_ended(queue: Handle, crew: Crew, end: str) -> None:
    @queue.task(backoff=Fixed(600))  # the next attempt would begin without the reports of this one
    async def count() -> None:
        for number in track(range(500)):
            current_job().update_meta(number=number)
        if end != "returns":
            raise ValueError("no") if end == "fails" else Discard("no")

    crew.start(queue)
    jobs = [count.enqueue() for _ in range(20)]

    until(lambda: all((found := job.record()) and found.history for job in jobs))

    assert {done(job) for job in jobs} == {500}
    assert {job.record().meta["number"] for job in jobs} == {499}


def test_the_last_report_reaches_a_redis_that_has_never_stored_a_report(queue: Handle, crew: Crew) -> None:
    @queue.task
    async def report() -> None:
        queue.redis.script_flush()
        queue.redis.script_load(scripts.load("settle").source)
        current_job().progress(3)

    post = crew.start(queue)
    until(lambda: post.worker._served.renewals)
    post.worker._served.renewals[0]._report_at = float("inf")  # it would teach Redis the script

    job = report.enqueue()

    until(lambda: job.record().status == "completed")
    assert done(job) == 3


def test_an_attempt_that_begins_and_reports_during_a_renewal_is_not_forgotten(
    queue: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = InFlight()
    sent: list[ProgressReport] = []
    renewal = Renewal([Held(queue.queue, held)], asyncio.new_event_loop())
    reporter = held.reporters.add("new", "new.1")

    def begin() -> list[Attempt]:
        """The attempt begins, and reports, right after the thread has looked at the attempts."""
        found = list(held._attempts.values())
        if not found:
            held.add(Attempt(ClaimedJob("new", None, 1, "new.1")))
            reporter.set_progress(1, None, "")
        return found

    def ask(batches: Sequence[RenewalBatch]) -> list[list[str]]:
        sent.extend(report for batch in batches for report in batch.reports)
        return [["OK"] * len(batch.attempts) for batch in batches]

    monkeypatch.setattr(held, "all", begin)
    monkeypatch.setattr(renewal, "_ask", ask)
    for _ in range(2):
        renewal._send()
    renewal._loop.close()

    assert [report.progress for report in sent] == ['"done":1']


def test_however_often_handlers_report_a_worker_sends_two_requests_a_second(queue: Handle, crew: Crew) -> None:
    goes_on = True

    @queue.task
    async def count(number: int) -> int:
        reports = 0
        while goes_on:
            reports += 1
            current_job().progress(reports)
            await asyncio.sleep(0.004)
        return reports

    crew.start(queue, concurrency=20)
    jobs = [count.enqueue(number) for number in range(20)]
    until(lambda: all(done(job) > 0 for job in jobs))

    began = time.monotonic()
    with queue.server.requests() as requests:
        until(lambda: len(asked(requests, queue, "renew")) >= 6)
    took = time.monotonic() - began
    goes_on = False

    sent = asked(requests, queue, "renew")
    assert len(sent) <= 2 * took + 2
    assert max(map(reports, sent)) == 20, "all jobs are in one request"
    for job in jobs:
        assert job.result(60) == done(job)


def test_a_job_that_reports_nothing_costs_no_request(make_queue: MakeQueue, crew: Crew) -> None:
    queue = make_queue(visibility_ms=600_000)  # renewed long after the test

    @queue.task
    async def quick() -> None:
        assert current_job().meta == {}
        assert current_job().last_progress is None

    crew.start(queue)
    quick.enqueue().result(60)
    with queue.server.requests() as requests:
        for _ in range(20):
            quick.enqueue().result(60)

    assert asked(requests, queue, "renew") == []


def test_the_last_report_is_sent_with_the_end_of_its_attempt(make_queue: MakeQueue, crew: Crew) -> None:
    queue = make_queue(visibility_ms=600_000)

    @queue.task
    async def quick(number: int) -> None:
        current_job().progress(number)

    crew.start(queue)
    quick.enqueue(0).result(60)
    with queue.server.requests() as requests:
        job = quick.enqueue(1)
        job.result(60)

    ours = [request.words[1] for request in asked(requests, queue, "renew", "settle")]
    assert len(ours) <= 3, "the report may have been sent before, too"
    assert done(job) == 1


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_reporting_neither_blocks_nor_fails_while_redis_is_unavailable(
    make_queue: MakeQueue, crew: Crew, kind: str
) -> None:
    with Server() as server:
        queue = make_queue(at=server, visibility_ms=60_000)
        starts, ended = threading.Event(), threading.Event()

        def work() -> None:
            current_job().progress(0, 1000)
            assert starts.wait(60)
            for number in track(range(1000)):
                current_job().update_meta(number=number)
            ended.set()

        async def awork() -> None:
            current_job().progress(0, 1000)
            while not starts.is_set():
                await asyncio.sleep(0.005)
            for number in track(range(1000)):
                current_job().update_meta(number=number)
            ended.set()

        task = queue.task(name="work")(awork if kind == "async" else work)
        crew.start(queue)
        job = task.enqueue()
        until(lambda: done(job) == 0)
        with frozen(server):
            starts.set()
            assert ended.wait(60)

        job.result(60)
        assert (done(job), job.record().meta) == (1000, {"number": 999})
        crew.end()


def test_a_worker_that_lost_its_lease_sends_no_more_reports(queue: Handle, crew: Crew) -> None:
    lost = threading.Event()

    @queue.task
    async def count() -> None:
        reports = 0
        try:
            while True:
                reports += 1
                current_job().progress(reports)
                await asyncio.sleep(0.01)
        finally:
            current_job().progress(10**6)
            lost.set()

    crew.start(queue)
    job = count.enqueue()
    until(lambda: done(job) > 0)
    take_away(queue, job.id)
    before = job.record().progress

    assert lost.wait(60)
    post = crew.start(queue)  # another round trip of everything
    post.look()

    assert job.record().progress == before
    queue.redis.zadd(queue.keys.leases, {job.id: 1})
    until(lambda: queue.reclaim_stuck() or not queue.places().get("processing"))


def test_a_plain_handler_that_overran_its_timeout_sends_no_more_reports(
    queue: Handle, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, overran, reported = threading.Event(), threading.Event(), threading.Event()

    async def time_out(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], deadline: float | None) -> None:
        """The timeout expires when the handler has reported, however late its thread starts."""
        while not (future.done() or (deadline is not None and begun.is_set())):
            await asyncio.sleep(0.005)

    monkeypatch.setattr("schedq.worker.caller._until", time_out)

    @queue.task(timeout=60, max_attempts=1)
    def slow() -> None:
        job = current_job()
        job.progress(1, 2)
        begun.set()
        assert overran.wait(60)
        job.progress(2, 2)
        reported.set()

    post = crew.start(queue)
    job = slow.enqueue()
    until(lambda: job.status() == "failed")
    overran.set()
    assert reported.wait(60)

    time.sleep(2 * REPORT_S)
    assert done(job) == 1
    until(lambda: not post.queue_worker.fetcher.in_flight.reporters.by_token)


def test_a_first_report_after_the_end_of_its_attempt_is_dropped(queue: Handle, crew: Crew, gate: Gate) -> None:
    overran, reported = threading.Event(), threading.Event()

    @queue.task(timeout=0.3, max_attempts=1)
    def slow() -> None:
        assert overran.wait(60)
        current_job().progress(2, 2)
        reported.set()

    post = crew.start(queue)
    job = slow.enqueue()
    until(lambda: job.status() == "failed")
    overran.set()
    assert reported.wait(60)
    gate.task(queue).enqueue()  # so that there is something to renew

    until(lambda: not post.queue_worker.fetcher.in_flight.reporters.by_token)
    assert job.progress() is None


def test_reports_of_ended_attempts_are_forgotten(queue: Handle, crew: Crew) -> None:
    @queue.task
    async def quick() -> None:
        current_job().progress(1)

    post = crew.start(queue)
    jobs = [quick.enqueue() for _ in range(50)]
    for job in jobs:
        job.result(60)

    reporters = post.queue_worker.fetcher.in_flight.reporters
    until(lambda: not reporters.by_token)
    assert [job.progress().done for job in jobs] == [1] * 50


def test_each_attempt_begins_without_the_progress_of_the_previous_one(queue: Handle, crew: Crew, gate: Gate) -> None:
    seen: list[Any] = []

    @queue.task(max_attempts=2, backoff=Fixed(600))
    async def work() -> None:
        job = current_job()
        seen.append((job.last_progress, dict(job.meta)))
        if job.attempts == 1:
            job.progress(9, 10)
            job.update_meta(page=1)
            raise ValueError("no")
        await gate.passed()

    crew.start(queue)
    job = work.enqueue()
    until(lambda: len(seen) == 1)
    until(lambda: job.record().history)
    assert (done(job), job.record().meta) == (9, {"page": 1})
    job.run_now()
    until(lambda: len(seen) == 2)

    assert seen == [(None, {})] * 2
    record = job.record()
    assert (record.status, record.progress, record.meta) == ("processing", None, {})


def test_reports_do_not_delay_renewals(make_queue: MakeQueue, crew: Crew, gate: Gate) -> None:
    queue = make_queue(visibility_ms=6000)

    @queue.task
    async def report() -> int:
        reports = 0
        while not gate._event.is_set():
            reports += 1
            current_job().progress(reports)
            await asyncio.sleep(0.01)
        return current_job().attempts

    hold = gate.task(queue)
    crew.start(queue)
    silent, loud = hold.enqueue(), report.enqueue()
    until(lambda: queue.redis.zscore(queue.keys.leases, silent.id))
    first = queue.redis.zscore(queue.keys.leases, silent.id)

    until(lambda: queue.redis.zscore(queue.keys.leases, silent.id) > first + 3500)  # renewed twice

    gate.open()
    assert loud.result(60) == 1
    assert queue.stats()["reclaimed_total"] == 0


def test_a_report_whose_reply_hangs_delays_no_renewal(queue: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    held, now, renewals = InFlight(), 0.0, [0.0]
    for name in ("loud", "silent"):
        held.add(Attempt(ClaimedJob(name, None, 1, f"{name}.1")))
    renewal = Renewal([Held(queue.queue, held)], asyncio.new_event_loop())
    reporter = held.reporters.add("loud", "loud.1")

    def wait(seconds: float) -> bool:
        nonlocal now
        now += seconds
        reporter.set_progress(now, None, "")
        if len(renewals) > 5:
            renewal.stop()
        return True

    def ask(batches: Sequence[RenewalBatch]) -> list[list[str]]:
        nonlocal now
        count = sum(len(batch.attempts) for batch in batches)
        if count == 2:
            renewals.append(now)
        now += 0.0 if count == 2 else renewal._reply_s
        return [["OK"] * len(batch.attempts) for batch in batches]

    monkeypatch.setattr("schedq.worker.renewal.monotonic", lambda: now)
    monkeypatch.setattr(renewal, "_ask", ask)
    monkeypatch.setattr(held.reporters.changed, "wait", lambda _: wait(0.01))
    monkeypatch.setattr(renewal._stopping, "wait", wait)
    renewal.run()
    renewal._loop.close()

    assert max(then - before for before, then in pairwise(renewals)) <= queue.settings.renewal_s


def test_what_a_job_reports_is_an_event(queue: Handle, crew: Crew, gate: Gate) -> None:
    @queue.task
    async def work() -> None:
        current_job().progress(3, 10, "rows")
        await gate.passed()
        current_job().progress(10, 10)

    crew.start(queue)
    events = queue.events(60)
    waiting = queue.start_iteration(events)
    until(lambda: queue.redis.pubsub_numsub(queue.keys.events)[0][1])
    job = work.enqueue()

    first = waiting.result(60)
    gate.open()
    rest = [next(events)]
    while rest[-1]["status"] != "completed":
        rest.append(next(events))

    assert {name: first[name] for name in ("id", "status", "attempts", "done", "total", "note")} == {
        "id": job.id, "status": "progress", "attempts": 1, "done": 3, "total": 10, "note": "rows",
    }  # fmt: skip
    # A report is sent again if its reply was late, or with the end of the attempt.
    told = [(event["status"], event.get("done")) for event in rest if event.get("done") != 3]
    assert list(dict.fromkeys(told)) == [("progress", 10), ("completed", None)]
    assert Progress(3, 10, "rows", first["at_ms"]).fraction == 0.3
