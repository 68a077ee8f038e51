"""The storm's schedules, one slot per second, and Redis's record of each slot while it is available there.

The schedules in the application's code come first. Steps of the server's clock, an hour ahead and back, leave a
schedule with a next slot an hour away: it is then closed and replaced by another.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import redis

from schedq import SchedqError
from scripts.tools.chaos.app import POLICIES, SLOT_S, made
from scripts.tools.chaos.record import now


@dataclass(frozen=True, slots=True)
class Line:
    """An entry of a schedule's history: one slot, or several in a row; instants in ms of the server's clock."""

    slot_ms: int
    to_ms: int
    outcome: str
    what: str
    at_ms: int

    @classmethod
    def read(cls, text: str) -> Line:
        """Parse an entry of the LIST."""
        said = json.loads(text)
        what = said.get("job_id") or said.get("why") or said.get("into_ms")
        return cls(said["slot_ms"], said["to_ms"], said["outcome"], str(what), said["at_ms"])


@dataclass(slots=True)
class Plan:
    """A schedule, from its first slot to the one that would have been next when it was closed.

    Attributes:
        began: instant, in seconds, before which it had no slot.
        lines: all entries seen in its history.
        written_ms: when it was first stored, by the server's clock; 0 while unknown.
        next_ms: its next slot when it was closed; 0 before that.
    """

    id: str
    queue: str
    catch_up: str
    began: float
    lines: set[Line] = field(default_factory=set)
    written_ms: int = 0
    next_ms: int = 0


class Timetable:
    """All schedules of a run.

    Args:
        url: address of the server, bypassing the proxies.
        client: creates a client for it.
    """

    def __init__(self, url: str, client: Callable[[], redis.Redis]) -> None:
        self._queues = {name: made(name, url) for name in POLICIES}
        self._client = client
        self.plans = [Plan(policy, name, policy, now()) for name, policy in POLICIES.items()]

    def read(self, client: redis.Redis) -> None:
        """Read the latest entries; a history is short, so this is done often."""
        for plan in [plan for plan in self.plans if not plan.next_ms]:
            plan.lines |= _lines(client, plan)

    def renew(self) -> bool:
        """Replace the current schedules; False if Redis failed and it must be repeated."""
        if not self.close():
            return False
        for name, policy in POLICIES.items():
            if all(plan.next_ms for plan in self.plans if plan.queue == name):
                number = sum(plan.queue == name for plan in self.plans)
                plan = Plan(f"{policy}-g{number}", name, policy, now())  # its id differs from those of slots' jobs
                try:
                    self._queues[name].schedules.upsert(plan.id, every=SLOT_S, task="tick", catch_up=policy)
                except SchedqError:
                    return False
                self.plans.append(plan)
        return True

    def close(self) -> bool:
        """End all schedules and read their final state; False if Redis failed and it must be repeated."""
        return all(self._close(plan) for plan in self.plans if not plan.next_ms)

    def fired(self) -> dict[str, int]:
        """Jobs created from slots, by queue, as counted by the server."""
        return {name: queue.stats()["fired_total"] for name, queue in self._queues.items()}

    def end(self) -> None:
        """Close all clients."""
        for queue in self._queues.values():
            queue.close()

    def _close(self, plan: Plan) -> bool:
        with suppress(SchedqError, redis.RedisError, OSError):
            schedules = self._queues[plan.queue].schedules
            schedules.pause(plan.id)
            record = schedules.get(plan.id)
            if record is None or not record.paused_at_ms:
                return False
            with self._client() as client:
                plan.lines |= _lines(client, plan)
            plan.written_ms = record.created_at_ms
            plan.next_ms = int(record.fields["parked_ms"])
            if plan.id != plan.catch_up:  # schedules in the code stay paused: a starting worker would store them again
                schedules.delete(plan.id)
            return True
        return False


def _lines(client: redis.Redis, plan: Plan) -> set[Line]:
    found: Any = client.lrange(f"queue:{plan.queue}:schedule:{plan.id}:slots", 0, -1)
    return {Line.read(text) for text in found}
