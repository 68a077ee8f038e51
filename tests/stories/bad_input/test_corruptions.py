"""Whatever part of a stored job is damaged, no loop ends, other jobs continue, and the damaged one ends visibly.

The number of cases and their outcomes are printed in one line at the end of the run.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from schedq import Conflict, JobGone, current_job
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.state import State
from tests.stories.bad_input.damage import (
    FIELDS,
    GOOD,
    HARMLESS,
    KINDS,
    LISTED,
    STOP,
    WHOLE,
    Case,
    Fields,
    cases,
    put,
    samples,
)
from tests.stories.bad_input.tally import PROPERTY
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate


@pytest.fixture
def door() -> str:
    """A worker serves queues of either client."""
    return "blocking"


def write(queue: Handle, jobs: dict[str, Fields]) -> None:
    """Store jobs as they are."""
    with queue.server.client(decode_responses=False) as client, client.pipeline(transaction=False) as sent:
        for job_id, fields in jobs.items():
            sent.hset(queue.keys.job(job_id), mapping=fields)
        sent.execute()


def damage(queue: Handle, found: Iterable[Case]) -> None:
    """Damage each job as the case that it is named after says."""
    with queue.server.client() as client, client.pipeline(transaction=False) as sent:
        for case in found:
            key = queue.keys.job(case.id)
            if case.field != WHOLE and case.value is None:
                sent.hdel(key, case.field)
            elif case.field != WHOLE:
                sent.hset(key, case.field, case.value)
            else:
                put(sent, key, case.how)
        sent.execute()


def lay_out(queue: Handle, place: str, ids: list[str]) -> None:
    """Put ids where they belong."""
    if place == "delayed":
        queue.redis.zadd(queue.keys.delayed, dict.fromkeys(ids, time.time() * 1000))
    elif place == "lost":
        queue.redis.lpush(queue.keys.processing, *ids)
        queue.redis.zadd(queue.keys.leases, dict.fromkeys(ids, 1))
    else:
        queue.redis.lpush(queue.keys.prefix + place, *ids)


def ends(state: State, ids: Iterable[str], refused: set[str], ran: Counter[str]) -> dict[str, str]:
    """The outcome of each job, in the words of `Case.end`."""
    where = {job_id: place for place, held in state.places().items() for job_id in held}
    notes = {note["id"]: note["reason"] for note in map(json.loads, state.holds("broken", "list"))}
    words = {}
    for job_id in ids:
        place, fields = where.get(job_id, ""), state.job(job_id)
        if job_id in refused:
            words[job_id] = "refused by a verb" if not ran[job_id] else "refused, and run"
        elif job_id.startswith("completed-"):
            words[job_id] = LISTED if place == "completed" and not ran[job_id] else f"in {place}"
        elif place == "completed":
            words[job_id] = HARMLESS if ran[job_id] else LISTED
        elif place == "failed" and fields.get("last_error"):
            words[job_id] = "failed with the reason"
        elif place == "broken" and notes[job_id]:
            words[job_id] = "broken with the reason"
        elif place == "cancelled":
            words[job_id] = "cancelled"
        elif not place and not ran[job_id] and fields.get("status") in ("completed", "failed", "cancelled"):
            words[job_id] = "dropped and counted as a stray"
        else:
            words[job_id] = f"in {place or 'no place'}, {ran[job_id]} runs, status {fields.get('status')}"
    return words


def look_at_everything(queue: Handle) -> None:
    """No view fails."""
    assert queue.stats()["failed_depth"]
    for view in (
        queue.list_failed,
        queue.list_completed,
        queue.list_delayed,
        queue.list_processing,
        queue.list_pending,
    ):
        offset = 0
        while page := view(offset=offset, limit=1000):
            offset += len(page)
            assert all(json.dumps(record.result) and json.dumps(record.history) for record in page)


def serve(queue: Handle, gate: Gate) -> Counter[str]:
    """Accept any payload; returns how often each job ran to its end. Those in `running` wait for the gate."""
    ran: Counter[str] = Counter()

    async def run() -> None:
        job_id = current_job().id
        if job_id.startswith("running-"):
            await gate.passed()
        ran[job_id] += 1

    async def handle(payload: object) -> None:
        await run()

    queue.task(name="ok")(run)
    queue.handler(handle)
    return ran


def let_run(queue: Handle, ids: list[str], fields: Fields) -> None:
    """Let the worker claim these jobs like any others, and make their claims look adopted."""
    write(queue, dict.fromkeys(ids, fields))
    lay_out(queue, "pending", ids)
    until(lambda: queue.redis.llen(queue.keys.processing) == len(ids), within=180)
    claimed = queue.state()
    write(queue, {job_id: {"adopted_token": claimed.job(job_id)["claim_token"].encode()} for job_id in ids})


def unfinished(queue: Handle) -> int:
    """How many jobs wait or run; costs less than to read the state of thousands of jobs again and again."""
    keys = queue.keys
    with queue.redis.pipeline() as together:  # a job may move meanwhile
        together.llen(keys.pending).zcard(keys.held).zcard(keys.delayed).llen(keys.processing)
        return sum(together.execute())


def test_a_damaged_job_ends_visibly_and_disturbs_no_other(
    make_queue: MakeQueue, crew: Crew, gate: Gate, logs: Logs, caplog: pytest.LogCaptureFixture, record_property: Any
) -> None:
    queue = make_queue(visibility_ms=5000, max_attempts=20, completed_history=10_000)
    neighbor = make_queue(visibility_ms=3000)
    ran = serve(queue, gate)
    neighbor.task(name="ok")(lambda: "ok")
    found = samples(queue)
    assert {field for fields in found.values() for field in fields} == FIELDS
    # A job that is asked to stop shows that the damage to the others has been noticed, so it comes last.
    damaged = sorted(cases(found), key=lambda case: case.field == STOP)
    good = [Case(place, GOOD, str(number)) for place in found for number in range(10)]
    ids = {place: [case.id for case in (*damaged, *good) if case.place == place] for place in found}

    crew.start(queue, neighbor, debug=False, concurrency=1000)
    let_run(queue, ids.pop("running"), found["pending"])
    for place in ids:
        write(queue, dict.fromkeys(ids[place], found[place]))
    damage(queue, damaged)
    for place in ids:
        lay_out(queue, place, ids[place])
    look_at_everything(queue)
    refused = {job_id for job_id in (*ids["failed"], *ids["cancelled"]) if not queue.requeue(job_id)}
    assert neighbor.result(neighbor.enqueue({"task": "ok"}), 60) == "ok"
    asked = {case.id for case in damaged if (case.place, case.field) == ("running", STOP)}
    until(lambda: not asked & set(queue.redis.lrange(queue.keys.processing, 0, -1)), within=180)
    gate.open()
    until(lambda: not unfinished(queue), within=180)
    assert not queue.places().keys() & {"pending", "delayed", "processing"}

    assert crew.all_are_working
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    ended = ends(queue.state(), [case.id for case in (*damaged, *good)], refused, ran)
    assert {case.id: ended[case.id] for case in (*damaged, *good) if ended[case.id] != case.end} == {}
    assert set(ran.values()) == {1}
    assert queue.stats()["strays_total"] == sum(end.startswith("dropped") for end in ended.values())
    assert neighbor.result(neighbor.enqueue({"task": "ok"}), 60) == "ok"
    record_property(PROPERTY, dict(Counter(case.end for case in damaged)))

    queue.purge()
    assert queue.places() == {}
    assert queue.wait(queue.enqueue({"task": "ok"}), 60)
    queue.forget()  # jobs in no list were destroyed with their hash, or their status


def test_one_job_whose_key_is_of_another_type_is_named_to_callers_that_ask_for_it(make_queue: MakeQueue) -> None:
    queue = make_queue()
    for kind in KINDS:
        put(queue.redis, queue.keys.job("bad"), kind)

        if kind == "gone":
            assert queue.get_job("bad") is None
        else:
            with pytest.raises(Conflict, match=queue.keys.job("bad")):
                queue.get_job("bad")
        with pytest.raises(JobGone, match="bad"):
            queue.wait("bad", 1)
        assert queue.cancel("bad") == "no"
        assert not queue.requeue("bad")
        assert not queue.run_now("bad")
    queue.forget()
