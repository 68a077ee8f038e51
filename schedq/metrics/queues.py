"""What Redis knows of queues, as metrics: depths, totals, the oldest that waits, what is overdue."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Self, cast

from schedq.application import Application
from schedq.clocks import monotonic
from schedq.connection.address import Address
from schedq.connection.sender import Sender
from schedq.errors import SchedqError
from schedq.lifecycle import PLACES
from schedq.link import Complaint
from schedq.metrics.extra import needed
from schedq.operations.gauges import Reading, readings
from schedq.operations.views import Stats
from schedq.settings import Settings

with suppress(ImportError):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

FRESH_S: Final = 3.0
"""Seconds for which what was read is served again: several servers may scrape."""
RETRY_S: Final = 1.0
TOTALS: Final = {
    "enqueued": ("schedq_jobs_enqueued", "Jobs enqueued."),
    "promoted": ("schedq_jobs_promoted", "Delayed jobs and retries that became due and were moved to pending."),
    "completed": ("schedq_jobs_completed", "Jobs completed."),
    "failed": ("schedq_jobs_failed", "Jobs failed for good."),
    "retried": ("schedq_jobs_retried", "Attempts that failed and are to be followed by another."),
    "snoozed": ("schedq_jobs_snoozed", "Attempts that ended by Snooze."),
    "released": ("schedq_jobs_released", "Attempts given back by workers that stopped."),
    "reclaimed": ("schedq_jobs_reclaimed", "Attempts whose lease ended: taken back from a dead worker, or failed."),
    "adopted": ("schedq_jobs_adopted", "Claims of other programs that were given a lease."),
    "cancelled": ("schedq_jobs_cancelled", "Jobs cancelled."),
    "requeued": ("schedq_jobs_requeued", "Failed and cancelled jobs put back by operators."),
    "purged": ("schedq_jobs_purged", "Jobs deleted by operators, or replaced by a new one of their id."),
    "broken": ("schedq_jobs_broken", "Ids that could not be run because their data is gone or of the wrong type."),
    "strays": ("schedq_stray_entries", "Second entries of one id that were removed."),
    "trimmed": ("schedq_results_trimmed", "Completed records deleted by completed_history before they expired."),
    "fired": ("schedq_slots_fired", "Slots of schedules for which a job was made."),
}
"""Total in `Stats`, without `_total` → name of its metric, without `_total`, and help."""


class RedisQueues:
    """The queues at one Redis, to be read again and again over a connection of their own.

    Args:
        address: where it is.
        find: the settings of the queues to read, asked for each time.
    """

    def __init__(self, address: Address, find: Callable[[], Sequence[Settings]]) -> None:
        self.label = address.label
        self._address = address
        self._find = find
        self._senders: dict[str, Sender] = {}

    @classmethod
    def of(cls, queues: Sequence[Application]) -> Self:
        """Those of one application at one Redis."""
        settings = [replace(queue.settings, retry_for=RETRY_S, listed=False) for queue in queues]
        return cls(queues[0].address, lambda: settings)

    def read(self) -> list[Reading]:
        """All of them, now; blocks.

        Raises:
            SchedqError: Redis does not answer, or refuses.
        """
        queues = self._find()
        if not self._address.is_cluster:
            return self._sender("", queues[0]).drive(readings(queues)) if queues else []
        # Each may be on another node.
        return [found for queue in queues for found in self._sender(queue.name, queue).drive(readings([queue]))]

    def close(self) -> None:
        """Close the connections."""
        for sender in self._senders.values():
            sender.close()

    def _sender(self, key: str, queue: Settings) -> Sender:
        if key not in self._senders:
            self._senders[key] = Sender(self._address, queue)
        return self._senders[key]


class QueueCollector:
    """A collector for a registry of prometheus-client; reads Redis when scraped, at most once every `fresh_s`.

    A Redis that does not answer leaves out its queues and has `schedq_redis_up` 0.

    Args:
        redis: what to read. With several, their queues have a label `redis`.
        fresh_s: seconds for which what was read is served again.

    Raises:
        UsageError: prometheus-client is not installed.
    """

    def __init__(self, redis: Sequence[RedisQueues], fresh_s: float = FRESH_S) -> None:
        needed()
        self._redis = tuple(redis)
        self._fresh_s = fresh_s
        self._lock = threading.Lock()
        self._found: list[tuple[str, list[Reading] | None]] = []
        self._read_at: float | None = None
        self._complaint = Complaint()

    def describe(self) -> list[Metric]:
        """Nothing: registering it must not ask Redis."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        found = self._readings()
        up = GaugeMetricFamily("schedq_redis_up", "1 if Redis answered when it was last asked.", labels=["redis"])
        page = _Page(("redis",) if len(found) > 1 else ())
        for label, there in found:
            up.add_metric([label], 0 if there is None else 1)
            for reading in there or ():
                page.add(reading, (label,) if len(found) > 1 else ())
        yield up
        yield from page.families

    def close(self) -> None:
        """Close the connections."""
        for redis in self._redis:
            redis.close()

    def _readings(self) -> list[tuple[str, list[Reading] | None]]:
        with self._lock:  # who comes meanwhile waits, and is served the same
            if self._read_at is None or monotonic() - self._read_at >= self._fresh_s:
                self._found = [(redis.label, self._read(redis)) for redis in self._redis]
                self._read_at = monotonic()
            return self._found

    def _read(self, redis: RedisQueues) -> list[Reading] | None:
        try:
            found = redis.read()
        except SchedqError as error:
            self._complaint.say("metrics", error, logging.WARNING)
            return None
        for reading in found:
            if reading.problem:
                self._complaint.say(
                    "metrics", SchedqError(f"queue {reading.queue}: {reading.problem}"), logging.WARNING
                )
        return found


class _Page:
    """The families of one scrape."""

    def __init__(self, more: Sequence[str]) -> None:
        labels = ["queue", *more]
        self.jobs = GaugeMetricFamily("schedq_jobs", "Jobs in each state.", labels=[*labels, "state"])
        self.totals = {
            what: CounterMetricFamily(name, f"{text} Counted inside Redis, since the queue began.", labels=labels)
            for what, (name, text) in TOTALS.items()
        }
        self.readable = _gauge("schedq_queue_readable", "0 if a key of the queue is of the wrong type.", labels)
        self.paused = _gauge("schedq_queue_paused", "1 while the queue is paused.", labels)
        self.workers = _gauge("schedq_workers", "Workers that gave a sign of life in the last 30 s.", labels)
        self.leases = _gauge("schedq_leases", "Claimed jobs that have a lease.", labels)
        self.oldest = _gauge(
            "schedq_pending_oldest_age_seconds",
            "For how long the pending job that is next could have run; 0 if none is pending.",
            labels,
        )
        self.due = _gauge(
            "schedq_next_due_timestamp_seconds", "When the earliest delayed job is due; absent if none is.", labels
        )
        self.lag = _gauge(
            "schedq_promoter_lag_seconds", "For how long a delayed job has been due that nobody moved yet.", labels
        )

    @property
    def families(self) -> list[Metric]:
        """All of them."""
        return [
            *(self.jobs, self.readable, self.paused, self.workers, self.leases, self.oldest, self.due, self.lag),
            *self.totals.values(),
        ]

    def add(self, reading: Reading, more: Sequence[str]) -> None:
        """One queue."""
        labels = [reading.queue, *more]
        self.readable.add_metric(labels, 0 if reading.stats is None else 1)
        if reading.stats is not None:
            self._add(labels, reading.stats, reading.oldest_ms)

    def _add(self, labels: list[str], stats: Stats, oldest_ms: int | None) -> None:
        values = cast("dict[str, Any]", stats)
        for place in PLACES:
            self.jobs.add_metric([*labels, place], values[f"{place}_depth"])
        for what, family in self.totals.items():
            family.add_metric(labels, values[f"{what}_total"])
        self.paused.add_metric(labels, 0 if stats["paused_since_ms"] is None else 1)
        self.workers.add_metric(labels, stats["workers"])
        self.leases.add_metric(labels, stats["leases_depth"])
        if oldest_ms is not None or not stats["pending_depth"]:
            self.oldest.add_metric(labels, (oldest_ms or 0) / 1000)
        due_ms = stats["next_due_ms"]
        if due_ms is not None:
            self.due.add_metric(labels, due_ms / 1000)
        self.lag.add_metric(labels, 0 if due_ms is None else max(0, stats["now_ms"] - due_ms) / 1000)


def _gauge(name: str, text: str, labels: Sequence[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)
