"""Workers of an old and a new release at the same time: which definition of a schedule applies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedq.background import registrar
from schedq.schedules.register import register, restore
from schedq.transitions import heartbeat
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.waiting import until
from tests.worker.conftest import Logs, crew, gate, logs
from tests.worker.crew import Crew

__all__ = ["crew", "gate", "logs"]
HOUR = 3600


def work() -> None:
    """The scheduled function."""


@pytest.fixture
def old(make_queue: MakeQueue, clock: Clock) -> Handle:
    """The old release: every hour."""
    return released(make_queue(clock=clock), HOUR)


@pytest.fixture
def new(make_queue: MakeQueue, old: Handle, clock: Clock) -> Handle:
    """The new one: every two hours."""
    return released(make_queue(old.name, clock=clock), 2 * HOUR)


def released(queue: Handle, seconds: int, **options: int) -> Handle:
    queue.every(seconds, **options)(work)
    return queue


def starts(release: Handle, worker: str) -> Any:
    """Start a worker of a release; returns the result for its schedules."""
    facts = {"definitions": json.dumps(release.registry.definitions)}
    release.execute([heartbeat.beat(release.settings, worker, facts)])
    registry = release.registry
    return release.drive(register(release.settings, registry.schedules, registry.owners, unless_superseded=True))


def leaves(release: Handle, worker: str) -> None:
    release.execute([heartbeat.leave(release.settings, worker, "")])


def stored(release: Handle) -> str:
    found: str = release.redis.hget(release.keys.schedule("work"), "every_ms")
    return found


def two_releases(make_queue: MakeQueue) -> tuple[Handle, Handle]:
    """An old release, whose schedule is registered, and a new one."""
    old = released(make_queue(), HOUR)
    old.schedules.register()
    return old, released(make_queue(old.name), 2 * HOUR)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers check ten times a second what others have stored."""
    for wait in ("_LOOK_S", "_TRY_S", "_COMPARE_S"):
        monkeypatch.setattr(registrar, wait, 0.1)


def test_a_new_release_replaces_the_definition_of_the_old_one(old: Handle, new: Handle):
    assert starts(old, "old-1").created == ("work",)

    assert starts(new, "new-1").changed == ("work",)

    assert stored(new) == "7200000"


def test_a_worker_of_the_old_release_that_starts_again_does_not_restore_its_own(old: Handle, new: Handle):
    starts(old, "old-1")
    starts(new, "new-1")

    for again in range(3):
        assert starts(old, f"old-{again}").superseded == ("work",)

    assert stored(new) == "7200000"
    assert starts(new, "new-2").unchanged == ("work",)


def test_after_a_rollback_the_old_definition_is_written_when_the_new_workers_are_gone(old: Handle, new: Handle):
    starts(old, "old-1")
    starts(new, "new-1")
    starts(new, "new-2")
    leaves(new, "new-1")
    assert starts(old, "old-2").superseded == ("work",)
    leaves(new, "new-2")

    assert starts(old, "old-2").changed == ("work",)

    assert stored(old) == "3600000"
    assert starts(new, "new-3").superseded == ("work",), "until the workers of the rollback are gone"


def test_a_higher_version_decides_at_once_and_a_lower_one_never_wins(old: Handle, new: Handle, make_queue: MakeQueue):
    starts(old, "old-1")
    starts(new, "new-1")
    forced = released(make_queue(old.name, clock=old.settings.clock), HOUR, version=1)

    assert starts(forced, "forced-1").changed == ("work",)

    assert starts(new, "new-2").kept == ("work",)
    assert stored(old) == "3600000"


def test_definitions_that_a_person_registers_are_written(old: Handle, new: Handle):
    starts(old, "old-1")
    starts(new, "new-1")

    assert old.schedules.register().changed == ("work",)

    assert stored(old) == "3600000"


def test_a_manual_change_is_replaced_by_the_code_when_a_worker_starts(old: Handle):
    starts(old, "old-1")
    old.schedules.upsert("work", every=60, task="work")

    assert starts(old, "old-2").changed == ("work",)


def test_no_more_than_20_former_definitions_are_remembered(old: Handle):
    for seconds in range(60, 110):
        old.schedules.upsert("work", every=seconds, task="work")

    assert len(old.redis.hget(old.keys.schedule("work"), "replaced").split()) == 20


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("door", ["blocking"])
def test_the_log_says_which_release_is_kept_and_when_the_other_is_back(make_queue: MakeQueue, crew: Crew, logs: Logs):
    old, new = two_releases(make_queue)
    newer = crew.start(new)
    until(lambda: stored(new) == "7200000")
    until(lambda: [worker for worker in new.list_workers() if worker.definitions])

    crew.start(old)

    until(lambda: any("an older definition" in line and line.startswith("WARNING") for line in logs()))
    assert stored(new) == "7200000"
    newer.end()
    until(lambda: stored(old) == "3600000")
    until(lambda: any("no live worker has the definition that had replaced it" in line for line in logs()))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("door", ["blocking"])
def test_a_live_worker_says_once_that_its_definition_was_replaced(make_queue: MakeQueue, crew: Crew, logs: Logs):
    queue = released(make_queue(), HOUR)
    crew.start(queue)
    until(lambda: queue.redis.exists(queue.keys.schedule("work")))

    queue.schedules.upsert("work", every=60, task="work")

    def told() -> list[str]:
        return [line for line in logs() if "schedule work: replaced by another release or by hand" in line]

    until(told)
    queue.schedules.upsert("work", every=90, task="work")
    until(lambda: len(told()) == 2)
    assert "in this worker's code every 1 h" in told()[0]
    assert "higher version=" in told()[0]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("door", ["blocking"])
def test_one_that_was_deleted_while_the_old_release_waited_stays_deleted(
    make_queue: MakeQueue, crew: Crew, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(registrar, "_TRY_S", 3600)  # a look in the middle of the deletion might restore it
    old, new = two_releases(make_queue)
    starts(new, "new-1")
    post = crew.start(old)
    kept = post.queue_worker.registrar
    until(lambda: kept._superseded)

    assert new.schedules.delete("work")
    leaves(new, "new-1")
    kept._tries_at = 0.0

    until(lambda: not kept._superseded)
    assert new.schedules.get("work") is None


def test_a_pruned_schedule_is_written_again_by_an_old_release_that_starts(old: Handle, make_queue: MakeQueue):
    """It can't be distinguished from a new schedule whose first worker starts next to workers that lack it."""
    starts(old, "old-1")
    new = make_queue(old.name, clock=old.settings.clock)
    new.every(HOUR, id="other")(work)
    assert new.schedules.register(prune=True).removed == ("work",)

    assert starts(old, "old-2").created == ("work",)


def starts_with_an_older_schedq(release: Handle, worker: str) -> None:
    """Start a worker whose schedq knows nothing of replaced definitions: it only stores its own."""
    release.execute([heartbeat.beat(release.settings, worker, {"pid": 7})])
    schedule = release.keys.schedule("work")
    former = release.redis.hget(schedule, "replaced") or ""
    release.schedules.register()
    release.redis.hset(schedule, "replaced", former)


def restores(release: Handle) -> list[str]:
    return [mine.id for mine in release.drive(restore(release.settings, release.registry.schedules))]


def test_definitions_that_an_older_schedq_wrote_are_replaced_when_its_workers_are_gone(old: Handle, new: Handle):
    starts_with_an_older_schedq(old, "old-1")
    starts(new, "new-1")
    starts_with_an_older_schedq(old, "old-2")
    assert stored(new) == "3600000"

    leaves(old, "old-1")
    assert restores(new) == []
    leaves(old, "old-2")

    assert restores(new) == ["work"]
    assert stored(new) == "7200000"
    assert restores(new) == []


def test_a_rollback_to_an_older_schedq_is_not_undone(old: Handle, new: Handle):
    starts_with_an_older_schedq(old, "old-1")
    starts(new, "new-1")
    leaves(old, "old-1")
    starts_with_an_older_schedq(old, "old-2")

    assert restores(new) == []
    leaves(new, "new-1")

    assert stored(old) == "3600000"


def test_what_newer_releases_or_persons_write_is_not_written_over_by_live_workers(old: Handle, new: Handle):
    starts(old, "old-1")
    starts(new, "new-1")
    assert restores(old) == []
    new.schedules.upsert("work", every=60, task="work")
    assert restores(new) == []
    old.schedules.register()
    assert restores(new) == []
    new.schedules.delete("work")
    assert restores(new) == []

    assert new.schedules.get("work") is None


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("door", ["blocking"])
def test_a_live_worker_restores_its_schedule_and_logs_it(make_queue: MakeQueue, crew: Crew, logs: Logs):
    old, new = two_releases(make_queue)
    crew.start(new)
    until(lambda: stored(new) == "7200000")

    starts_with_an_older_schedq(old, "old-1")
    until(lambda: any("replaced by another release or by hand" in line for line in logs()))
    assert stored(new) == "3600000"
    leaves(old, "old-1")

    until(lambda: stored(new) == "7200000")
    until(lambda: any("had written a former definition; restored: every 2 h" in line for line in logs()))
