"""How a queue has been doing: samples that the promoter takes every 10 s, and rates computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from schedq.model.checks import whole_number
from schedq.model.payload import loaded
from schedq.model.records import whole
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation

_SAMPLE: Final = Binding("sample", "promoter_id")
SPACING_MS: Final = 10_000
"""The least time between two samples; a promoter looks about once a second."""
MOST_SAMPLES: Final = 2160
"""How many samples may be read: the release before kept that many."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A queue at one instant; totals and depths as from `stats()`, instants in ms on Redis's clock.

    While nothing changes, only the first and the last sample are kept, so consecutive samples may be far apart. Of each
    minute before the last hour, one is kept: the last one, with the largest `oldest_pending_ms`, `lateness_p99_ms` and
    `run_p99_ms` of that minute.

    Attributes:
        at_ms: when it was taken.
        enqueued_total: enqueued jobs since the queue began; likewise the other totals.
        completed_total: likewise.
        failed_total: likewise.
        retried_total: likewise.
        reclaimed_total: likewise.
        pending_depth: jobs in that state; likewise the other depths.
        delayed_depth: likewise.
        processing_depth: likewise.
        failed_depth: likewise.
        next_due_ms: the earliest due instant; None if nothing is delayed.
        overdue_ms: how long ago that was; 0 if it is in the future.
        oldest_pending_ms: how long the next job in line had waited; 0 if none waited.
        workers: live workers.
        measured: number of jobs behind the next four values: the last ones, at most 100, that completed since the
            previous sample.
        lateness_p50_ms: median time from when a job could start to its start; None without jobs.
        lateness_p99_ms: its 99th percentile.
        run_p50_ms: median run time.
        run_p99_ms: its 99th percentile.
    """

    at_ms: int
    enqueued_total: int
    completed_total: int
    failed_total: int
    retried_total: int
    reclaimed_total: int
    pending_depth: int
    delayed_depth: int
    processing_depth: int
    failed_depth: int
    next_due_ms: int | None
    overdue_ms: int
    oldest_pending_ms: int
    workers: int
    measured: int
    lateness_p50_ms: int | None
    lateness_p99_ms: int | None
    run_p50_ms: int | None
    run_p99_ms: int | None


@dataclass(frozen=True, slots=True)
class Throughput:
    """Events per second over some time.

    Attributes:
        seconds: the length of that time: shorter than requested if samples do not reach back that far.
        enqueued: jobs per second; likewise the others.
        completed: likewise.
        failed: likewise.
        retried: likewise.
    """

    seconds: float
    enqueued: float
    completed: float
    failed: float
    retried: float


COUNTED: Final = ("enqueued", "completed", "failed", "retried")
_NAMES: Final = tuple(field.name for field in fields(Sample))
_MAYBE_NONE: Final = frozenset(field.name for field in fields(Sample) if "None" in str(field.type))
_STORED: Final = tuple(name for name in _NAMES if name != "overdue_ms")
"""What the words of a line are, in their order."""


def take(queue: Settings, promoter_id: str) -> Operation[float]:
    """Take a sample if one is due and this process is the promoter; returns in how many seconds the next is due."""
    return Operation("sample", *_SAMPLE(queue, promoter_id=promoter_id), lambda reply: int(reply) / 1000)


def newest(queue: Settings, limit: int = MOST_SAMPLES) -> Operation[list[Sample]]:
    """The last `limit` samples, oldest first.

    Raises:
        UsageError: `limit` is not 1 to 2160.
    """
    whole_number("limit", limit, 1, MOST_SAMPLES)
    return Operation("samples", None, (), ("LRANGE", queue.keys.samples, 0, limit - 1), _read)


def _read(lines: Sequence[str]) -> list[Sample]:
    found = [sample for line in reversed(lines) if (sample := _sample(line)) is not None]
    return sorted(found, key=lambda sample: sample.at_ms)


def _sample(line: str) -> Sample | None:
    """Read a line; None if it is not a sample."""
    stored = loaded(line) if line.startswith("{") else _named(line)
    if not isinstance(stored, dict) or not whole(stored.get("at_ms")):
        return None
    facts: dict[str, Any] = {
        name: None if name in _MAYBE_NONE and stored.get(name) is None else whole(stored.get(name)) for name in _NAMES
    }
    return Sample(**facts)


def _named(line: str) -> dict[str, str | int] | None:
    """The values of a line of words by their names, as in the JSON that the release before wrote."""
    words = line.split(" ")
    if len(words) < len(_STORED):
        return None
    named: dict[str, str | int] = {name: word for name, word in zip(_STORED, words, strict=False) if word != "-"}
    due = named.get("next_due_ms")
    return named | {"overdue_ms": max(0, whole(named.get("at_ms")) - whole(due)) if due else 0}


def rate(found: Sequence[Sample], totals: dict[str, int], now_ms: int, seconds: int) -> Throughput | None:
    """Events per second in the last `seconds`; None if there is no sample.

    Events between two samples are taken to be evenly distributed.

    Args:
        found: samples, oldest first.
        totals: current totals, as from `stats()`.
        now_ms: the instant of `totals`.
        seconds: how far to look back.
    """
    before = [sample for sample in found if sample.at_ms < now_ms]
    if not before:
        return None
    since = max(now_ms - 1000 * seconds, before[0].at_ms)
    left = max((sample for sample in before if sample.at_ms <= since), key=lambda sample: sample.at_ms)
    right = min((sample for sample in before if sample.at_ms > since), key=lambda sample: sample.at_ms, default=None)
    right_ms = now_ms if right is None else right.at_ms
    share = (since - left.at_ms) / (right_ms - left.at_ms)
    span_s = (now_ms - since) / 1000
    counted = []
    for name in COUNTED:
        total = f"{name}_total"
        first = getattr(left, total)
        last = totals[total] if right is None else getattr(right, total)
        # If totals were reset, they count from the reset.
        counted.append(max(0.0, totals[total] - first - share * max(0, last - first)) / span_s)
    return Throughput(span_s, *counted)
