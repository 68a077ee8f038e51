"""Damaged definitions, others' data and keys of the wrong type never run, are never dropped, and stop no others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedq import Conflict, UsageError
from schedq.schedules.definition import DEFINITION_FIELDS
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.schedules.scenes import MINUTE, ids, jobs, tick

JUNK = ["", "junk", "-1", "1e400", "nan", b"\x00\xff", "9" * 400, "[]", "☃"]
OURS = ("last_slot_ms", "last_job_id", "last_fired_at_ms", "runs", "request", "parked_ms", "id", "created_at_ms")


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    queue = make_queue(clock=clock)
    options: dict[str, Any] = {"max_runs": 9, "max_attempts": 3, "timeout": 5, "jitter": 1, "window": 600}
    end = clock() + 10**6
    queue.schedules.upsert("report", every=MINUTE, payload=1, owner="me", version=1, end=end, start=60, **options)
    queue.schedules.upsert("other", every=MINUTE, payload=2)
    return queue


def state_of(queue: Handle) -> str:
    state: str = queue.schedules.get("report").state
    return state


@pytest.mark.parametrize("field", [*DEFINITION_FIELDS, *OURS])
def test_a_damaged_field_ends_in_a_job_or_in_a_visible_note_and_others_go_on(queue: Handle, clock: Clock, field: str):
    key = queue.keys.schedule("report")
    whole = queue.redis.hgetall(key)
    entry = queue.redis.zscore(queue.keys.schedules, "report")
    for number, junk in enumerate([*JUNK, None]):
        queue.redis.hset(key, mapping=whole | ({} if junk is None else {field: junk}))
        if junk is None:
            queue.redis.hdel(key, field)
        queue.redis.zadd(queue.keys.schedules, {"report": entry + 60_000 * number})
        clock.pass_time(MINUTE)

        tick(queue)

        assert ids("other", number + 1)[0] in jobs(queue)
        was_fired = ids("report", number + 1)[0] in jobs(queue)
        assert was_fired or state_of(queue) in ("damaged", "ended") or queue.schedules.get("report").slots, junk
        queue.schedules.list()
        queue.redis.hdel(key, "error")


@pytest.mark.parametrize("junk", ["1.5", "-5", "-inf", "0", "1e17"])
def test_an_invalid_score_is_skipped_or_fired_and_the_next_one_is_valid(queue: Handle, clock: Clock, junk: str):
    queue.redis.execute_command("ZADD", queue.keys.schedules, junk, "report")
    clock.pass_time(MINUTE)

    tick(queue)
    tick(queue)

    upcoming = queue.schedules.get("report").next_slot_ms
    assert upcoming == (int(float(junk)) if junk == "1e17" else clock.now_ms + 60_000) or junk == "1e17"
    assert ids("other", 1)[0] in jobs(queue)


def test_a_damaged_definition_is_disabled_until_it_is_stored_again(queue: Handle, clock: Clock):
    key = queue.keys.schedule("report")
    queue.redis.hset(key, mapping={"every_ms": "often", "definition": "by hand"})
    clock.pass_time(MINUTE)

    found = tick(queue)

    assert found.disabled[0][0] == "report"
    record = queue.schedules.get("report")
    assert (record.state, record.next_slot_ms) == ("damaged", None)
    assert "every_ms" in record.error
    assert tick(queue).disabled == ()
    with pytest.raises(UsageError, match="damaged"):
        queue.schedules.resume("report")
    with pytest.raises(UsageError, match="damaged"):
        queue.schedules.next_slots("report")
    assert queue.schedules.upsert("report", every=MINUTE, payload=1, version=1) == "changed"
    clock.pass_time(MINUTE)
    tick(queue)
    assert ids("report", 2)[0] in jobs(queue)


def test_a_repaired_definition_is_resumed_from_now(queue: Handle, clock: Clock):
    key = queue.keys.schedule("report")
    queue.redis.hdel(key, "payload")
    clock.pass_time(MINUTE)
    tick(queue)
    assert state_of(queue) == "damaged"
    assert queue.schedules.trigger("report") is None

    queue.redis.hset(key, "payload", "1")
    clock.pass_time(MINUTE)

    assert queue.schedules.resume("report")
    assert queue.schedules.get("report").slots[0].why == "damaged"
    clock.pass_time(MINUTE)
    tick(queue)
    assert [name for name in jobs(queue) if name.startswith("report")] == ids("report", 3)


FOREIGN = ["report:slots", "x" * 49, "", "a b", b"\xff\xfe", "*", "nobody"]


@pytest.mark.breaks("layout", because="foreign ids make unknown keys")
@pytest.mark.parametrize("name", FOREIGN[:1])
def test_an_entry_that_names_another_key_is_removed_and_noted(queue: Handle, clock: Clock, name: str):
    queue.redis.set(queue.keys.schedule("thing") + ":of:others", "x")
    assert kept_and_noted(queue, clock, name) == ({"report", "other"}, f"schedule:{name}")


@pytest.mark.parametrize("name", FOREIGN[1:])
def test_an_entry_without_a_definition_is_removed_and_noted(queue: Handle, clock: Clock, name: Any):
    shown = name if isinstance(name, str) else name.decode(errors="surrogateescape")
    assert kept_and_noted(queue, clock, name) == ({"report", "other"}, f"schedule:{shown}")


def kept_and_noted(queue: Handle, clock: Clock, name: Any) -> tuple[set[str], str]:
    """Add a foreign entry, and fire what is due; returns the names that are kept, and the id that is noted."""
    queue.redis.zadd(queue.keys.schedules, {name: clock.now_ms})
    assert len(queue.schedules.list()) == 3
    clock.pass_time(MINUTE)

    tick(queue)

    assert len(jobs(queue)) == 2
    (note,) = queue.redis.lrange(queue.keys.broken, 0, -1)
    return set(queue.state().holds("schedules", "zset")), json.loads(note)["id"]


@pytest.mark.breaks("layout", "schedules", because="a key of another program is in the place of a schedule's")
@pytest.mark.parametrize("kind", ["string", "list"])
def test_a_definition_of_the_wrong_type_is_noted_and_left(queue: Handle, clock: Clock, kind: str):
    key = queue.keys.schedule("report")
    queue.redis.delete(key)
    (queue.redis.set if kind == "string" else queue.redis.rpush)(key, "theirs")
    assert queue.schedules.list()
    clock.pass_time(MINUTE)

    tick(queue)

    assert queue.redis.type(key) == kind
    assert jobs(queue) == ids("other", 1)
    assert len(queue.list_broken()) == 1
    with pytest.raises(Conflict):
        queue.schedules.upsert("report", every=MINUTE, payload=1)
    queue.redis.zadd(queue.keys.schedules, {"report": "+inf"})


@pytest.mark.breaks("layout", because="a key of another program is in the place of the slots")
def test_slots_of_the_wrong_type_stop_nothing(queue: Handle, clock: Clock):
    queue.redis.set(queue.keys.slots("report"), "theirs")
    clock.pass_time(MINUTE)

    assert tick(queue).jobs == 2
    assert queue.schedules.get("report").slots == ()


@pytest.mark.breaks("layout", "schedules", because="a key of another program is in the place of the schedules")
def test_schedules_of_the_wrong_type_are_named_and_jobs_go_on(queue: Handle, clock: Clock):
    queue.redis.delete(queue.keys.schedules)
    queue.redis.set(queue.keys.schedules, "theirs")
    job_id = queue.enqueue(1, delay=1)
    clock.pass_time(MINUTE)

    assert queue.promote_due() == 1
    assert queue.claim(0).id == job_id
    with pytest.raises(Conflict, match="schedules"):
        tick(queue)
    with pytest.raises(Conflict, match="schedules"):
        queue.schedules.upsert("report", every=MINUTE, payload=1)


def test_history_that_is_not_json_is_skipped(queue: Handle, clock: Clock):
    clock.pass_time(MINUTE)
    tick(queue)
    queue.redis.lpush(queue.keys.slots("report"), "junk", "[]", "{", '{"slot_ms": "x"}')

    slots = queue.schedules.get("report").slots
    assert [slot.outcome for slot in slots] == ["", "fired"]
    queue.redis.ltrim(queue.keys.slots("report"), 4, -1)
