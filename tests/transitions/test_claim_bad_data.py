"""Bad data never runs, is never dropped and never stops a claim; data from other programs is understood."""

from __future__ import annotations

import pytest

from schedq import Conflict, Discard
from schedq.model.ids import new_request
from schedq.transitions import claim
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle

FOREIGN = "another program made the job"


def raw_job(queue: Handle, job_id: str, **fields: str) -> str:
    """A job as another program writes it: its hash, then its id."""
    if fields:
        queue.redis.hset(queue.keys.job(job_id), mapping=fields)
    queue.redis.lpush(queue.keys.pending, job_id)
    return job_id


# -- jobs of other programs


@pytest.mark.breaks("totals", because=FOREIGN)
def test_a_job_with_nothing_but_a_payload_is_run(queue: Handle):
    raw_job(queue, "theirs", payload='{"n":1}')

    job = queue.claim(0)

    assert (job.id, job.payload, job.attempts, job.max_attempts, job.enqueued_at_ms) == ("theirs", {"n": 1}, 1, None, 0)
    assert queue.complete(job, "done")
    assert queue.places() == {"completed": ["theirs"]}
    assert queue.get_job("theirs").result == "done"


@pytest.mark.breaks("totals", because=FOREIGN)
def test_a_job_written_as_in_the_guide_is_run_and_retried(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    raw_job(
        queue,
        "cfed2b7e8fd84bb0a4f8e6d3b1f7ab11",
        id="cfed2b7e8fd84bb0a4f8e6d3b1f7ab11",
        payload='{"kind": "email", "to": "ada@example.org"}',
        status="pending",
        attempts="0",
        enqueued_at_ms="1799999999000",
        claim_token="",
        claimed_at_ms="0",
    )

    job = queue.claim(0)
    queue.fail(job, "smtp timeout")

    assert job.payload == {"kind": "email", "to": "ada@example.org"}
    assert job.enqueued_at_ms == 1_799_999_999_000
    assert queue.places() == {"delayed": [job.id]}
    assert queue.get_job(job.id).last_error == "smtp timeout"


@pytest.mark.breaks("totals", because=FOREIGN)
@pytest.mark.parametrize(
    "fields",
    [
        {"attempts": "garbage"},
        {"attempts": "-3"},
        {"attempts": "1e400"},
        {"attempts": "nan"},
        {"max_attempts": "many"},
        {"max_attempts": "0"},
        {"backoff": "{}"},
        {"backoff": '{"kind":"fixed","delay":-1}'},
        {"backoff": "[" * 3000},
        {"timeout_ms": "soon"},
        {"crashes": "inf"},
        {"enqueued_at_ms": "yesterday"},
        {"run_at_ms": "1.5"},
        {"claimed_at_ms": ""},
        {"status": "what is this"},
        {"status": "processing", "claim_token": "left behind"},
        {"status": "delayed"},
        {"history": "no json\n{"},
        {"released": "x"},
        {"waiter": "nobody"},
        {"worker": "\x00\xff"},
    ],
    ids=repr,
)
def test_fields_that_make_no_sense_do_not_stop_a_job(make_queue: MakeQueue, fields: dict[str, str]):
    queue = make_queue(visibility_ms=1000)
    raw_job(queue, "theirs", payload="1", **fields)

    job = queue.claim(0)

    assert (job.id, job.payload, job.attempts) == ("theirs", 1, 1)
    assert queue.renew(job)
    assert queue.release(job)
    job = queue.claim(0)
    queue.redis.zadd(queue.keys.leases, {"theirs": 1})
    assert queue.reclaim_stuck() == ["theirs"]
    assert not queue.complete(job)
    assert queue.get_job("theirs").payload == 1
    assert queue.fail(queue.claim(0), Discard())
    assert queue.places() == {"failed": ["theirs"]}


def test_an_expiry_that_another_program_set_ends_with_the_claim(queue: Handle):
    """The guide gives a failed job a TTL of 300 s; a program that requeues it may forget to remove that."""
    job_id = queue.enqueue(1)
    queue.redis.expire(queue.keys.job(job_id), 300)

    queue.claim(0)

    assert queue.redis.ttl(queue.keys.job(job_id)) == -1


# -- payloads that can't be read


@pytest.mark.breaks("totals", because=FOREIGN)
@pytest.mark.parametrize(
    "text", ["", "{", "undefined", "NaN", "[" * 100_000, '"\ud800"', "{}x"], ids=lambda text: text[:9]
)
def test_an_unreadable_payload_is_never_run_and_ends_in_failed_with_the_reason(queue: Handle, text: str):
    fields = {"payload": text.encode("utf-8", "surrogatepass")}
    queue.redis.hset(queue.keys.job("bad"), mapping=fields)
    queue.redis.lpush(queue.keys.pending, "bad")
    good = queue.enqueue("good")

    assert queue.claim(0).id == good

    record = queue.get_job("bad")
    assert queue.places() == {"processing": [good], "failed": ["bad"]}
    assert (record.status, record.payload) == ("failed", None)
    assert record.last_error.startswith("unreadable payload: ")
    with queue.server.client(decode_responses=False) as client:
        assert client.hget(queue.keys.job("bad"), "payload") == fields["payload"]


@pytest.mark.breaks("totals", because=FOREIGN)
def test_a_job_without_a_payload_is_never_run_and_ends_in_failed(queue: Handle):
    raw_job(queue, "empty", status="pending")

    assert queue.claim(0) is None

    assert queue.places() == {"failed": ["empty"]}
    assert queue.get_job("empty").last_error == "unreadable payload: there is none"
    assert queue.state().totals() == {"failed_total": 1}


# -- ids whose data is gone or of the wrong type


def test_an_id_without_data_is_noted_as_broken_and_no_hash_is_made(queue: Handle):
    gone = queue.enqueue("gone")
    queue.redis.delete(queue.keys.job(gone))
    good = queue.enqueue("good")

    assert queue.claim(0).id == good

    assert queue.places() == {"processing": [good], "broken": [gone]}
    assert queue.fields(gone) == {}
    assert queue.state().totals()["broken_total"] == 1


@pytest.mark.breaks("layout", because="the string at a job's key is another program's")
def test_an_id_whose_key_is_not_a_hash_is_noted_as_broken_and_not_touched(queue: Handle):
    bad, good = queue.enqueue_many(["bad", "good"])
    queue.redis.set(queue.keys.job(bad), "what is this")

    assert queue.claim(0).id == good

    assert queue.places() == {"processing": [good], "broken": [bad]}
    assert queue.redis.get(queue.keys.job(bad)) == "what is this"


@pytest.mark.breaks("totals", because=FOREIGN)
@pytest.mark.parametrize("job_id", ["a:b", "", "x" * 65, "ä", "a b", "*"])
def test_an_id_that_breaks_the_rule_is_noted_as_broken(queue: Handle, job_id: str):
    raw_job(queue, job_id)

    assert queue.claim(0) is None

    assert queue.places() == {"broken": [job_id]}


@pytest.mark.breaks("totals", because="notes are capped, what they counted is not")
def test_notes_about_broken_ids_are_capped(queue: Handle):
    ids = queue.enqueue_many(range(1100))
    queue.redis.delete(*[queue.keys.job(job_id) for job_id in ids])

    assert queue.claim(0) is None

    assert queue.state().ids("broken") == ids[-1000:]
    assert queue.stats()["broken_total"] == 1100


# -- second entries and strays


def test_a_second_entry_of_an_id_is_dropped_and_counted(queue: Handle):
    job_id = queue.enqueue(1)
    queue.redis.lpush(queue.keys.pending, job_id, job_id)

    assert queue.claim(0).id == job_id
    assert queue.claim(0) is None

    assert queue.places() == {"processing": [job_id]}
    assert queue.state().totals() == {"enqueued_total": 1, "strays_total": 2}


def test_a_batch_never_holds_a_job_twice(queue: Handle):
    job_id = queue.enqueue(1)
    queue.redis.lpush(queue.keys.pending, job_id)

    found = queue._ask(claim.claim(queue.settings, new_request(), 10))

    assert [(job.id, job.attempts) for job in found.jobs] == [(job_id, 1)]
    assert queue.places() == {"processing": [job_id]}


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "delayed"])
def test_an_entry_of_a_job_that_is_elsewhere_is_dropped_and_the_job_left_alone(queue: Handle, end: str):
    job_id = queue.enqueue(1)
    if end == "cancelled":
        queue.cancel(job_id)
    else:
        job = queue.claim(0)
        {"completed": queue.complete, "failed": lambda job: queue.fail(job, Discard()), "delayed": queue.fail}[end](job)
    before = queue.dump()
    queue.redis.lpush(queue.keys.pending, job_id)

    assert queue.claim(0) is None

    after = queue.dump()
    assert queue.places() == {end: [job_id]}
    assert after[queue.keys.job(job_id)] == before[queue.keys.job(job_id)]
    assert queue.stats()["strays_total"] == 1


def test_very_many_bad_entries_are_cleared_in_small_steps_and_hide_nothing(queue: Handle):
    done = queue.enqueue("done")
    queue.complete(queue.claim(0))
    queue.redis.lpush(queue.keys.pending, *[done] * 5000)
    good = queue.enqueue("good")

    with queue.server.requests() as sent:
        assert queue.claim(0).id == good

    assert len(sent) > 10
    assert queue.places() == {"completed": [done], "processing": [good]}


@pytest.mark.breaks("layout", because="the list at `leases` is another program's")
def test_a_queue_key_of_the_wrong_type_is_reported_and_nothing_is_lost(queue: Handle):
    job_id = queue.enqueue(1)
    queue.redis.rpush(queue.keys.leases, "what is this")
    before = queue.dump()

    with pytest.raises(Conflict, match=queue.keys.leases):
        queue.claim(0)

    assert queue.dump() == before
    assert queue.places() == {"pending": [job_id]}


@pytest.mark.breaks("layout", because="the string at this key is another program's")
@pytest.mark.parametrize("name", ["wake", "log"])
def test_damaged_keys_that_only_inform_do_not_stop_a_job(queue: Handle, name: str):
    job_id = queue.enqueue(1)
    queue.redis.delete(getattr(queue.keys, name))
    queue.redis.set(getattr(queue.keys, name), "what is this")

    assert queue.complete(queue.claim(0))

    assert queue.places() == {"completed": [job_id]}


@pytest.mark.breaks("layout", "totals", because="the string at `stats` is another program's")
def test_totals_that_are_damaged_do_not_stop_a_job(queue: Handle):
    job_id = queue.enqueue(1)
    queue.redis.set(queue.keys.stats, "what is this")

    assert queue.complete(queue.claim(0))

    assert queue.places() == {"completed": [job_id]}
    with pytest.raises(Conflict, match=queue.keys.stats):
        queue.stats()
