"""Unique jobs: at most one job of a key waits or runs; calls that are debounced; jobs that are unique for a while."""

from __future__ import annotations

import enum
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from schedq import Conflict, Debounce, Discard, NewJob, QueueFull, Unique, UsageError
from schedq.inspect.export import exported
from schedq.model.expiry import ExpiryError
from schedq.transitions import enqueue, scripts
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


class Plan(enum.Enum):
    FREE = "free"
    PAID = "paid"


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def sync_task(queue: Handle, unique: Any = True, **options: Any) -> Any:
    @queue.task(name="sync", unique=unique, **options)
    def sync(customer: int, page: int = 1, *, full: bool = False) -> None:
        """Only enqueued."""

    return sync


# -- what is the same


def test_a_job_with_the_same_arguments_is_the_one_that_waits(queue: Handle) -> None:
    sync = sync_task(queue)

    first, *same = [sync.enqueue(7), sync.enqueue(7, 1), sync.enqueue(customer=7, full=False)]
    others = [sync.enqueue(8), sync.enqueue(7, 2), sync.enqueue(7, full=True)]

    assert [job.id for job in same] == [first.id] * 2
    assert [job.created for job in (first, *same)] == [True, False, False]
    assert all(job.created for job in others)
    assert queue.places() == {"pending": [first.id, *(job.id for job in others)]}
    assert queue.stats()["deduplicated_total"] == 2


@pytest.mark.parametrize(
    ("unique", "is_same"),
    [
        (Unique("customer"), True),
        (Unique("customer", "page"), False),
        (Unique(lambda customer, page=1, **_: customer), True),
        (Unique(lambda customer, page=1, **_: {"shop": customer, "page": page}), False),
        (Unique(key="nightly"), True),
        ("nightly", True),
        (False, False),
    ],
)
def test_a_rule_says_what_makes_jobs_the_same(queue: Handle, unique: Any, is_same: bool) -> None:
    sync = sync_task(queue, unique)
    assert (sync.enqueue(7, 1).id == sync.enqueue(7, 2).id) == is_same


def test_arguments_are_compared_as_they_are_stored(queue: Handle) -> None:
    @queue.task(unique=True)
    def bill(plan: Plan = Plan.FREE) -> None:
        """Only enqueued."""

    assert bill.enqueue().id == bill.enqueue(Plan.FREE).id != bill.enqueue(Plan.PAID).id
    keys = {queue.get_job(job_id).fields["unique"] for job_id in queue.places()["pending"]}
    assert keys == {'bill:{"plan":"free"}', 'bill:{"plan":"paid"}'}


def test_a_long_key_is_stored_as_a_digest(queue: Handle) -> None:
    @queue.task(unique=True)
    def index(text: str) -> None:
        """Only enqueued."""

    one, other = index.enqueue("x" * 1000), index.enqueue("x" * 999 + "y")
    assert one.id != other.id
    assert index.enqueue("x" * 1000).id == one.id
    assert len(queue.get_job(one.id).fields["unique"]) == len("index:") + 40


def test_two_tasks_and_two_queues_have_keys_of_their_own(queue: Handle, make_queue: MakeQueue) -> None:
    other = make_queue()
    names = [queue.task(name=name, unique=True)(lambda: None).enqueue().id for name in ("a", "b")]
    assert len({*names, other.task(name="a", unique=True)(lambda: None).enqueue().id}) == 3


def test_options_of_a_call_may_give_another_rule(queue: Handle) -> None:
    sync = sync_task(queue)
    first = sync.enqueue(7)
    assert sync.options(unique=False).enqueue(7).created
    assert sync.options(unique="mine").enqueue(7).created
    assert not sync.options(unique="mine").enqueue(8).created
    assert not sync.options(max_attempts=2).enqueue(7).created
    assert sync.enqueue(7).id == first.id


def test_a_payload_has_a_key_of_its_own(queue: Handle) -> None:
    first = queue.enqueue({"n": 1}, unique="mine")
    assert queue.enqueue({"n": 2}, unique="mine") == first
    assert queue.enqueue({"n": 2}, unique=Unique(key="mine", on_conflict="replace")) == first
    assert queue.get_job(first).payload == {"n": 2}
    found = queue.enqueue_many([NewJob(1, unique="a"), NewJob(2, unique="mine"), 3, NewJob(4, unique="a")])
    assert (found[1], found[3]) == (first, found[0])
    assert queue.places() == {"pending": [first, found[0], found[2]]}


# -- how long


def end(queue: Handle, how: str, clock: Clock) -> None:
    """Claim the next job and end it."""
    job = queue.claim(0)
    if how == "completed":
        queue.complete(job)
    elif how == "failed":
        queue.fail(job, Discard())
    elif how == "cancelled":
        queue.cancel(job.id)
        queue.fail(job, "stopped")
    elif how == "lost":
        clock.pass_time(60)
        queue.reclaim_stuck()


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "lost"])
def test_a_key_is_free_when_its_job_has_ended(queue: Handle, clock: Clock, how: str) -> None:
    sync = sync_task(queue, max_attempts=1)
    first = sync.enqueue(7)
    end(queue, how, clock)
    second = sync.enqueue(7)
    assert second.created
    assert second.id != first.id


def leave(queue: Handle, how: str) -> None:
    """Claim the next job and put it back."""
    job = queue.claim(0)
    if how == "runs":
        return
    if how == "waits for a retry":
        queue.fail(job, "once more")
    elif how == "was released":
        queue.release(job)
    else:
        queue.snooze(job, 60)


STILL_THERE = ["runs", "waits for a retry", "was released", "was snoozed"]


@pytest.mark.parametrize("how", STILL_THERE)
def test_a_key_is_held_while_its_job(queue: Handle, how: str) -> None:
    sync = sync_task(queue)
    first = sync.enqueue(7)
    leave(queue, how)
    assert sync.enqueue(7).id == first.id


@pytest.mark.parametrize("how", STILL_THERE)
def test_until_start_another_job_may_wait_once_the_first_is_claimed(queue: Handle, how: str) -> None:
    sync = sync_task(queue, Unique(until="start"))
    first = sync.enqueue(7)
    leave(queue, how)

    second = sync.enqueue(7)
    assert second.created
    assert sync.enqueue(7).id == second.id != first.id


def test_a_cancelled_or_deleted_job_frees_its_key_at_once(queue: Handle) -> None:
    sync = sync_task(queue)
    sync.enqueue(7).cancel()
    second = sync.enqueue(7)
    assert second.created
    assert queue.inspector.act("delete", [second.id]).done == 1
    assert sync.enqueue(7).created


def test_per_holds_a_key_for_a_while_even_if_its_job_has_ended(queue: Handle, clock: Clock) -> None:
    sync = sync_task(queue, Unique("customer", per=timedelta(minutes=1)))
    first = sync.enqueue(7)
    queue.complete(queue.claim(0))

    clock.pass_time(59.999)
    again = sync.enqueue(7)
    assert (again.id, again.created) == (first.id, False)
    clock.pass_time(0.001)
    second = sync.enqueue(7)
    assert second.created
    clock.pass_time(3600)
    assert sync.enqueue(7).id == second.id, "it outlasts its window"


@pytest.mark.parametrize("conflict", ["keep", "raise", "replace"])
def test_a_job_that_has_expired_holds_no_key(
    queue: Handle, clock: Clock, conflict: Literal["keep", "raise", "replace"]
) -> None:
    sync = sync_task(queue, Unique("customer", on_conflict=conflict))
    sync.options(expires=60).enqueue(7, 1)
    clock.pass_time(60)

    second = sync.enqueue(7, 2)

    assert second.created
    assert queue.claim(0).payload["args"] == [7, 2], "the first one is cancelled at its turn"


def test_a_clock_that_goes_back_makes_no_window_longer(queue: Handle, clock: Clock) -> None:
    sync = sync_task(queue, Unique("customer", per=60))
    sync.enqueue(7)
    queue.complete(queue.claim(0))
    clock.pass_time(-3600)
    assert sync.enqueue(7).created


# -- what happens to the second one


def test_replace_gives_the_job_that_waits_other_arguments_and_options(queue: Handle) -> None:
    sync = sync_task(queue, Unique("customer", on_conflict="replace"), max_attempts=3)
    first = sync.options(timeout=5, headers={"user": "ada"}).enqueue(7, 1)
    behind = sync.enqueue(8)

    second = sync.options(expires=60, headers={"user": "bob"}).enqueue(7, 2)

    job = queue.get_job(first.id)
    assert (second.id, second.created) == (first.id, False)
    assert job.payload == {"task": "sync", "args": [7, 2]}
    assert (job.headers, job.max_attempts, "timeout_ms" in job.fields) == ({"user": "bob"}, 3, False)
    assert queue.places() == {"pending": [first.id, behind.id]}, "it keeps its place"


def test_an_expiry_counts_from_the_call_that_replaces(queue: Handle, clock: Clock) -> None:
    sync = sync_task(queue, Unique("customer", on_conflict="replace"), max_attempts=1)
    first = sync.enqueue(7)
    clock.pass_time(50)
    sync.options(expires=60).enqueue(7)
    clock.pass_time(59)
    assert queue.claim(0).id == first.id


def test_replace_keeps_the_time_of_a_delayed_job(queue: Handle, clock: Clock) -> None:
    sync = sync_task(queue, Unique("customer", on_conflict="replace"))
    first = sync.options(delay=60).enqueue(7, 1)
    due = queue.get_job(first.id).run_at_ms
    clock.pass_time(10)

    assert sync.enqueue(7, 2).id == first.id
    assert queue.get_job(first.id).run_at_ms == due
    assert queue.get_job(first.id).payload["args"] == [7, 2]


@pytest.mark.parametrize("how", STILL_THERE)
def test_replace_leaves_a_job_alone_that_has_been_claimed(queue: Handle, how: str) -> None:
    sync = sync_task(queue, Unique("customer", on_conflict="replace"))
    first = sync.enqueue(7, 1)
    leave(queue, how)
    assert sync.enqueue(7, 2).id == first.id
    assert queue.get_job(first.id).payload["args"] == [7, 1]


def test_keep_the_latest_while_one_runs(queue: Handle) -> None:
    sync = sync_task(queue, Unique("customer", until="start", on_conflict="replace"))
    sync.enqueue(7, 1)
    running = queue.claim(0)
    second, third = sync.enqueue(7, 2), sync.enqueue(7, 3)
    assert second.id == third.id != running.id
    queue.complete(running)
    assert queue.claim(0).payload["args"] == [7, 3]


def test_raise_names_the_job_and_the_key(queue: Handle) -> None:
    sync = sync_task(queue, Unique("customer", on_conflict="raise"))
    first = sync.enqueue(7)
    with pytest.raises(Conflict, match=rf'job {first.id} of queue .* holds the unique key \'sync:{{"customer":7}}\''):
        sync.enqueue(7)
    assert queue.places() == {"pending": [first.id]}


def test_many_calls_are_decided_one_after_the_other(queue: Handle) -> None:
    sync = sync_task(queue, Unique("customer", on_conflict="replace"))
    calls: Any = [((customer, page), {}) for page in range(3) for customer in (1, 2)]
    jobs = sync.enqueue_many(calls)
    assert [job.created for job in jobs] == [True, True, False, False, False, False]
    assert [job.id for job in jobs] == [jobs[0].id, jobs[1].id] * 3
    assert [queue.get_job(job.id).payload["args"] for job in jobs[:2]] == [[1, 2], [2, 2]]


def test_a_call_that_is_refused_holds_nothing(make_queue: MakeQueue, clock: Clock) -> None:
    queue = make_queue(clock=clock, max_pending=1)
    sync = sync_task(queue)
    first = sync.enqueue(1)
    with pytest.raises(QueueFull):
        sync.enqueue(2)
    assert sync.enqueue(1).id == first.id, "nothing is added"
    queue.complete(queue.claim(0))
    assert sync.enqueue(2).created


@pytest.mark.parametrize("conflict", ["keep", "raise", "replace"])
def test_of_two_calls_the_second_is_stored_if_the_first_is_refused(
    make_queue: MakeQueue, conflict: Literal["keep", "raise", "replace"]
) -> None:
    queue = make_queue()  # on Redis's clock, so that only the script finds that the first expires before it is due
    rule = Unique(key="x", on_conflict=conflict)
    soon = datetime.now(UTC) + timedelta(seconds=30)
    with pytest.raises(ExpiryError):
        queue.enqueue_many([NewJob(1, unique=rule, delay=60, expires=soon), NewJob(2, unique=rule, delay=60)])
    (stored,) = queue.places()["delayed"]
    assert queue.get_job(stored).payload == 2


# -- debounce


def test_a_debounced_job_runs_after_the_last_call_with_its_arguments(queue: Handle, clock: Clock) -> None:
    sync = sync_task(queue, Debounce("customer", wait=5))
    first = sync.enqueue(7, 1)
    for page in (2, 3):
        clock.pass_time(4)
        assert sync.enqueue(7, page).id == first.id

    clock.pass_time(4.999)
    assert queue.claim(0) is None
    clock.pass_time(0.001)
    assert queue.claim(0).payload["args"] == [7, 3]


def test_a_debounced_job_waits_no_longer_than_max_wait(queue: Handle, clock: Clock) -> None:
    sync = sync_task(queue, Debounce("customer", wait=5, max_wait=12))
    first = sync.enqueue(7, 0)
    for page in range(1, 4):
        clock.pass_time(3)
        sync.enqueue(7, page)
    clock.pass_time(2.999)
    assert queue.claim(0) is None
    clock.pass_time(0.001)
    job = queue.claim(0)
    assert (job.id, job.payload["args"]) == (first.id, [7, 3])

    later = sync.enqueue(7, 9)
    assert later.created, "another one waits while the first runs"


def test_a_shorter_wait_of_a_new_release_counts_at_once(queue: Handle, clock: Clock) -> None:
    sync = sync_task(queue, Debounce("customer", wait=60))
    first = sync.enqueue(7)
    sync.options(unique=Debounce("customer", wait=1)).enqueue(7)
    clock.pass_time(1)
    assert queue.claim(0).id == first.id


# -- sent again, requeued, at the same time


@pytest.mark.parametrize("conflict", ["keep", "replace", "debounce"])
def test_a_request_that_is_sent_again_changes_nothing(queue: Handle, clock: Clock, conflict: str) -> None:
    rule = Debounce("customer", wait=5) if conflict == "debounce" else Unique("customer", on_conflict=conflict)  # type: ignore[arg-type]
    sync = sync_task(queue, rule)
    send = queue.queue.connections.blocking.ask
    requests = [sync._created((7, page), {}) for page in (1, 2, 3)]
    (first, is_new), *others = [send(request) for request in requests]
    before = queue.get_job(first).fields
    clock.pass_time(1)

    assert [send(request) for request in requests] == [(first, True), *others]

    assert is_new
    assert others == [(first, False)] * 2
    assert queue.get_job(first).fields == before
    assert queue.get_job(first).payload["args"] == ([7, 1] if conflict == "keep" else [7, 3])


def test_a_requeued_job_takes_its_key_back_or_is_refused(queue: Handle) -> None:
    sync = sync_task(queue, max_attempts=1)
    first = sync.enqueue(7)
    queue.fail(queue.claim(0), "broken")
    second = sync.enqueue(7)
    with pytest.raises(Conflict, match=f"job {first.id} of queue .* can't be requeued: job {second.id} holds its uni"):
        queue.requeue(first.id)
    assert queue.requeue_failed() == 0

    second.cancel()
    assert queue.requeue(first.id)
    assert sync.enqueue(7).id == first.id
    with pytest.raises(Conflict):
        second.requeue()


def test_a_requeued_job_counts_as_never_started(queue: Handle) -> None:
    sync = sync_task(queue, Unique(until="start"), max_attempts=1)
    first = sync.enqueue(7)
    queue.fail(queue.claim(0), "broken")
    assert queue.requeue(first.id)
    assert sync.enqueue(7).id == first.id


def test_an_import_takes_keys_with_it_and_refuses_those_that_are_held(queue: Handle, make_queue: MakeQueue) -> None:
    rule = Unique(key="a", until="start", per=60, on_conflict="replace")
    old, held = queue.enqueue(1, unique=rule), queue.enqueue(2, unique=Unique(key="b", on_conflict="replace"))
    entries = [exported(queue.get_job(job_id), "pending") for job_id in (old, held)]
    new = make_queue(clock=queue.queue.settings.clock)
    there = new.enqueue(3, unique=Unique(key="b"))

    found = new.inspector.import_jobs([*entries, {"id": "bad", "payload": 1, "unique": "c", "unique_rule": "soon"}])

    assert (found.stored, list(found.refused)) == (1, [1, 2])
    assert found.refused[1] == f"job {there} of queue {new.name} holds the unique key 'b'"
    assert found.refused[2].startswith("unique_rule is not in the form that schedq writes: 'soon'")
    assert new.get_job(there).payload == 3, "nothing is replaced"
    assert exported(new.get_job(old), "pending") == entries[0]
    assert new.enqueue(4, unique=Unique(key="a")) == old
    assert new.inspector.import_jobs(entries[:1]).existed == 1


def test_an_outbox_prepares_a_call_with_its_key(queue: Handle) -> None:
    sync = sync_task(queue, Unique("customer"))
    settings, encoded, job = sync.prepare((7,), {})
    first = sync.enqueue(7)
    (word,) = queue.queue.connections.blocking.drive(enqueue.store_each(settings, [encoded]))
    assert word == f"UNIQUE {first.id}"
    assert enqueue.is_accepted(word)
    assert queue.get_job(job.id) is None


def test_of_many_processes_one_creates_the_job(queue: Handle) -> None:
    sync = sync_task(queue)
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda _: sync.enqueue(7), range(200)))
    assert len({job.id for job in jobs}) == 1
    assert sum(job.created for job in jobs) == 1


# -- what is left behind


def test_the_index_has_at_most_a_few_times_as_many_keys_as_there_are_jobs(queue: Handle) -> None:
    sync = sync_task(queue)
    for customer in range(300):
        sync.enqueue(customer)
        queue.complete(queue.claim(0))
    assert queue.redis.hlen(queue.keys.unique_keys) < 30


@pytest.mark.parametrize("note", ["", "x", "0", "0 ", "0 gone", "nan x", "0 " + "y" * 100])
def test_a_damaged_note_locks_nothing(queue: Handle, note: str) -> None:
    queue.redis.hset(queue.keys.unique_keys, "mine", note)
    first = queue.enqueue(1, unique="mine")
    assert queue.enqueue(2, unique="mine") == first


def test_a_plain_job_knows_nothing_of_unique_keys(queue: Handle) -> None:
    assert "unique_keys" not in scripts.text("enqueue")
    with queue.server.requests() as requests:
        queue.enqueue(1)
    assert [request.words[1] for request in requests if request.name == "EVALSHA"] == [scripts.load("enqueue").sha]


# -- mistakes

WRONG: dict[str, Callable[[], object]] = {
    "until must be one of 'done', 'start', got 'end'": lambda: Unique(until="end"),  # type: ignore[arg-type]
    "on_conflict must be one of 'keep', 'replace', 'raise', got 'drop'": lambda: Unique(on_conflict="drop"),  # type: ignore[arg-type]
    "give parameters or key, not both": lambda: Unique("customer", key="x"),
    "a unique key must be 1 to 200 printable characters": lambda: Unique(key="x" * 201),
    "a job is unique by names of parameters or by one function": lambda: Unique("customer", len),
    "max_wait=1 must be at least wait=5": lambda: Debounce(wait=5, max_wait=1),
    "per must not be negative, got -1": lambda: Unique(per=-1),
}


@pytest.mark.parametrize("says", WRONG)
def test_a_wrong_rule_is_refused_with_the_value(says: str) -> None:
    with pytest.raises(UsageError) as refused:
        WRONG[says]()
    assert str(refused.value).startswith(says)


def test_a_task_names_its_own_parameters(queue: Handle) -> None:
    with pytest.raises(UsageError, match="task 'sync': it has no parameter 'user'; its parameters are customer, page"):
        sync_task(queue, Unique("user"))
    with pytest.raises(UsageError, match="task 'sync': unique must be True, False, a key, Unique"):
        sync_task(queue, 5)
    with pytest.raises(UsageError, match="needs a task whose arguments make the key; here give key='…'"):
        queue.enqueue(1, unique=True)
    with pytest.raises(UsageError, match="a debounced job is due when its calls have ceased: give no delay"):
        queue.enqueue(1, unique=Debounce(key="x", wait=1), delay=5)
