"""What observers of a worker are notified of, and that they can't disturb it."""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from schedq import Discard, Fixed, JobCancelled, JobFailed, Snooze, UsageError, current_job
from schedq.observer import AttemptEnd, AttemptFacts, Observer
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate
from tests.worker.layers import take_away

span: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="none")


class Diary(Observer):
    """Records its notifications."""

    def __init__(self) -> None:
        self.started: list[AttemptFacts] = []
        self.ends: list[tuple[AttemptFacts, AttemptEnd]] = []
        self.raised: list[str] = []
        self.lost: list[tuple[str, str]] = []
        self.reclaimed: list[tuple[str, list[str]]] = []
        self.claims: list[tuple[str, int]] = []
        self.words: list[str] = []
        self.threads: set[int] = set()

    def worker_started(self, worker: str, queues: Sequence[str]) -> None:
        self.words.append(f"{worker} started for {', '.join(queues)}")

    def worker_stopping(self, worker: str) -> None:
        self.words.append(f"{worker} stopping")

    def worker_stopped(self, worker: str) -> None:
        self.words.append(f"{worker} stopped")

    def attempt_started(self, attempt: AttemptFacts) -> None:
        self.threads.add(threading.get_ident())
        self.started.append(attempt)

    def around(self, attempt: AttemptFacts) -> AbstractContextManager[object]:
        return self._around(attempt)

    @contextmanager
    def _around(self, attempt: AttemptFacts) -> Iterator[None]:
        token = span.set(f"span of {attempt.job.id}")
        try:
            yield
        except BaseException as error:
            self.raised.append(repr(error))
            raise
        finally:
            span.reset(token)

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        self.threads.add(threading.get_ident())
        self.ends.append((attempt, end))

    def lease_lost(self, queue: str, job_id: str) -> None:
        self.lost.append((queue, job_id))

    def jobs_reclaimed(self, queue: str, job_ids: Sequence[str]) -> None:
        self.reclaimed.append((queue, list(job_ids)))

    def claim_answered(self, queue: str, jobs: int, has_more: bool) -> None:
        self.claims.append((queue, jobs))

    def beat_answered(self, queue: str) -> None:
        self.words.append(f"beat of {queue}")

    def went_round(self, queue: str) -> None:
        self.words.append(f"round of {queue}")

    def outcomes(self, job_id: str) -> list[str]:
        """The outcomes of the attempts at a job."""
        return [end.outcome for attempt, end in self.ends if attempt.job.id == job_id]


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.mark.parametrize("kind", ["async", "plain", "awaitable"])
def test_an_observer_is_notified_at_the_start_around_the_handler_and_at_the_end(
    queue: Handle, crew: Crew, diary: Diary, kind: str
) -> None:
    async def see(number: int) -> list[Any]:
        await asyncio.sleep(0)
        return [span.get(), current_job().id, number]

    def see_plain(number: int) -> Any:
        return [span.get(), current_job().id, number] if kind == "plain" else see(number)

    task = queue.task(name="see")(see if kind == "async" else see_plain)
    post = crew.start(queue, observers=[diary])
    job = task.enqueue(7)

    assert job.result(60) == [f"span of {job.id}", job.id, 7]

    (started,) = diary.started
    ((attempt, end),) = diary.ends
    assert attempt is started
    assert (attempt.queue, attempt.task, attempt.worker) == (queue.name, "see", post.worker.id)
    assert (attempt.job.id, attempt.job.attempts) == (job.id, 1)
    assert attempt.lateness_ms is not None and attempt.lateness_ms >= 0
    assert (end.outcome, end.error, end.delay_ms) == ("completed", "", 0)
    assert end.duration_s >= 0
    assert len(diary.threads) == 1, "told on the loop"


def test_an_exception_of_a_handler_is_seen_around_it_and_reported_at_the_end(
    queue: Handle, crew: Crew, diary: Diary
) -> None:
    @queue.task(max_attempts=2, backoff=Fixed(0))
    async def fail() -> None:
        raise LookupError("no such customer")

    @queue.task
    def discard() -> None:
        raise Discard("not wanted")

    snoozed: list[str] = []

    @queue.task
    def snooze() -> None:
        if not snoozed:
            snoozed.append(current_job().id)
            raise Snooze(0.001)

    crew.start(queue, observers=[diary])
    jobs = [fail.enqueue(), discard.enqueue(), snooze.enqueue()]

    for job in jobs[:2]:
        with pytest.raises(JobFailed):
            job.result(60)
    jobs[2].result(60)

    assert [diary.outcomes(job.id) for job in jobs] == [["retry", "failed"], ["failed"], ["snoozed", "completed"]]
    assert diary.raised.count("LookupError('no such customer')") == 2
    assert "Discard('not wanted')" in diary.raised
    errors = [end.error for attempt, end in diary.ends if attempt.task == "fail"]
    assert errors == ["LookupError: no such customer"] * 2


def test_a_job_that_no_task_here_can_run_is_reported_without_a_task(
    make_queue: MakeQueue, crew: Crew, diary: Diary
) -> None:
    queue = make_queue(unknown_for=0)
    queue.task(lambda: None, name="another")
    crew.start(queue, observers=[diary])

    job_id = queue.enqueue({"task": "unknown"}, max_attempts=1)

    with pytest.raises(JobFailed):
        queue.job(job_id).result(60)
    assert [(attempt.task, end.outcome) for attempt, end in diary.ends] == [("", "failed")]
    assert diary.started == [attempt for attempt, _ in diary.ends]


def test_a_cancelled_or_released_attempt_is_reported_as_such(
    queue: Handle, crew: Crew, diary: Diary, gate: Gate
) -> None:
    hold = gate.task(queue)

    post = crew.start(queue, observers=[diary], grace=0)
    asked, kept = hold.enqueue(), hold.enqueue()
    until(lambda: len(diary.started) == 2)

    asked.cancel()
    with pytest.raises(JobCancelled):
        asked.result(60)
    post.stop()
    post.join()

    assert (diary.outcomes(asked.id), diary.outcomes(kept.id)) == (["cancelled"], ["released"])
    assert [word for word in diary.words if word.startswith(post.worker.id)] == [
        f"{post.worker.id} started for {queue.name}",
        f"{post.worker.id} stopping",
        f"{post.worker.id} stopped",
    ]


def test_a_lost_lease_is_reported(queue: Handle, crew: Crew, diary: Diary, gate: Gate) -> None:
    hold = gate.task(queue)

    crew.start(queue, observers=[diary])
    job = hold.enqueue()
    until(lambda: diary.started)

    theirs = take_away(queue, job.id)
    until(lambda: diary.ends)

    assert diary.outcomes(job.id)[0] == "lost"
    assert diary.lost[0] == (queue.name, job.id)
    assert queue.complete(theirs)


def test_an_end_that_comes_too_late_is_reported(queue: Handle, crew: Crew, diary: Diary, gate: Gate) -> None:
    hold = gate.task(queue)

    crew.start(queue, observers=[diary])
    job = hold.enqueue()
    until(lambda: diary.started)

    theirs = take_away(queue, job.id)
    gate.open()
    until(lambda: diary.lost)

    assert diary.lost[0] == (queue.name, job.id)
    assert queue.complete(theirs)


def test_jobs_that_a_promoter_takes_back_are_reported(queue: Handle, crew: Crew, diary: Diary) -> None:
    queue.task(lambda: None, name="nothing")
    job_id = queue.enqueue({"task": "nothing"})
    assert queue.claim() is not None
    queue.redis.zadd(queue.keys.leases, {job_id: 1})

    crew.start(queue, observers=[diary])
    queue.job(job_id).result(60)

    # The reclaimer runs in another thread, so the job may have run before the worker's loop notifies the observer.
    until(lambda: diary.reclaimed)
    assert diary.reclaimed == [(queue.name, [job_id])]
    assert diary.outcomes(job_id) == ["completed"]


def test_claims_heartbeats_and_fetches_are_reported(queue: Handle, crew: Crew, diary: Diary) -> None:
    task = queue.task(lambda: None, name="nothing")
    crew.start(queue, observers=[diary])

    task.enqueue().result(60)

    until(lambda: f"beat of {queue.name}" in diary.words)
    assert f"round of {queue.name}" in diary.words
    assert sum(jobs for _, jobs in diary.claims) == 1
    assert {name for name, _ in diary.claims} == {queue.name}


class Brute(Observer):
    """Raises at every notification, also SystemExit."""

    @contextmanager
    def _around(self) -> Iterator[None]:
        try:
            yield
        finally:
            raise RuntimeError("on leaving")

    def around(self, attempt: AttemptFacts) -> AbstractContextManager[object]:
        if attempt.job.payload["args"] == [0]:
            raise SystemExit("not around me")
        return self._around()


for event in (name for name in vars(Observer) if not name.startswith("_") and name != "around"):

    def rage(self: Brute, *_: object) -> None:
        raise SystemExit("enough")

    setattr(Brute, event, rage)


class Swallower(Observer):
    """Its context manager suppresses exceptions."""

    class _Context:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> bool:
            return True

    def around(self, attempt: AttemptFacts) -> AbstractContextManager[object]:
        return self._Context()


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_an_observer_that_raises_disturbs_no_job_and_is_logged_once(
    queue: Handle, crew: Crew, diary: Diary, logs: Logs, kind: str
) -> None:
    def double(number: int) -> int:
        return 2 * number

    async def adouble(number: int) -> int:
        return 2 * number

    task = queue.task(name="double")(double if kind == "plain" else adouble)
    post = crew.start(queue, observers=[Brute(), diary])

    assert [task.enqueue(number).result(60) for number in range(4)] == [0, 2, 4, 6]
    post.stop()
    post.join()

    assert [end.outcome for _, end in diary.ends] == ["completed"] * 4
    said = [line for line in logs() if "observer Brute" in line]
    assert "ERROR observer Brute: attempt_ended failed; further failures are not logged" in said
    assert len(said) == len(set(said))


def test_no_observer_can_suppress_an_exception_of_a_handler(queue: Handle, crew: Crew) -> None:
    @queue.task(max_attempts=1)
    def fail() -> None:
        raise LookupError("no such customer")

    crew.start(queue, observers=[Swallower()])

    with pytest.raises(JobFailed, match="no such customer"):
        fail.enqueue().result(60)


def test_a_stored_traceback_begins_in_the_handler_even_with_observers(queue: Handle, crew: Crew, diary: Diary) -> None:
    @queue.task(max_attempts=1)
    async def fail() -> None:
        raise LookupError("no such customer")

    crew.start(queue, observers=[diary])
    job = fail.enqueue()

    with pytest.raises(JobFailed):
        job.result(60)

    traceback = queue.get_job(job.id).fields["traceback"]
    assert "in fail" in traceback.splitlines()[2 - 1]
    assert "observer.py" not in traceback


def test_an_observer_of_one_queue_is_notified_of_that_queue_only(
    make_queue: MakeQueue, crew: Crew, diary: Diary, gate: Gate
) -> None:
    mail, files = make_queue(visibility_ms=3000), make_queue(visibility_ms=3000)
    for queue in (mail, files):
        queue.task(lambda: None, name="nothing")
    hold = gate.task(mail)
    assert mail.observe(diary) is diary
    post = crew.start(mail, files)

    lost = hold.enqueue()
    until(lambda: diary.started)
    theirs = take_away(mail, lost.id)
    until(lambda: diary.lost)
    assert mail.complete(theirs)
    for queue in (mail, files):
        job_id = queue.enqueue({"task": "nothing"})
        assert queue.wait(job_id, 60)
    until(lambda: f"beat of {mail.name}" in diary.words)
    post.stop()
    post.join()

    assert {attempt.queue for attempt in diary.started} == {mail.name}
    assert [end.outcome for _, end in diary.ends] == ["lost", "completed"]
    assert {queue for queue, _ in diary.claims} == {mail.name}
    assert not any(files.name in word for word in diary.words)
    assert [word for word in diary.words if word.startswith(post.worker.id)] == [
        f"{post.worker.id} started for {mail.name}",
        f"{post.worker.id} stopping",
        f"{post.worker.id} stopped",
    ]


def test_jobs_that_a_promoter_takes_back_are_reported_to_the_queues_observer(
    queue: Handle, crew: Crew, diary: Diary
) -> None:
    queue.task(lambda: None, name="nothing")
    queue.observe(diary)
    job_id = queue.enqueue({"task": "nothing"})
    assert queue.claim() is not None
    queue.redis.zadd(queue.keys.leases, {job_id: 1})

    crew.start(queue)

    until(lambda: diary.reclaimed)
    assert diary.reclaimed == [(queue.name, [job_id])]


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_an_observer_attached_in_several_places_gets_each_event_once(
    make_queue: MakeQueue, crew: Crew, diary: Diary, kind: str
) -> None:
    async def anothing() -> None: ...

    mail, files = make_queue(), make_queue()
    other = Diary()
    for queue in (mail, files):
        queue.task(anothing if kind == "async" else lambda: None, name="nothing")
        queue.observe(diary)
        queue.observe(other)
        queue.observe(other)
    post = crew.start(mail, files, observers=[diary])

    for queue in (mail, files):
        assert queue.wait(queue.enqueue({"task": "nothing"}), 60)

    for each in (diary, other):
        assert sorted(attempt.queue for attempt in each.started) == sorted([mail.name, files.name])
        assert len(each.ends) == 2
        (started,) = [word for word in each.words if word.startswith(f"{post.worker.id} started")]
        assert started == f"{post.worker.id} started for {mail.name}, {files.name}"


def test_an_observer_of_a_queue_that_raises_is_logged_once(queue: Handle, crew: Crew, logs: Logs) -> None:
    task = queue.task(lambda number: 2 * number, name="double")
    brute = Brute()
    queue.observe(brute)
    crew.start(queue, observers=[brute])

    assert [task.enqueue(number).result(60) for number in range(4)] == [0, 2, 4, 6]

    said = [line for line in logs() if "observer Brute: attempt_ended" in line]
    assert len(said) == 1


def test_observe_is_refused_once_a_worker_has_started(queue: Handle, crew: Crew, diary: Diary) -> None:
    queue.task(lambda: None, name="nothing")
    post = crew.start(queue)
    until(lambda: post.worker._queue_workers)

    with pytest.raises(UsageError, match=f"queue {queue.name}: a worker of it has started .* observe comes too late"):
        queue.observe(diary)


@pytest.mark.parametrize(("wrong", "said"), [(Diary, "write Diary()"), (print, "derived from schedq.Observer")])
def test_only_observers_observe(queue: Handle, wrong: Any, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        queue.observe(wrong)
