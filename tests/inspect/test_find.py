"""Finding jobs by a filter, page by page, while the queue changes."""

from __future__ import annotations

import pytest

from schedq import Discard, UsageError
from schedq.model.ids import new_request
from schedq.transitions import claim
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.inspect.scenes import call, every, failed


def test_jobs_are_found_by_the_task_they_call(queue: Handle):
    ids = queue.enqueue_many([call("send"), call("resend"), {"task": "send", "to": "ada"}, ["send"], call("send", 2)])

    page = queue.inspector.find("pending", task="send")

    assert [job.id for job in page.jobs] == [ids[0], ids[4]]
    assert page.jobs[1].payload == call("send", 2)
    assert (page.cursor, page.looked, page.total) == (None, 5, 5)


@pytest.mark.parametrize("text", ['{"task":"größe\\/x"}', '{"task":"gr\\u00f6\\u00dfe/x"}', '{"task":"größe/x"}'])
def test_a_task_is_found_however_another_language_writes_its_name(text: str, queue: Handle):
    job_id = queue.enqueue(1)
    queue.redis.hset(queue.keys.job(job_id), "payload", text)

    assert every(queue, "pending", task="größe/x") == [job_id]


def test_jobs_are_found_by_text_in_payload_or_error(queue: Handle):
    first, second, third = failed(queue, [{"to": "ada"}, {"to": "bob"}, {"to": "ada.l"}], "timeout of [mail]%d+")
    queue.enqueue({"to": "ada"})

    assert every(queue, "failed", text='"ada"') == [first]
    assert every(queue, "failed", text="[mail]%d") == [third, second, first]
    assert every(queue, "failed", error="timeout", text="bob") == [second]
    assert every(queue, "failed", error="ada") == []


def test_jobs_are_found_and_acted_on_by_a_header(queue: Handle):
    quoted = queue.enqueue(call("send"), headers={"tenant": 'größe "1"', "x": "a=b"})
    plain = queue.enqueue(call("pay"), headers={"tenant": "acme", "empty": ""})
    foreign = queue.enqueue(call("send"), headers={"tenant": "other"})
    queue.enqueue(call("send"), headers={"x": "tenant", "y": '"tenant":"acme"'})
    queue.enqueue(call("send", "acme"))
    queue.redis.hset(queue.keys.job(foreign), "headers", '{ "tenant" : "acme" }')

    for header, expected in (
        ("tenant=acme", [plain, foreign]),
        ('tenant=größe "1"', [quoted]),
        ("x=a=b", [quoted]),
        ("empty=", [plain]),
        ("Tenant=acme", []),
        ("tenant=acm", []),
        ("größe", [quoted]),
        ("=b", [quoted]),
    ):
        assert every(queue, "pending", header=header) == expected, header
    assert every(queue, "pending", header="tenant=acme", task="send") == [foreign]
    assert queue.inspector.act_on("cancel", "pending", header="tenant=acme", task="pay").done == 1
    assert queue.inspector.act_on("cancel", "pending", header="tenant=acme").done == 1
    with pytest.raises(UsageError, match="header must be a text that is not empty"):
        queue.inspector.find("pending", header="")


def test_what_an_age_is_counted_from_depends_on_the_state(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.enqueue(1, job_id="old")
    clock.pass_time(100)
    queue.enqueue(2, job_id="new")
    queue.fail(queue.claim(0), Discard())
    clock.pass_time(10)

    assert every(queue, "failed", older_than=10) == ["old"]
    assert every(queue, "failed", older_than=10.001) == []
    assert every(queue, "pending", newer_than=10) == ["new"]
    assert every(queue, "pending", newer_than=9.999) == []


def test_a_job_that_does_not_say_since_when_has_no_age(queue: Handle):
    job_id = queue.enqueue(1)
    queue.redis.hdel(queue.keys.job(job_id), "enqueued_at_ms")

    assert every(queue, "pending", older_than=0) == every(queue, "pending", newer_than=1e6) == []
    assert every(queue, "pending") == [job_id]


def test_waiting_jobs_come_in_running_order_and_finished_ones_newest_first(queue: Handle):
    ended = failed(queue, [1, 2, 3])
    waiting = queue.enqueue_many([1, 2, 3])
    later = [queue.enqueue(n, delay=100 - n) for n in range(3)]

    assert every(queue, "pending", limit=1) == waiting
    assert every(queue, "failed", limit=2) == ended[::-1]
    assert every(queue, "delayed", limit=1) == later[::-1]


def test_a_walk_crosses_many_stretches(queue: Handle):
    ids = queue.enqueue_many(range(1300))
    later = queue.enqueue_many(range(1300), delay=1000)

    assert every(queue, "pending") == ids
    assert sorted(every(queue, "delayed")) == sorted(later)


@pytest.mark.parametrize("claims", [1, 5, 700, 1300])
def test_jobs_that_are_claimed_meanwhile_make_no_other_be_skipped(claims: int, queue: Handle):
    ids = queue.enqueue_many(range(1500))
    page = queue.inspector.find("pending", limit=600)
    for first in range(0, claims, 100):
        queue.execute([claim.claim(queue.settings, new_request(), min(100, claims - first))])
    queue.enqueue_many(range(30))

    found = [job.id for job in queue.inspector.find("pending", limit=1000, cursor=page.cursor).jobs]

    assert set(ids[max(600, claims) :]) <= set(found)
    assert len(found) == len(set(found))
    if claims <= 600:
        assert not set(ids[:600]) & set(found)


def test_jobs_that_fail_meanwhile_are_not_met_twice(queue: Handle):
    ids = failed(queue, list(range(50)))
    page = queue.inspector.find("failed", limit=20)
    failed(queue, list(range(30)))

    found = [job.id for job in queue.inspector.find("failed", limit=1000, cursor=page.cursor).jobs]

    assert found == ids[:30][::-1]


def test_a_delayed_job_that_disappears_does_not_move_the_scan(make_queue: MakeQueue, clock: Clock):
    """All are due at the same instant, so only their ids determine the position of the scan."""
    queue = make_queue(clock=clock)
    ids = sorted(queue.enqueue_many(range(30), delay=60))
    page = queue.inspector.find("delayed", limit=10)
    queue.cancel(ids[9])
    queue.cancel(ids[3])
    queue.cancel(ids[12])

    found = [job.id for job in queue.inspector.find("delayed", cursor=page.cursor).jobs]

    assert [job.id for job in page.jobs] == ids[:10]
    assert found == [*ids[10:12], *ids[13:]]


def test_only_jobs_whose_status_is_the_state_are_found(queue: Handle):
    ids = queue.enqueue_many(range(3))
    queue.redis.hset(queue.keys.job(ids[0]), "status", "failed")
    queue.redis.hdel(queue.keys.job(ids[1]), "status")

    assert every(queue, "pending") == ids[1:]

    queue.redis.hset(queue.keys.job(ids[0]), "status", "pending")
    queue.redis.hset(queue.keys.job(ids[1]), "status", "pending")


def test_a_call_examines_a_bounded_number_of_jobs(queue: Handle):
    queue.enqueue_many(range(1000))

    first = queue.inspector.find("pending", text="none", look=450)
    rest = queue.inspector.find("pending", text="none", cursor=first.cursor)

    assert (first.jobs, first.looked) == ((), 450)
    assert (rest.looked, rest.cursor) == (550, None)


def test_large_payloads_end_a_stretch_early(queue: Handle):
    ids = queue.enqueue_many(["x" * 200_000] * 12)

    assert every(queue, "pending", text="xx") == ids


def test_looking_changes_nothing(queue: Handle):
    failed(queue, [1, 2])
    queue.enqueue(1, delay=5)
    before = queue.dump()

    for state in ("pending", "delayed", "processing", "completed", "failed", "cancelled"):
        every(queue, state, text="x", task="y", older_than=1, newer_than=2, error="z")

    assert queue.dump() == before


@pytest.mark.parametrize(
    ("state", "wanted", "says"),
    [
        ("broken", {}, "state must be one of"),
        ("pending", {"task": ""}, "task must be a text"),
        ("pending", {"text": 7}, "text must be a text"),
        ("pending", {"older_than": -1}, "older_than must not be negative"),
        ("pending", {"limit": 0}, "limit must be"),
        ("pending", {"look": 0}, "look must be"),
        ("pending", {"look": 100_001}, "look must be"),
        ("pending", {"cursor": "x"}, "was not returned by `find`"),
        ("pending", {"cursor": "WyJmYWlsZWQiLCIxIiwiYSJd"}, "not for pending jobs"),
    ],
)
def test_invalid_arguments_are_refused(state: str, wanted: dict[str, object], says: str, queue: Handle):
    with pytest.raises(UsageError, match=says):
        queue.inspector.find(state, **wanted)
