"""Metrics of queues, read from Redis: depths, totals, age of the oldest pending job, promoter lag."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from schedq.background.reconnecting_client import LogThrottle
from schedq.connection.address import Address
from schedq.connection.client import Client
from schedq.errors import Conflict, SchedqError
from schedq.inspect.batches import OpenBatches, open_batches
from schedq.inspect.gates import GateStatus, gate_page, has_any
from schedq.inspect.stats import Stats, stats
from schedq.metrics.exposition import needed
from schedq.model.lifecycle import JOB_STATES
from schedq.model.records import whole
from schedq.model.settings import RETRY_S, Settings
from schedq.model.times import monotonic
from schedq.queue.queue import QueueBase
from schedq.transitions import Operation, RoundTrips, identity, unwrap

with suppress(ImportError):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

AT_ONCE: Final = 200
"""Number of queues read in one round trip; each occupies Redis for about 20 µs."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One queue at one moment.

    Attributes:
        queue: its name.
        stats: depths and totals; None if the queue can't be read.
        oldest_ms: how long the next pending job has been waiting to run; None if none is pending, all of them are held,
            or its producer did not store when it was enqueued.
        problem: why the queue can't be read, or ''.
        gates: its gates.
        batches: its batches and chains that have not ended; None if it has none at all.
        failed_limit: its failed_history, as stored; 0 if that is unknown, or keeps all or none.
    """

    queue: str
    stats: Stats | None
    oldest_ms: int | None = None
    problem: str = ""
    gates: tuple[GateStatus, ...] = ()
    batches: OpenBatches | None = None
    failed_limit: int = 0


def readings(queues: Sequence[Settings]) -> RoundTrips[list[Reading]]:
    """Read queues of one server, in two round trips per 200, and a third one for those with gates.

    A damaged queue does not hide the others.

    Raises:
        SchedqError: Redis did not respond, or refused for a reason that does not concern a single queue.
    """
    found: list[Reading] = []
    for first in range(0, len(queues), AT_ONCE):
        some = queues[first : first + AT_ONCE]
        replies = yield [
            operation for queue in some for operation in (stats(queue), _next(queue), has_any(queue), _limit(queue))
        ]
        waiting = [
            (queue, ids[0]) for queue, ids in zip(some, replies[1::4], strict=True) if isinstance(ids, list) and ids
        ]
        gated = [queue for queue, has_gates in zip(some, replies[2::4], strict=True) if has_gates is True]
        pages = (yield [gate_page(queue) for queue in gated]) if gated else []
        batched = [queue for queue, reply in zip(some, replies[::4], strict=True) if has_batches(reply)]
        more = yield [*(_times(queue, job_id) for queue, job_id in waiting), *map(open_batches, batched)]
        times, looks = more[: len(waiting)], more[len(waiting) :]
        since = {queue.name: _since(instants) for (queue, _), instants in zip(waiting, times, strict=True)}
        seen = {queue.name: it for queue, it in zip(batched, looks, strict=True) if isinstance(it, OpenBatches)}
        read = [
            replace(_reading(queue.name, reply, since), failed_limit=whole(limit))
            for queue, reply, limit in zip(some, replies[::4], replies[3::4], strict=True)
        ]
        gates = {queue.name: page for queue, page in zip(gated, pages, strict=True) if isinstance(page, tuple)}
        found += [replace(it, gates=gates.get(it.queue, ()), batches=seen.get(it.queue)) for it in read]
    return found


def _reading(name: str, reply: Stats | SchedqError, since_ms: Mapping[str, int]) -> Reading:
    if isinstance(reply, Conflict):
        return Reading(name, None, problem=str(reply))
    found = unwrap(reply)
    return Reading(name, found, max(0, found["now_ms"] - since_ms[name]) if since_ms.get(name) else None)


def has_batches(reply: object) -> bool:
    """Whether a queue, by its statistics, has batches or chains."""
    return isinstance(reply, Stats) and reply["batches"] > 0


def _next(queue: Settings) -> Operation[list[str]]:
    return Operation("next in line", None, (), ("LRANGE", queue.keys.pending, -1, -1), identity)


def _limit(queue: Settings) -> Operation[str | None]:
    return Operation("failed_history", None, (), ("HGET", queue.keys.settings, "failed_history"), identity)


def _times(queue: Settings, job_id: str) -> Operation[list[Any]]:
    command = ("HMGET", queue.keys.job(job_id), "run_at_ms", "enqueued_at_ms")
    return Operation("next in line", None, (), command, identity)


def _since(times: list[Any] | Exception) -> int:
    """When a job could first run, ms; 0 if that is unknown or the job is gone."""
    return 0 if isinstance(times, Exception) else whole(times[0]) or whole(times[1])


FRESH_S: Final = 3.0
"""Seconds for which readings are served again, because several servers may scrape."""
TOTALS: Final = {
    "enqueued": ("schedq_jobs_enqueued", "Jobs enqueued."),
    "deduplicated": ("schedq_jobs_deduplicated", "Calls that stored no job, because another one held the unique key."),
    "promoted": ("schedq_jobs_promoted", "Delayed jobs and retries that became due and were moved to pending."),
    "completed": ("schedq_jobs_completed", "Jobs completed."),
    "failed": ("schedq_jobs_failed", "Jobs failed for good."),
    "retried": ("schedq_jobs_retried", "Failed attempts that will be retried."),
    "snoozed": ("schedq_jobs_snoozed", "Attempts that ended by Snooze."),
    "released": ("schedq_jobs_released", "Attempts released by workers that stopped."),
    "reclaimed": ("schedq_jobs_reclaimed", "Attempts whose lease ended: reclaimed from a dead worker, or failed."),
    "adopted": ("schedq_jobs_adopted", "Claims of other programs that were given a lease."),
    "cancelled": ("schedq_jobs_cancelled", "Jobs cancelled."),
    "requeued": ("schedq_jobs_requeued", "Failed and cancelled jobs put back by operators."),
    "purged": ("schedq_jobs_purged", "Jobs deleted by operators, or replaced by a new job with the same id."),
    "broken": ("schedq_jobs_broken", "Ids that could not be run because their data is gone or of the wrong type."),
    "strays": ("schedq_stray_entries", "Second entries of one id that were removed."),
    "trimmed": ("schedq_results_trimmed", "Completed records deleted by completed_history before they expired."),
    "failed_dropped": ("schedq_failed_dropped", "Failed jobs deleted by failed_history."),
    "limited": ("schedq_jobs_limited", "Attempts that ended by RateLimited."),
    "suspended": ("schedq_runs_suspended", "Attempts of workflows that ended because the run waits."),
    "mended": ("schedq_gate_places_mended", "Places in gates that were kept by no running job, and were freed."),
    "fired": ("schedq_slots_fired", "Slots of schedules for which a job was enqueued."),
}
"""Total in `Stats`, without `_total` -> name of its metric, without `_total`, and its help text."""


def _oldest_s(stats: Stats, it: Reading) -> float | None:
    return None if it.oldest_ms is None and stats["pending_depth"] else (it.oldest_ms or 0) / 1000


def _failed_used(stats: Stats, it: Reading) -> float | None:
    return stats["failed_depth"] / it.failed_limit if it.failed_limit else None


def _due_s(stats: Stats, _: Reading) -> float | None:
    due_ms = stats["next_due_ms"]
    return None if due_ms is None else due_ms / 1000


def _outbox_lag_s(stats: Stats, _: Reading) -> float | None:
    oldest_ms = stats["outbox_oldest_ms"]
    if stats["outbox_at_ms"] is None:
        return None
    return 0 if oldest_ms is None else max(0, stats["now_ms"] - oldest_ms) / 1000


def _waiting_runs(stats: Stats, _: Reading) -> int | None:
    return stats["waiting_runs"] if stats["suspended_total"] else None


def _lag_s(stats: Stats, _: Reading) -> float:
    due_ms = stats["next_due_ms"]
    return 0 if due_ms is None else max(0, stats["now_ms"] - due_ms) / 1000


GAUGES: Final[tuple[tuple[str, str, Callable[[Stats, Reading], float | None]], ...]] = (
    ("schedq_queue_paused", "1 while the queue is paused.", lambda stats, _: int(stats["paused_since_ms"] is not None)),
    ("schedq_tasks_paused", "Paused tasks.", lambda stats, _: stats["paused_tasks"]),
    (
        "schedq_jobs_held",
        "Pending jobs that wait in gates, or are held because their task is paused.",
        lambda stats, _: stats["held_depth"],
    ),
    ("schedq_workers", "Workers that sent a heartbeat in the last 30 s.", lambda stats, _: stats["workers"]),
    ("schedq_leases", "Claimed jobs that have a lease.", lambda stats, _: stats["leases_depth"]),
    (
        "schedq_pending_oldest_age_seconds",
        "How long the next pending job has been waiting to run; 0 if none is pending, absent if all of them are held.",
        _oldest_s,
    ),
    ("schedq_next_due_timestamp_seconds", "When the earliest delayed job is due; absent if none is.", _due_s),
    (
        "schedq_outbox_unsent",
        "Rows of outboxes that wait for a relay, held ones included; absent without an outbox.",
        lambda stats, _: None if stats["outbox_at_ms"] is None else stats["outbox_unsent"],
    ),
    (
        "schedq_outbox_held",
        "Rows of outboxes that wait for a person's decision; absent without an outbox.",
        lambda stats, _: None if stats["outbox_at_ms"] is None else stats["outbox_held"],
    ),
    (
        "schedq_outbox_lag_seconds",
        "How long the oldest unsent row of an outbox has been waiting; absent without an outbox.",
        _outbox_lag_s,
    ),
    (
        "schedq_runs_waiting",
        "Suspended runs of workflows that wait for a message or for jobs, without a limit; absent if none ever waited.",
        _waiting_runs,
    ),
    (
        "schedq_failed_history_used_ratio",
        "Failed jobs as a share of failed_history, of which more are deleted; absent if that is unknown, or no limit.",
        _failed_used,
    ),
    ("schedq_promoter_lag_seconds", "How long the earliest delayed job has been due without being promoted.", _lag_s),
)
"""Name, help text and value of each gauge, computed from a queue's reading; None omits the gauge."""


GATE_GAUGES: Final[tuple[tuple[str, str, Callable[[GateStatus], int | None]], ...]] = (
    (
        "schedq_gate_waiting",
        "Jobs that wait in a gate; of more than 600 keys, at least that many.",
        lambda gate: gate.waiting if gate.name else None,
    ),
    (
        "schedq_gate_keys_ready",
        "Keys of a gate that may start a job now, if the gate may.",
        lambda gate: gate.ready if gate.name else None,
    ),
    ("schedq_gate_running", "Jobs of a gate that run.", lambda gate: gate.running),
    ("schedq_gate_limit", "How many may run; absent without such a limit.", lambda gate: gate.limits.concurrency),
    ("schedq_gate_paused", "1 while a gate is paused.", lambda gate: int(gate.state == "paused")),
)
"""Name, help text and value of each gauge; None omits it."""


BATCH_GAUGES: Final[tuple[tuple[str, str, Callable[[OpenBatches], float]], ...]] = (
    ("schedq_batches_open", "Batches and chains that have not ended.", lambda it: it.total),
    (
        "schedq_batch_children_waiting",
        "Children of open batches that are not jobs yet; of more than 200 batches, of 200.",
        lambda it: it.waiting,
    ),
    (
        "schedq_batch_children_running",
        "Children of open batches that are jobs now, waiting or running; of more than 200 batches, of 200.",
        lambda it: it.running,
    ),
    (
        "schedq_batch_stalled_seconds",
        "The longest time for which no child of an open batch has ended and none was added, to 10 s; 0 without one.",
        lambda it: it.stalled_ms / 1000,
    ),
)
"""Name, help text and value of each gauge of a queue that has batches or chains."""


class RedisQueues:
    """The queues of one Redis, read repeatedly over a dedicated connection.

    Args:
        address: of Redis.
        find: returns the settings of the queues to read; called for each reading.
    """

    def __init__(self, address: Address, find: Callable[[], Sequence[Settings]]) -> None:
        self.label = address.label
        self._address = address
        self._find = find
        self._clients: dict[str, Client] = {}

    @classmethod
    def of(cls, queues: Sequence[QueueBase]) -> Self:
        """The queues of an application that share one Redis."""
        settings = [replace(queue.settings, retry_for=RETRY_S, listed=False) for queue in queues]
        return cls(queues[0].address, lambda: settings)

    def read(self) -> list[Reading]:
        """Read all of them; blocks.

        Raises:
            SchedqError: Redis does not respond, or refuses.
        """
        queues = self._find()
        if not self._address.is_cluster:
            return self._client("", queues[0]).drive(readings(queues)) if queues else []
        # Each queue may be on a different node.
        return [found for queue in queues for found in self._client(queue.name, queue).drive(readings([queue]))]

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()

    def _client(self, key: str, queue: Settings) -> Client:
        if key not in self._clients:
            self._clients[key] = Client(self._address, queue)
        return self._clients[key]


class QueueCollector:
    """A collector for a registry of prometheus-client; reads Redis when scraped, at most once every `fresh_s`.

    If a Redis does not respond, its queues are left out and its `schedq_redis_up` is 0.

    Args:
        redis: the queues to read. If there are several, metrics of queues have a label `redis`.
        fresh_s: seconds for which readings are served again.

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
        self._throttle = LogThrottle()

    def describe(self) -> list[Metric]:
        """Return no metrics, so that registering the collector does not read Redis."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        found = self._readings()
        up = GaugeMetricFamily("schedq_redis_up", "1 if Redis responded to the last request.", labels=["redis"])
        families = _Families(("queue", "redis") if len(found) > 1 else ("queue",))
        for label, there in found:
            up.add_metric([label], 0 if there is None else 1)
            for reading in there or ():
                families.add(reading, [reading.queue, label] if len(found) > 1 else [reading.queue])
        yield from (
            up,
            families.jobs,
            families.readable,
            *families.gauges,
            *families.totals.values(),
            *families.gates,
            *families.batches,
        )

    def close(self) -> None:
        """Close the connections."""
        for redis in self._redis:
            redis.close()

    def _readings(self) -> list[tuple[str, list[Reading] | None]]:
        with self._lock:  # a concurrent scrape waits and gets the same readings
            if self._read_at is None or monotonic() - self._read_at >= self._fresh_s:
                self._found = [(redis.label, self._read(redis)) for redis in self._redis]
                self._read_at = monotonic()
            return self._found

    def _read(self, redis: RedisQueues) -> list[Reading] | None:
        try:
            found = redis.read()
        except SchedqError as error:
            self._throttle.log("metrics", error, logging.WARNING)
            return None
        for reading in found:
            if reading.problem:
                self._throttle.log("metrics", SchedqError(f"queue {reading.queue}: {reading.problem}"), logging.WARNING)
        return found


class _Families:
    """The metric families of one scrape."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.jobs = GaugeMetricFamily("schedq_jobs", "Jobs in each state.", labels=[*labels, "state"])
        self.readable = GaugeMetricFamily(
            "schedq_queue_readable", "0 if a key of the queue is of the wrong type.", labels=labels
        )
        self.gauges = [GaugeMetricFamily(name, text, labels=labels) for name, text, _ in GAUGES]
        self.gates = _GateFamilies(labels)
        self.batches = [GaugeMetricFamily(name, text, labels=labels) for name, text, _ in BATCH_GAUGES]
        self.totals = {
            what: CounterMetricFamily(name, f"{text} Counted inside Redis, since the queue began.", labels=labels)
            for what, (name, text) in TOTALS.items()
        }

    def add(self, reading: Reading, labels: Sequence[str]) -> None:
        """Add the metrics of one queue."""
        stats = reading.stats
        self.readable.add_metric(labels, 0 if stats is None else 1)
        if stats is None:
            return
        for place in JOB_STATES:
            self.jobs.add_metric([*labels, place], stats[f"{place}_depth"])
        for family, (_, _, read) in zip(self.gauges, GAUGES, strict=True):
            value = read(stats, reading)
            if value is not None:
                family.add_metric(labels, value)
        self.gates.add(reading.gates, labels)
        if reading.batches is not None:
            for family, (_, _, measure) in zip(self.batches, BATCH_GAUGES, strict=True):
                family.add_metric(labels, measure(reading.batches))
        for what, total in self.totals.items():
            total.add_metric(labels, stats[f"{what}_total"])


class _GateFamilies:
    """The metric families of gates of one scrape."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._families = [GaugeMetricFamily(name, text, labels=[*labels, "gate"]) for name, text, _ in GATE_GAUGES]

    def add(self, gates: Sequence[GateStatus], labels: Sequence[str]) -> None:
        """Add the metrics of a queue's gates."""
        for family, (_, _, read) in zip(self._families, GATE_GAUGES, strict=True):
            for gate in gates:
                value = read(gate)
                if value is not None:
                    family.add_metric([*labels, gate.name], value)

    def __iter__(self) -> Iterator[Metric]:
        return iter(family for family in self._families if family.samples)
