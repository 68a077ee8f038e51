"""What tests of schedules share: firing due slots, and reading the outcomes."""

from __future__ import annotations

from typing import Any

from schedq.schedules.fire import DefinitionCache, Fired, fire_due
from tests.doors import Handle

MINUTE = 60
HOUR = 3600
BEGIN_MS = 1_800_000_000_000
"""Where a `Clock` begins: 2027-01-15 08:00 UTC."""


def tick(queue: Handle, memory: DefinitionCache | None = None, resting: tuple[str, ...] = ()) -> Fired:
    """One tick of a scheduler."""
    found: Fired = queue.drive(fire_due(queue.settings, memory or DefinitionCache(), resting))
    return found


def slots_ms(*minutes: float) -> list[int]:
    """Instants as minutes after the start."""
    return [BEGIN_MS + int(minute * 60_000) for minute in minutes]


def jobs(queue: Handle) -> list[str]:
    """Ids of all jobs, in order."""
    return sorted(queue.state().jobs())


def ids(schedule_id: str, *minutes: float) -> list[str]:
    """Ids of the jobs of slots."""
    return [f"{schedule_id}-{slot}" for slot in slots_ms(*minutes)]


def account(queue: Handle, schedule_id: str) -> list[tuple[Any, ...]]:
    """The outcomes of its slots, oldest first: the minute, the outcome, and how many."""
    record = queue.schedules.get(schedule_id)
    return [((slot.slot_ms - BEGIN_MS) / 60_000, slot.outcome, slot.count) for slot in reversed(record.slots)]


def acts(queue: Handle) -> list[str]:
    """The audit log's entries about schedules, oldest first."""
    log = queue.redis.xrange(queue.keys.log)
    return [f"{entry['move']} {entry['id']}" for _, entry in log if entry["move"].startswith("schedule ")]


def complete_all(queue: Handle) -> list[str]:
    """Run jobs until nothing is pending; returns the ids."""
    done = []
    while (job := queue.claim(0)) is not None:
        queue.complete(job)
        done.append(job.id)
    return done
