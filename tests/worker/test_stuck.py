"""Handlers that do not end when asked to: they are interrupted again, and finally reported as stuck."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from schedq import JobCancelled, JobFailed, current_job
from schedq.metrics import StuckCollector
from schedq.metrics.health import HealthProbe
from schedq.transitions.heartbeat import WorkerRecord
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, Post
from tests.worker.layers import take_away


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of these waits takes a twentieth of a second."""
    monkeypatch.setattr("schedq.worker.stuck._FIRST_WAIT_S", 0.05)
    monkeypatch.setattr("schedq.worker.worker._LEAST_PATIENCE_S", 0.05)
    monkeypatch.setattr("schedq.worker.executor._THREAD_PATIENCE_S", 0.1)
    monkeypatch.setattr("schedq.worker.heartbeat._LEAST_REST_S", 0.05)


class Swallower:
    """An async handler that suppresses its first cancellations."""

    def __init__(self, queue: Handle, gate: Gate, count: int, **options: Any) -> None:
        self.swallowed = 0
        self.begun = threading.Event()
        self._gate = gate
        self._count = count
        self.task = queue.task(name="swallow", **options)(self.handle)

    async def handle(self) -> str:
        self.begun.set()
        while True:
            try:
                await self._gate.passed()
                return "done"
            except asyncio.CancelledError:
                self.swallowed += 1
                if self.swallowed > self._count:
                    raise


def record(queue: Handle, post: Post) -> WorkerRecord | None:
    """The last record that the worker wrote about itself."""
    return next((worker for worker in queue.list_workers() if worker.id == post.worker.id), None)


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize("count", [1, 3])
def test_a_handler_that_suppresses_cancellation_is_cancelled_again_after_its_timeout(
    queue: Handle, crew: Crew, gate: Gate, count: int
) -> None:
    found = Swallower(queue, gate, count, timeout=0.05, max_attempts=1)
    post = crew.start(queue)
    job = found.task.enqueue()

    with pytest.raises(JobFailed, match=r"TimeoutError: timed out after 0.05 s"):
        job.result(20)

    assert found.swallowed == count + 1
    assert "in handle" in queue.fields(job.id)["traceback"], "where it was when it was cancelled"
    assert post.worker.stuck == []


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize("how", ["cancel", "lost lease"])
def test_a_handler_that_suppresses_cancellation_is_cancelled_again_for_every_other_reason(
    queue: Handle, crew: Crew, gate: Gate, how: str
) -> None:
    found = Swallower(queue, gate, 3)
    post = crew.start(queue, concurrency=1)
    job = found.task.enqueue()
    assert found.begun.wait(20)

    if how == "cancel":
        job.cancel()
        with pytest.raises(JobCancelled):
            job.result(20)
    else:
        theirs = take_away(queue, job.id)
        until(lambda: found.swallowed == 4)
        assert queue.complete(theirs, "theirs")

    assert queue.task(name="ok")(lambda: "ok").enqueue().result(20) == "ok"
    assert post.worker.stuck == []


def test_a_stopping_worker_cancels_again_too(
    queue: Handle, crew: Crew, gate: Gate, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.worker.stuck._FIRST_WAIT_S", 0.05)
    monkeypatch.setattr("schedq.worker.worker._UNWIND_S", 60)
    found = Swallower(queue, gate, 1)
    post = crew.start(queue, grace=0)
    job = found.task.enqueue()
    assert found.begun.wait(20)

    post.stop()
    post.join()

    assert found.swallowed == 2
    assert queue.places() == {"pending": [job.id]}
    assert not [line for line in logs() if "do not end" in line]


@pytest.mark.usefixtures("_hasty")
def test_a_worker_that_abandons_a_thread_does_not_report_that_it_has_ended(
    queue: Handle, crew: Crew, gate: Gate, logs: Logs
) -> None:
    @queue.task(timeout=0.05, max_attempts=1)
    def render() -> None:
        gate.wait()

    post = crew.start(queue, concurrency=1)
    render.enqueue()
    until(lambda: post.worker.stuck)

    post.stop()
    post.join()

    assert [line for line in logs() if "its only slot is held by a handler that does not end" in line]
    assert not [line for line in logs() if "ended after all" in line or "free again" in line]


class Timers:
    """The timers of an event loop, on a clock that a test advances; seconds since the start."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[Timer] = []

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Set a timer, as the method of an event loop does."""
        self._timers.append(Timer(self.now + seconds, callback))
        return self._timers[-1]

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, and call what is due."""
        self.now += seconds
        due = [timer for timer in self._timers if timer.at <= self.now]
        self._timers = [timer for timer in self._timers if timer.at > self.now]
        for timer in due:
            if not timer.is_cancelled:
                timer.callback()


@dataclass(slots=True)
class Timer:
    """A callback and the time at which it is called."""

    at: float
    callback: Callable[[], object]
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Do not call it."""
        self.is_cancelled = True


def test_waits_double_until_the_patience_ends(
    queue: Handle, crew: Crew, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = Timers()
    monkeypatch.setattr("schedq.worker.stuck.monotonic", lambda: timers.now)
    found = Swallower(queue, gate, 1000, timeout=0.01, max_attempts=1)
    post = crew.start(queue, grace=10)
    post.queue_worker.fetcher.dispatcher._executor._loop = timers  # type: ignore[assignment]
    job = found.task.enqueue()
    until(lambda: found.swallowed)

    swallowed_at, stuck_at = [0.0] * found.swallowed, None
    while stuck_at is None and timers.now < 20:
        post.do(timers.pass_time, 0.5)
        post.take_turns()
        swallowed_at += [timers.now] * (found.swallowed - len(swallowed_at))
        stuck_at = timers.now if post.worker.stuck else None

    assert swallowed_at == [0, 1, 3, 7], "the next would come after 15 s"
    assert stuck_at == 10
    assert [slot.why for slot in post.worker.stuck] == ["timed out"]
    with pytest.raises(JobFailed, match="timed out"):
        job.result(60)


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize("how", ["timeout", "cancel", "lost lease"])
def test_an_async_handler_that_never_ends_is_stuck_and_its_job_is_settled_without_it(
    queue: Handle, crew: Crew, gate: Gate, logs: Logs, how: str
) -> None:
    found = Swallower(queue, gate, 1000, timeout=0.05 if how == "timeout" else None, max_attempts=1)
    post = crew.start(queue, concurrency=2, grace=0.3)
    job = found.task.enqueue()
    assert found.begun.wait(20)

    if how == "cancel":
        job.cancel()
    elif how == "lost lease":
        theirs = take_away(queue, job.id)
    (slot,) = until(lambda: post.worker.stuck)

    assert (slot.queue, slot.task, slot.job_id) == (queue.name, "swallow", job.id)
    assert slot.why == {"timeout": "timed out", "cancel": "cancelled", "lost lease": "lost its lease"}[how]
    if how == "lost lease":
        assert queue.complete(theirs, "theirs")
        assert job.result(20) == "theirs"
    else:
        with pytest.raises(JobFailed if how == "timeout" else JobCancelled):
            job.result(20)
    assert not queue.redis.exists(queue.keys.leases)
    assert queue.task(name="ok")(lambda: "ok").enqueue().result(20) == "ok", "in the other slot"

    gate.open()
    until(lambda: not post.worker.stuck)
    until(lambda: [line for line in logs() if "swallow has ended after all" in line])


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_when_all_slots_are_stuck_it_is_reported_everywhere_until_they_are_free_again(
    queue: Handle, crew: Crew, gate: Gate, logs: Logs, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("schedq.worker.stuck._AGAIN_S", 0.2)

    def render(_: int) -> None:
        gate.wait()

    async def arender(_: int) -> None:
        while True:
            try:
                return await gate.passed()
            except asyncio.CancelledError:
                continue

    task = queue.task(name="render", timeout=0.05, max_attempts=1)(render if kind == "plain" else arender)
    ok = queue.task(name="ok")(lambda: "ok")
    probe = HealthProbe()
    post = crew.start(queue, concurrency=2, grace=0.2, observers=[probe])
    probe.attach(post.worker)
    jobs = [task.enqueue(number) for number in range(3 if kind == "plain" else 2)]  # another thread takes over for one
    for job in jobs:
        with pytest.raises(JobFailed, match="timed out"):
            job.result(20)
    waiting = ok.enqueue()

    held = until(lambda: [reason for reason in probe.health().failures if "render" in reason])
    assert held[0].startswith(f"all 2 slots are held by handlers that do not end: render of queue {queue.name} (timed")
    assert not probe.health().is_healthy
    assert {slot["job_id"] for slot in probe.health().facts["slots"]["stuck"]} == {job.id for job in jobs}
    assert _series(probe) == {(queue.name, "render"): float(len(jobs))}
    why = until(lambda: (found := queue.inspector.why(waiting.id)).reason == "all_stuck" and found)
    assert "all 2 slots of 1 worker that could run it are stuck: render did not end when told to" in why.text
    found = record(queue, post)
    assert found is not None and found.is_stuck and found.stuck == 2
    assert {job["task"] for job in found.stuck_jobs} == {"render"}
    said: Callable[[], list[str]] = lambda: [line for line in logs() if "all 2 slots are held by" in line]  # noqa: E731
    until(lambda: len(said()) >= 2)
    assert all(line.startswith(f"ERROR worker {post.worker.id}: ") and "render" in line for line in said())

    gate.open()

    assert waiting.result(20) == "ok"
    until(lambda: not post.worker.stuck)
    until(lambda: probe.health().is_healthy)
    until(lambda: (found := record(queue, post)) is not None and found.stuck == 0)
    assert _series(probe) == {(queue.name, "render"): 0.0}
    assert [line for line in logs() if line.startswith("WARNING") and "slots are free again" in line]
    count = len(said())
    until(lambda: len([line for line in logs() if "render has ended after all" in line]) == len(jobs))
    until(lambda: queue.inspector.why(waiting.id).reason == "completed")
    assert len(said()) == count


def _series(probe: HealthProbe) -> dict[tuple[str, str], float]:
    (family,) = _COLLECTORS.setdefault(id(probe), StuckCollector(lambda: probe.stuck)).collect()
    return {(sample.labels["queue"], sample.labels["task"]): sample.value for sample in family.samples}


_COLLECTORS: dict[int, StuckCollector] = {}


@pytest.mark.usefixtures("_hasty")
def test_a_stuck_slot_next_to_free_ones_is_reported_but_the_worker_stays_healthy(
    queue: Handle, crew: Crew, gate: Gate, logs: Logs
) -> None:
    Swallower(queue, gate, 1000, timeout=0.05, max_attempts=1)
    probe = HealthProbe()
    post = crew.start(queue, concurrency=2, grace=0.1, observers=[probe])
    probe.attach(post.worker)
    job = queue.enqueue({"task": "swallow"})
    until(lambda: post.worker.stuck)

    assert probe.health().is_healthy
    until(lambda: (found := record(queue, post)) is not None and found.stuck == 1 and not found.is_stuck)
    (line,) = [line for line in logs() if "does not end" in line]
    assert line.startswith(f"WARNING job {job}: swallow does not end (timed out ")
    assert line.endswith("its slot is stuck: 1 of 2")
    assert not [line for line in logs() if line.startswith("ERROR worker")]


def test_a_plain_handler_that_ends_soon_after_its_timeout_is_not_stuck(
    queue: Handle, crew: Crew, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.worker.executor._THREAD_PATIENCE_S", 60)

    @queue.task(timeout=0.05, max_attempts=1)
    def polite() -> None:
        current = current_job()
        until(lambda: current.is_cancelled)

    post = crew.start(queue, concurrency=1)

    with pytest.raises(JobFailed):
        polite.enqueue().result(20)
    assert queue.task(name="ok")(lambda: "ok").enqueue().result(20) == "ok"
    assert post.worker.stuck == []
    assert not [line for line in logs() if "stuck" in line]


@pytest.mark.usefixtures("_hasty")
def test_other_threads_work_in_place_of_stuck_ones_up_to_half_of_the_slots(
    queue: Handle, crew: Crew, gate: Gate, logs: Logs
) -> None:
    stuck = queue.task(name="render", timeout=0.05, max_attempts=1)(gate.wait)
    both = threading.Barrier(2)
    meet = queue.task(name="meet")(lambda: both.wait(20) < 2)
    post = crew.start(queue, concurrency=2)

    stuck.enqueue()
    until(lambda: post.worker.stuck)
    pair = [meet.enqueue() for _ in range(2)]

    assert [job.result(20) for job in pair] == [True, True], "they ran at the same time"
    (line,) = [line for line in logs() if "does not end" in line]
    assert line.endswith("another thread takes its place: 1 of at most 1")
    until(lambda: (found := record(queue, post)) is not None and found.stuck == 0 and len(found.stuck_jobs) == 1)

    stuck.enqueue()
    until(lambda: len(post.worker.stuck) == 2)
    assert not post.worker.is_stuck
    assert queue.task(name="ok")(lambda: "ok").enqueue().result(20) == "ok", "in the only slot that is left"

    gate.open()
    until(lambda: not post.worker.stuck)
    assert [job.result(20) for job in [meet.enqueue() for _ in range(2)]] == [True, True]
    until(lambda: post.free_slots == 2)


@pytest.mark.usefixtures("_hasty")
def test_a_worker_with_too_many_stuck_handlers_lets_the_others_finish_and_exits(
    queue: Handle, crew: Crew, gate: Gate, logs: Logs
) -> None:
    stuck = queue.task(name="render", timeout=0.05, max_attempts=1)(gate.wait)
    begun, may_end = threading.Event(), threading.Event()

    @queue.task
    def good() -> str:
        begun.set()
        return "done" if may_end.wait(20) else "never"

    post = crew.start(queue, concurrency=2, max_stuck=1)
    job = good.enqueue()
    assert begun.wait(20)

    stuck.enqueue()
    until(lambda: [line for line in logs() if "1 handler does not end, as many as it may have" in line])
    may_end.set()
    post.join()

    assert queue.get_job(job.id).result == "done"
    assert post.worker.is_retired
