"""What one queue is set to: checked once, frozen, handed to everything that acts on the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

from schedq.errors import UsageError
from schedq.model import backoff as plans
from schedq.model.checks import whole_number
from schedq.model.durability import Durability, checked_durability
from schedq.model.keys import QueueKeys
from schedq.model.times import duration_ms, seconds_of

KEEP_ALL: Final = -1
"""A history cap of a process that does not know the application's: it trims nothing."""
PROMISED_S: Final = 600
"""Seconds that a result can be read, unless `completed_ttl` is shorter: if caps delete it sooner, that is a warning."""
HIGH_MEMORY_HISTORY: Final = 1000
"""Completed records that are kept while Redis uses more than 80 % of its memory; the scripts go by it."""
_STORED: Final = (
    "visibility_ms",
    "max_attempts",
    "completed_ttl",
    "completed_history",
    "failed_history",
    "min_keep",
    "unknown_for",
    "max_payload",
    "log_size",
    "replicas",
)
_ON_THE_WAY_S: Final = 1.0
_LEAST: Final = {
    "visibility_ms": 1000,
    "completed_history": KEEP_ALL,
    "failed_history": KEEP_ALL,
    "max_payload": 1,
    "log_size": 0,
    "replicas": 1,
}
_DURATIONS: Final = ("completed_ttl", "min_keep", "unknown_for", "retry_for")


@dataclass(frozen=True)
class Settings:
    """The settings of one queue.

    Attributes:
        name: the queue.
        visibility_ms: length of a lease; a job whose worker is silent for so long is taken back.
        max_attempts: claims a job gets before it fails for good, unless the job or its task says otherwise.
        backoff: waits between attempts, unless the job or its task says otherwise.
        completed_ttl: seconds until a completed job's record expires.
        completed_history: most completed jobs that are kept, 1,000 of them while Redis is nearly full; the oldest go
            first. 0 keeps none after `min_keep`.
        failed_history: failed jobs that are kept, and cancelled ones; they have no TTL.
        min_keep: seconds that a finished record stays whatever the caps, so that a request sent again finds it. A
            request that makes a job is not sent again later than that, however long `retry_for` is; with 0, never.
        unknown_for: seconds for which a job that no worker knows the task of is put back, without spending attempts,
            before it fails; 0 fails it at once.
        max_pending: most jobs that may wait in `pending`; None for no limit. Delayed jobs do not count.
        max_payload: bytes of JSON that a payload or a result may have.
        allow_eviction: work with a Redis that may evict keys (jobs vanish when it does).
        retry_for: seconds for which a call re-sends when Redis does not answer; at most `min_keep`, unless that is 0.
        clock: Unix seconds, in place of Redis's own time; for tests.
        log_size: entries that the audit stream keeps, about; 0 writes none.
        durability: what has a new job when its producer is answered: `memory`, `replicated` or `fsync`.
        replicas: how many replicas have it, if `replicated`.
        tagged: hash-tagged keys, for Redis Cluster.
        db: the database of the keys; see `QueueKeys`.
        listed: register the queue's name in `schedq:queues` on connect.
    """

    name: str
    visibility_ms: int = 10_000
    max_attempts: int = 3
    backoff: plans.Plan = field(default_factory=lambda: plans.Exponential(base=2, factor=2, cap=600, jitter=0.5))
    completed_ttl: float = 3600
    completed_history: int = 100_000
    failed_history: int = 10_000
    min_keep: float = 30
    unknown_for: float = 3600
    max_pending: int | None = None
    max_payload: int = 262_144
    allow_eviction: bool = False
    retry_for: float = 5
    clock: Callable[[], float] | None = None
    log_size: int = 1000
    durability: Durability = "memory"
    replicas: int = 1
    tagged: bool = False
    db: int = 0
    listed: bool = True

    def __post_init__(self) -> None:
        QueueKeys(self.name)
        for name, least in _LEAST.items():
            whole_number(name, getattr(self, name), least)
        checked_attempts(self.max_attempts)
        plans.checked_plan(self.backoff)
        checked_durability(self.durability)
        if self.max_pending is not None:
            whole_number("max_pending", self.max_pending, 1)
        for what in _DURATIONS:
            value: object = getattr(self, what)
            duration_ms(value, what)
            if isinstance(value, timedelta):
                object.__setattr__(self, what, seconds_of(value))
        if self.min_keep and self.retry_for > self.min_keep:
            raise UsageError(
                f"retry_for ({self.retry_for} s) must not be longer than min_keep ({self.min_keep} s): "
                "a request sent again later than that could not be recognised"
            )
        if self.clock is not None and not callable(self.clock):
            raise UsageError(f"clock must be a function that returns Unix seconds, got {self.clock!r}")

    @cached_property
    def keys(self) -> QueueKeys:
        """Where the queue is in Redis."""
        return QueueKeys(self.name, self.tagged, self.db)

    @cached_property
    def bound(self) -> dict[str, Any]:
        """What is the same in all requests of one script, by the script; see `transitions.scripts`."""
        return {}

    @cached_property
    def renewal_s(self) -> float:
        """Seconds between two renewals of a lease: a third of it, so that two may fail."""
        return self.visibility_ms / 3000

    @cached_property
    def repeatable_s(self) -> float:
        """Seconds after its first sending for which a request that makes a job may be sent again.

        By then the job may have run, and its record is kept for `min_keep`; what is left of that is for the way there.
        """
        return self.min_keep - min(_ON_THE_WAY_S, self.min_keep / 4)

    def now_argument(self) -> str:
        """What scripts get for the time: the clock's milliseconds, or nothing, meaning Redis's own."""
        return "" if self.clock is None else str(int(self.clock() * 1000))

    def to_fields(self) -> dict[str, str]:
        """The settings that other processes need, as the `settings` hash has them."""
        stored = {name: str(getattr(self, name)) for name in _STORED}
        return {**stored, "backoff": plans.to_text(self.backoff), "durability": self.durability}

    def with_fields(self, stored: Mapping[str, str]) -> Settings:
        """These settings with what the `settings` hash says; fields that make no sense are passed over."""
        kinds = {entry.name: entry.type for entry in fields(self)}
        found = self
        for name in _STORED:
            try:
                value = (int if kinds[name] == "int" else float)(stored[name])
                given: dict[str, Any] = {name: value}
                if name == "min_keep" and value:
                    # Whoever keeps records for a shorter time has others re-send for a shorter time.
                    given["retry_for"] = min(found.retry_for, value)
                found = replace(found, **given)
            except (KeyError, ValueError):
                continue
        with suppress(KeyError, UsageError):
            found = replace(found, durability=checked_durability(stored["durability"]))
        plan = plans.from_text(stored.get("backoff", ""))
        return found if plan is None else replace(found, backoff=plan)

    def without_application(self) -> Settings:
        """These settings for a process that does not know the application's: it trims nothing."""
        return replace(self, completed_history=KEEP_ALL, failed_history=KEEP_ALL)


def checked_attempts(value: object) -> int:
    """Return `value` if it may be a `max_attempts`.

    Raises:
        UsageError: not an int of 1 to 1,000,000.
    """
    return whole_number("max_attempts", value, 1, 1_000_000)


HEARTBEAT_S: Final = 10
"""Seconds between two signs of life of a worker; three times that, and it does not count."""
RETRY_S: Final = 1.0
"""Seconds for which an operator's tool retries while Redis does not reply: somebody waits for it."""
NO_QUEUE: Final = "schedq"
"""Name of a queue that need not exist, for requests about all queues of a Redis."""
