"""How a queue has been doing: what the promoter writes down every 10 s, and rates from it."""

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
"""Between two samples, at the least; a promoter looks about once a second."""
MOST_SAMPLES: Final = 2160
"""So many are kept: six hours of a queue in which something happens all the time, longer of others."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How a queue stood at one instant; totals and depths as `stats()` has them, instants ms on Redis's clock.

    While nothing changes only the first and the last sample are kept, so that two neighbours may be far apart.

    Attributes:
        at_ms: when.
        enqueued_total: since the queue began, as the other totals.
        completed_total: likewise.
        failed_total: likewise.
        retried_total: likewise.
        reclaimed_total: likewise.
        pending_depth: jobs there, as the other depths.
        delayed_depth: likewise.
        processing_depth: likewise.
        failed_depth: likewise.
        next_due_ms: the earliest due instant, None when nothing is delayed.
        overdue_ms: by how much that had passed, 0 if it had not.
        oldest_pending_ms: how long the next in line had waited, 0 when nobody did.
        workers: live ones.
        measured: of how many jobs, at most 100, the next four are: the last that completed since the sample before.
        lateness_p50_ms: from when a job could start to its start, half were faster; None without any.
        lateness_p99_ms: the same, of 99 in 100.
        run_p50_ms: from start to end.
        run_p99_ms: likewise.
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
class Rate:
    """What happened per second over some time.

    Attributes:
        seconds: how long that was: shorter than asked for if samples do not reach back so far.
        enqueued: jobs per second, as the others.
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


def take(queue: Settings, promoter_id: str) -> Operation[float]:
    """Write a sample if one is due and this process is the promoter; returns in how many seconds the next is due."""
    return Operation("sample", *_SAMPLE(queue, promoter_id=promoter_id), lambda reply: int(reply) / 1000)


def newest(queue: Settings, limit: int = MOST_SAMPLES) -> Operation[list[Sample]]:
    """The last `limit` samples, oldest first.

    Raises:
        UsageError: limit not within 1 and 2160.
    """
    whole_number("limit", limit, 1, MOST_SAMPLES)
    return Operation("samples", None, (), ("LRANGE", queue.keys.samples, 0, limit - 1), _read)


def _read(lines: Sequence[str]) -> list[Sample]:
    found = [sample for line in reversed(lines) if (sample := _sample(line)) is not None]
    return sorted(found, key=lambda sample: sample.at_ms)


def _sample(line: str) -> Sample | None:
    """What a line says; None for one that is not ours."""
    stored = loaded(line)
    if not isinstance(stored, dict) or not whole(stored.get("at_ms")):
        return None
    facts: dict[str, Any] = {
        name: None if name in _MAYBE_NONE and stored.get(name) is None else whole(stored.get(name)) for name in _NAMES
    }
    return Sample(**facts)


def rate(found: Sequence[Sample], totals: dict[str, int], now_ms: int, seconds: int) -> Rate | None:
    """What happened per second in the last `seconds`; None while there is no sample to go by.

    Between two samples it is taken to have happened evenly.

    Args:
        found: samples, oldest first.
        totals: of now, as `stats()` has them.
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
        # Totals that someone has reset count from there.
        counted.append(max(0.0, totals[total] - first - share * max(0, last - first)) / span_s)
    return Rate(span_s, *counted)
