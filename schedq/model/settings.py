"""The settings of one queue: checked once, frozen, passed to everything that works on the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Final

from schedq.errors import UsageError
from schedq.model import backoff as plans
from schedq.model.cached_property import cached_property
from schedq.model.checks import whole_number
from schedq.model.durability import Durability, checked_durability
from schedq.model.keys import QueueKeys, checked_name
from schedq.model.times import duration_ms, seconds_of

KEEP_ALL: Final = -1
"""The cap of a history that is not trimmed: it has no limit, or this process does not know the application's."""
PROMISED_S: Final = 600
"""A warning is given if caps delete a result within this many seconds, unless `completed_ttl` is shorter."""
HIGH_MEMORY_HISTORY: Final = 1000
"""The most completed records to keep while Redis uses more than 80 % of its memory; the scripts use it."""
_STORED: Final = (
    "visibility_ms",
    "max_attempts",
    "completed_ttl",
    "failed_ttl",
    "completed_history",
    "failed_history",
    "min_keep",
    "unknown_for",
    "max_payload",
    "log_size",
    "replicas",
)
_ALWAYS: Final = "failed_history"
_TRANSIT_S: Final = 1.0
_LEAST: Final = {
    "visibility_ms": 1000,
    "completed_history": KEEP_ALL,
    "failed_history": KEEP_ALL,
    "max_payload": 1,
    "log_size": 0,
    "replicas": 1,
}
_DURATIONS: Final = ("completed_ttl", "failed_ttl", "min_keep", "unknown_for", "retry_for")


@dataclass(frozen=True)
class Settings:
    """The settings of one queue.

    Attributes:
        name: the queue.
        visibility_ms: length of a lease; a job whose worker is silent for this long is reclaimed.
        max_attempts: claims a job gets before it fails for good, unless the job or its task says otherwise.
        backoff: waits between attempts, unless the job or its task says otherwise.
        completed_ttl: seconds until a completed job's record expires.
        failed_ttl: seconds until a failed or cancelled job's record expires; None if it does not.
        completed_history: the most completed jobs to keep, 1,000 while Redis is nearly full; the oldest go first. 0
            keeps none after `min_keep`.
        failed_history: the most failed jobs to keep, and the most cancelled ones; None, stored as KEEP_ALL, keeps all.
        min_keep: seconds that a finished record is kept whatever the caps, so that a repeated request finds it. A
            request that creates a job is not repeated later than that, however long `retry_for` is; with 0, never.
        unknown_for: seconds for which a job whose task no worker knows is put back without spending attempts; then it
            fails. 0 fails it at once.
        max_pending: the most jobs that may wait in `pending`; None for no limit. Delayed jobs do not count.
        max_payload: the most bytes of JSON in a payload or a result.
        allow_eviction: work with a Redis that may evict keys (jobs vanish when it does).
        retry_for: seconds for which a call retries when Redis does not reply; at most `min_keep`, unless that is 0.
        clock: a function that returns Unix seconds, used instead of Redis's time; for tests.
        log_size: about how many entries the audit stream keeps; 0 writes none.
        durability: where a new job is before `enqueue` returns: `memory`, `replicated` or `fsync`.
        replicas: how many replicas must have it, if `replicated`.
        tagged: whether keys have hash tags, for Redis Cluster.
        db: the database of the keys; see `QueueKeys`.
        listed: register the queue's name in `schedq:queues` on connect.
        gates: the gates that the code of this process defines, name → definition, with '' for the limits of the whole
            queue. It grows while the code is imported; see `model.gates`.
    """

    name: str
    visibility_ms: int = 10_000
    max_attempts: int = 3
    backoff: plans.Plan = field(default_factory=lambda: plans.Exponential(base=2, factor=2, cap=600, jitter=0.5))
    completed_ttl: float = 3600
    failed_ttl: float | None = None
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
    gates: dict[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        QueueKeys(self.name)
        no_limit: object = self.failed_history
        if no_limit is None:
            object.__setattr__(self, "failed_history", KEEP_ALL)
        for name, least in _LEAST.items():
            whole_number(name, getattr(self, name), least)
        checked_attempts(self.max_attempts)
        plans.checked_plan(self.backoff)
        checked_durability(self.durability)
        if self.max_pending is not None:
            whole_number("max_pending", self.max_pending, 1)
        for what in _DURATIONS:
            value: object = getattr(self, what)
            if value is None and what == "failed_ttl":
                continue
            duration_ms(value, what)
            if isinstance(value, timedelta):
                object.__setattr__(self, what, seconds_of(value))
        if self.min_keep and self.retry_for > self.min_keep:
            raise UsageError(
                f"retry_for ({self.retry_for} s) must not be longer than min_keep ({self.min_keep} s): "
                "a request sent again later than that could not be recognized"
            )
        if self.clock is not None and not callable(self.clock):
            raise UsageError(f"clock must be a function that returns Unix seconds, got {self.clock!r}")

    @cached_property
    def keys(self) -> QueueKeys:
        """The queue's keys in Redis."""
        return QueueKeys(self.name, self.tagged, self.db)

    def of_queue(self, name: str) -> Settings:
        """The same settings for another queue; much faster than `replace`, as they have been checked.

        Raises:
            UsageError: it is no valid name.
        """
        made = object.__new__(Settings)
        vars(made).update({each: vars(self)[each] for each in _FIELDS}, name=checked_name(name))
        return made

    @cached_property
    def bound(self) -> dict[str, Any]:
        """Cache of what all requests of a script have in common, by script; see `transitions.scripts`."""
        return {}

    @cached_property
    def renewal_s(self) -> float:
        """Seconds between two renewals of a lease: a third of it, so that two may fail."""
        return self.visibility_ms / 3000

    @cached_property
    def repeatable_s(self) -> float:
        """Seconds after its first sending for which a request that creates a job may be repeated.

        The job may have run in the meantime, and then its record is kept for `min_keep`. This is a little less, to
        leave time for the request to arrive.
        """
        return self.min_keep - min(_TRANSIT_S, self.min_keep / 4)

    def now_argument(self) -> str:
        """The time argument of scripts: the clock's milliseconds, or '' for Redis's own time."""
        return "" if self.clock is None else str(int(self.clock() * 1000))

    def to_fields(self) -> dict[str, str]:
        """The settings that other processes need, as text."""
        stored = {name: str(getattr(self, name)) for name in _STORED}
        if self.failed_ttl is None:
            stored["failed_ttl"] = ""  # replaces one that an earlier release of the application had
        return {**stored, "backoff": plans.to_text(self.backoff), "durability": self.durability}

    def stored_fields(self) -> dict[str, str]:
        """The fields of the `settings` hash; '' for one that is not stored, because the setting has its default.

        `failed_history` always is, so that the hash exists: a worker writes the settings again if it does not.
        """
        return {
            name: "" if text == DEFAULT_FIELDS[name] and name != _ALWAYS else text
            for name, text in self.to_fields().items()
        }

    def with_fields(self, stored: Mapping[str, str]) -> Settings:
        """These settings updated from the fields of the `settings` hash; invalid fields are ignored.

        If a worker has written them, those that are absent have their defaults.
        """
        kinds = {entry.name: entry.type for entry in fields(self)}
        found, stored = self, completed_fields(stored)
        for name in _STORED:
            try:
                value = (int if kinds[name] == "int" else float)(stored[name])
                given: dict[str, Any] = {name: value}
                if name == "min_keep" and value:
                    # If records are kept for a shorter time, requests must be retried for a shorter time.
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


_FIELDS: Final = tuple(each.name for each in fields(Settings))


def checked_attempts(value: object) -> int:
    """Return `value` if it is a valid `max_attempts`.

    Raises:
        UsageError: it is not an int from 1 to 1,000,000.
    """
    return whole_number("max_attempts", value, 1, 1_000_000)


HEARTBEAT_S: Final = 10
"""Seconds between two heartbeats of a worker; a worker silent for three times as long counts as dead."""
RETRY_S: Final = 1.0
"""Seconds for which an operator's tool retries while Redis does not reply; short, because a person is waiting."""
NO_QUEUE: Final = "schedq"
"""A queue name for requests about all queues of a Redis; the queue need not exist."""
DEFAULT_FIELDS: Final[Mapping[str, str]] = Settings(NO_QUEUE).to_fields()


def completed_fields(stored: Mapping[str, str]) -> Mapping[str, str]:
    """The fields of the `settings` hash together with those that are not stored because they have their defaults."""
    return {**DEFAULT_FIELDS, **stored} if _ALWAYS in stored else stored
