"""Headers: short texts that go with a job from its producer to its handler."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from schedq import NewJob, UsageError, current_job
from schedq.inspect.export import exported
from schedq.model.headers import MOST_BYTES
from schedq.model.ids import new_request
from schedq.schedules.definition import define
from schedq.testing import as_job
from schedq.transitions import claim
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.schedules.scenes import HOUR, tick

HEADERS = {"tenant": "acme", "request id": "r-1 ü"}
STORED = '{"tenant":"acme","request id":"r-1 ü"}'


def task(queue: Handle, name: str = "send") -> Any:
    return queue.task(name=name)(lambda *args: dict(current_job().headers))


def test_a_job_has_the_headers_that_its_producer_gave_it(queue: Handle):
    job_id = queue.enqueue("mail", headers=HEADERS)

    job = queue.claim(0)

    assert job.headers == HEADERS
    assert queue.fields(job_id)["headers"] == STORED
    assert queue.get_job(job_id).headers == HEADERS


@pytest.mark.parametrize("headers", [None, {}])
def test_without_headers_nothing_is_stored(queue: Handle, headers: dict[str, str] | None):
    job_id = queue.enqueue("mail", headers=headers)

    job = queue.claim(0)

    assert job.headers == queue.get_job(job_id).headers == {}
    assert "headers" not in queue.fields(job_id)


def test_the_headers_of_a_job_can_not_be_changed(queue: Handle):
    queue.enqueue("mail", headers=HEADERS)
    job = queue.claim(0)

    with pytest.raises(TypeError):
        job.headers["tenant"] = "other"
    assert pickle.loads(pickle.dumps(job)) == copy.deepcopy(job) == job
    assert repr(job.headers) == repr(HEADERS)


def test_options_add_headers_to_those_given_before(queue: Handle):
    common = task(queue).options(headers={"tenant": "acme", "locale": "de"})

    own = common.options(delay=60).options(headers={"locale": "fr"})

    assert own.with_args().headers == {"tenant": "acme", "locale": "fr"}
    assert common.with_args().headers == {"tenant": "acme", "locale": "de"}
    assert task(queue, "other").with_args().headers is None


def test_options_keep_a_copy_of_the_headers(queue: Handle):
    headers = {"tenant": "acme"}
    known = task(queue).options(headers=headers)

    headers["tenant"] = "other"

    assert known.with_args().headers == {"tenant": "acme"}


def test_headers_go_with_a_task_to_another_queue(make_queue: MakeQueue):
    one, other = make_queue(), make_queue()
    sent = task(one).options(headers=HEADERS)
    task(other)

    assert sent.options(queue=other.queue).with_args().headers == HEADERS


def test_the_jobs_of_a_call_share_headers_and_may_have_their_own(queue: Handle):
    ids = queue.enqueue_many(
        ["plain", NewJob("more", headers={"locale": "fr"}), NewJob("other", headers={"tenant": "none"})],
        headers={"tenant": "acme"},
    )

    assert [queue.get_job(job_id).headers for job_id in ids] == [
        {"tenant": "acme"},
        {"tenant": "acme", "locale": "fr"},
        {"tenant": "none"},
    ]


def test_the_calls_of_a_task_share_headers_and_may_have_their_own(queue: Handle):
    known = task(queue)

    jobs = known.options(headers={"tenant": "acme"}).enqueue_many(
        [((), {}), known.with_args(), known.options(headers={"locale": "fr"}).with_args()]
    )

    assert [queue.get_job(job.id).headers for job in jobs] == [
        {"tenant": "acme"},
        {"tenant": "acme"},
        {"tenant": "acme", "locale": "fr"},
    ]


def test_headers_stay_whatever_becomes_of_the_job(queue: Handle):
    job_id = queue.enqueue("mail", headers=HEADERS)
    found = []
    for end in (queue.release, lambda job: queue.snooze(job, 0), queue.fail, queue.complete):
        job = queue.claim(60_000)
        found.append(job.headers)
        assert end(job)

    assert found == [HEADERS] * 4
    assert queue.get_job(job_id).headers == HEADERS


def test_a_requeued_job_keeps_its_headers(queue: Handle):
    job_id = queue.enqueue("mail", headers=HEADERS)
    queue.cancel(job_id)

    queue.requeue(job_id)

    assert queue.claim(0).headers == HEADERS


def test_a_job_that_lost_its_lease_keeps_its_headers(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.enqueue("mail", headers=HEADERS)
    queue.claim(0)
    clock.pass_time(11)
    queue.reclaim_stuck()

    assert queue.claim(0).headers == HEADERS


def test_jobs_of_a_lost_claim_reply_are_recovered_with_their_headers(queue: Handle):
    queue.enqueue_many([NewJob(1, headers=HEADERS), 2])
    request = new_request()
    claimed = queue._ask(claim.claim(queue.settings, request, 2)).jobs

    found = queue.drive(claim.recover(queue.settings, request))

    assert found == list(claimed)
    assert [job.headers for job in found] == [HEADERS, {}]


def test_headers_arrive_next_to_the_other_fields_that_few_jobs_have(queue: Handle):
    job_id = queue.enqueue("mail", headers=HEADERS)
    queue.redis.hset(queue.keys.job(job_id), mapping={"trace": "00-a-b-01", "unknown_since_ms": 7})

    job = queue.claim(0)

    assert (job.trace, job.unknown_since_ms, job.headers) == ("00-a-b-01", 7, HEADERS)


def test_the_same_id_and_payload_with_other_headers_is_the_same_job(queue: Handle):
    for headers in ({"request": "1"}, {"request": "2"}, None):
        queue.enqueue("mail", job_id="mail-1", headers=headers)

    assert queue.get_job("mail-1").headers == {"request": "1"}


def test_a_job_that_replaces_another_has_its_own_headers(queue: Handle):
    queue.enqueue("mail", job_id="mail-1", headers={"request": "1"})
    queue.complete(queue.claim(0))
    queue.enqueue("mail", job_id="mail-1", reuse_id=True)

    assert queue.claim(0).headers == {}


# -- what is refused


@pytest.mark.parametrize(
    ("headers", "what"),
    [
        ("tenant", "headers must be a dict of texts, such as {'tenant': 'acme'}, got 'tenant'"),
        ([("tenant", "acme")], "headers must be a dict of texts"),
        ("", "headers must be a dict"),
        ({"tenant": 7}, r"header 'tenant' must be a text, got 7; convert it with str\(\)"),
        ({"tenant": None}, "header 'tenant' must be a text, got None"),
        ({7: "acme"}, "name must be 1 to 200 printable characters, got 7"),
        ({"": "acme"}, "name must be 1 to 200 printable characters, got ''"),
        ({"a\n": "acme"}, "name must be 1 to 200 printable characters"),
        ({"a" * 201: "acme"}, "name must be 1 to 200 printable characters"),
        ({"tenant": "\ud800"}, "header 'tenant' has a lone surrogate"),
        ({"tenant": "x" * MOST_BYTES}, r"headers are 4,1\d\d bytes of JSON, more than 4,096"),
        ({"tenant": "ü" * (MOST_BYTES // 2)}, r"headers are 4,1\d\d bytes of JSON, more than 4,096"),
    ],
)
def test_invalid_headers_are_refused_and_nothing_is_stored(queue: Handle, headers: Any, what: str):
    known = task(queue)
    calls = (
        lambda: queue.enqueue("mail", headers=headers),
        lambda: queue.enqueue_many(["mail"], headers=headers),
        lambda: queue.enqueue_many(["mail", NewJob("mail", headers=headers)]),
        lambda: queue.enqueue_many([NewJob("mail", headers=headers)], headers={"locale": "de"}),
        lambda: known.options(headers={"locale": "de"}).options(headers=headers),
        lambda: queue.schedules.upsert("tick", every=60, payload="tick", headers=headers),
        lambda: queue.schedules.upsert("tick", every=60, task=known.options(headers=HEADERS), headers=headers),
    )

    for call in calls:
        with pytest.raises(UsageError, match=what):
            call()

    assert queue.places() == {}
    assert queue.schedules.list() == []


def test_headers_of_the_greatest_size_go_through(queue: Handle):
    headers = {"tenant": "x" * (MOST_BYTES - len('{"tenant":""}'))}
    queue.enqueue("mail", headers=headers)

    assert queue.claim(0).headers == headers


def test_many_jobs_with_large_headers_go_through(queue: Handle):
    headers = {"tenant": "x" * 4000}

    queue.enqueue_many(range(500), headers=headers)

    assert queue.stats()["pending_depth"] == 500
    assert queue.claim(0).headers == headers


# -- what other programs write


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tenant",
        "null",
        "7",
        "[]",
        '"acme"',
        '{"tenant": 7}',
        '{"tenant": {"a": "b"}}',
        '{"": "acme"}',
        '{"a\\nb": "acme"}',
        '{"tenant": "\\ud800"}',
        '{"tenant": "acme"',
        b'{"tenant": "\xff"}',
        '{"tenant": "' + "x" * MOST_BYTES + '"}',
        "[" * 4000,
        "x" * 1_000_000,
    ],
    ids=lambda text: repr(text)[:30],
)
def test_invalid_stored_headers_count_as_none_and_block_no_job(queue: Handle, text: str | bytes):
    job_id = queue.enqueue("mail", headers=HEADERS)
    queue.redis.hset(queue.keys.job(job_id), "headers", text)

    job = queue.claim(0)

    assert (job.id, job.payload, job.headers) == (job_id, "mail", {})
    record = queue.get_job(job_id)
    assert record.headers == {}
    assert record.fields["headers"].encode(errors="surrogateescape") == (
        text if isinstance(text, bytes) else text.encode()
    )
    assert "headers" not in exported(record, "processing")


def test_another_program_may_give_a_job_headers(queue: Handle):
    queue.redis.hset(queue.keys.job("theirs"), mapping={"payload": "1", "headers": '{ "tenant" : "\\u00fc" }'})
    queue.redis.lpush(queue.keys.pending, "theirs")
    queue.redis.hset(queue.keys.stats, "enqueued_total", 1)

    assert queue.claim(0).headers == {"tenant": "ü"}


# -- export and import


def test_an_imported_job_has_its_headers(make_queue: MakeQueue):
    old, new = make_queue(), make_queue()
    waits, done = old.enqueue("waits", headers=HEADERS), old.enqueue("done", headers=HEADERS, job_id="done")
    entries = [exported(old.get_job(waits), "pending"), exported(old.get_job(done), "completed")]

    assert entries[0]["headers"] == HEADERS
    bad = {**entries[0], "id": "bad", "headers": {"tenant": 7}}
    found = new.inspector.import_jobs([*entries, bad], finished=True)

    assert (found.stored, found.refused) == (2, {2: "header 'tenant' must be a text, got 7; convert it with str()"})
    assert new.get_job(waits).headers == new.get_job(done).headers == HEADERS


# -- schedules


def test_every_job_of_a_schedule_has_its_headers(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.schedules.upsert("tick", every=HOUR, payload="tick", headers=HEADERS)
    queue.schedules.upsert("tock", every=HOUR, payload="tock")
    start = clock.now
    clock.pass_time(HOUR)

    tick(queue)
    queue.schedules.trigger("tick")
    queue.schedules.backfill("tick", start - 2 * HOUR, start, rate=10_000)

    found = [record for record in (*queue.list_pending(), *queue.list_delayed()) if record.payload == "tick"]
    assert len(found) >= 4
    assert {record.fields.get("headers") for record in found} == {STORED}
    assert [record.headers for record in queue.list_pending() if record.payload == "tock"] == [{}]


def test_headers_belong_to_the_definition_of_a_schedule(queue: Handle):
    def upsert(**options: Any) -> str:
        found: str = queue.schedules.upsert("tick", every=HOUR, payload="tick", **options)
        return found

    assert upsert(headers=HEADERS) == "created"
    slot = queue.schedules.get("tick").next_slot_ms
    assert upsert(headers=dict(HEADERS)) == "unchanged"
    assert upsert(headers={"tenant": "other"}) == "changed"
    assert upsert() == "changed"

    record = queue.schedules.get("tick")
    assert "headers" not in record.fields
    assert record.next_slot_ms == slot


def test_definitions_without_headers_keep_the_digest_that_they_had_before(queue: Handle):
    assert define("tick", "1", every=60, options={}).digest == "5bbd901b1837b86f"
    assert define("tick", "1", every=60, options={"expires": 5}).digest == "b07b398adc3279ea"


def test_a_schedule_in_code_has_headers_from_its_task_and_its_own(queue: Handle):
    known = task(queue)
    queue.cron("0 3 * * *", id="own", headers=HEADERS)(known)
    queue.every(HOUR, id="both", headers={"locale": "fr"})(known.options(headers={"tenant": "acme", "locale": "de"}))
    queue.every(HOUR, id="none")(known)
    queue.schedules.register()

    assert queue.schedules.get("own").fields["headers"] == STORED
    assert queue.schedules.get("both").fields["headers"] == '{"tenant":"acme","locale":"fr"}'
    assert "headers" not in queue.schedules.get("none").fields


def test_a_schedule_with_damaged_headers_reports_it(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.schedules.upsert("tick", every=HOUR, payload="tick", headers=HEADERS)
    queue.redis.hset(queue.keys.schedule("tick"), "headers", "what is this")
    clock.pass_time(HOUR)

    tick(queue)

    record = queue.schedules.get("tick")
    assert (record.state, queue.places()) == ("damaged", {})
    assert record.error == "headers are 'what is this', which is not a valid JSON object of texts"


# -- tests of applications


def test_a_task_can_be_called_as_a_job_with_headers(queue: Handle):
    known = task(queue)

    with as_job(headers=HEADERS):
        assert known() == HEADERS
    with as_job():
        assert known() == {}
    with pytest.raises(UsageError, match="header 'tenant' must be a text"), as_job(headers={"tenant": 7}):  # type: ignore[dict-item]
        pass
