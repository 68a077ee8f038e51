"""A slot whose last run has not ended: decided by the state of that run's job, in the script that enqueues."""

from __future__ import annotations

import pytest

from schedq.schedules.fire import DefinitionCache
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.schedules.scenes import MINUTE, account, complete_all, ids, jobs, tick


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock, visibility_ms=3_600_000)


def after_a_first_run(queue: Handle, clock: Clock, state: str, **options: object) -> None:
    """A schedule whose first slot's job is in a state, and whose second slot has just come."""
    queue.schedules.upsert("report", every=MINUTE, payload=1, **options)
    clock.pass_time(MINUTE)
    tick(queue)
    if state != "pending":
        job = queue.claim(0)
    if state == "delayed":
        queue.snooze(job, 600)
    if state == "completed":
        queue.complete(job)
    if state == "gone":
        queue.purge()
    clock.pass_time(MINUTE)


ACTIVE = ("pending", "delayed", "processing")
ENDED = ("completed", "gone")


@pytest.mark.parametrize("state", [*ACTIVE, *ENDED])
def test_allow_makes_another_whatever_the_last_run_does(queue: Handle, clock: Clock, state: str):
    after_a_first_run(queue, clock, state)

    assert tick(queue).jobs == 1


@pytest.mark.parametrize("state", [*ACTIVE, *ENDED])
def test_skip_leaves_the_slot_out_while_the_last_run_has_not_ended(queue: Handle, clock: Clock, state: str):
    after_a_first_run(queue, clock, state, overlap="skip")

    assert tick(queue).jobs == (state in ENDED)
    assert account(queue, "report")[-1] == (2, "fired" if state in ENDED else "skipped", 1)
    if state in ACTIVE:
        assert queue.schedules.get("report").slots[0].why == f"the last run is {state}"
        assert queue.schedules.get("report").runs == 1


@pytest.mark.parametrize("state", [*ACTIVE, *ENDED])
def test_cancel_running_stops_the_last_run_and_makes_another(queue: Handle, clock: Clock, state: str):
    after_a_first_run(queue, clock, state, overlap="cancel_running")

    assert tick(queue).jobs == 1

    if state in ("pending", "delayed"):
        assert queue.places() == {"pending": ids("report", 2), "cancelled": ids("report", 1)}
    if state == "processing":
        assert queue.places() == {"pending": ids("report", 2), "processing": ids("report", 1)}
        assert "stop" in queue.fields(ids("report", 1)[0])


@pytest.mark.parametrize("state", [*ACTIVE, *ENDED])
def test_queue_one_runs_the_last_slot_once_the_last_run_has_ended(queue: Handle, clock: Clock, state: str):
    after_a_first_run(queue, clock, state, overlap="queue_one")
    memory = DefinitionCache()

    found = tick(queue, memory)
    if state in ENDED:
        assert found.jobs == 1
        return
    assert (found.jobs, found.deferred) == (0, ("report",))
    clock.pass_time(2 * MINUTE)
    assert tick(queue, memory).jobs == 0
    queue.purge()
    assert tick(queue, memory).jobs == 1

    assert jobs(queue) == ids("report", 4)
    assert account(queue, "report") == [(1, "fired", 1), (2, "coalesced", 2), (4, "fired", 1)]


def test_what_waits_for_its_last_run_waits_no_longer_than_its_window(queue: Handle, clock: Clock):
    after_a_first_run(queue, clock, "processing", overlap="queue_one", window=30)
    assert tick(queue).jobs == 0
    clock.pass_time(31)
    tick(queue)
    queue.purge()

    assert tick(queue).jobs == 0
    assert account(queue, "report")[-1] == (2, "skipped", 1)


def test_all_missed_slots_and_skip_run_the_first(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1, catch_up="all", overlap="skip")
    clock.pass_time(3 * MINUTE)
    tick(queue)

    assert jobs(queue) == ids("report", 1)
    assert account(queue, "report") == [(1, "fired", 1), (2, "skipped", 1), (3, "skipped", 1)]


def test_a_trigger_counts_as_the_last_run(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1, overlap="skip")
    queue.schedules.trigger("report")
    clock.pass_time(MINUTE)

    assert tick(queue).jobs == 0
    complete_all(queue)
    clock.pass_time(MINUTE)
    assert tick(queue).jobs == 1


def test_waiting_schedules_do_not_block_others(queue: Handle, clock: Clock):
    for number in range(250):
        queue.schedules.upsert(f"waits-{number}", every=MINUTE, payload=1, overlap="queue_one")
    queue.schedules.upsert("late", every=2 * MINUTE, payload=1)
    memory = DefinitionCache()
    clock.pass_time(MINUTE)
    assert tick(queue, memory).jobs == 250
    clock.pass_time(MINUTE)

    found = tick(queue, memory)

    assert found.jobs == 1
    assert len(found.deferred) == 250
