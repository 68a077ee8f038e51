"""What samples show over time, as the lines of charts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from schedq.dashboard.charts import Chart, Point, chart, milliseconds, sparkline
from schedq.operations.samples import Sample

WINDOWS: Final = {"10m": 600_000, "1h": 3_600_000, "6h": 21_600_000}
"""Times that a chart may show, ms."""
_ROUND: Final = 11_000
"""A little more than the spacing of samples: what is farther apart stood still in between."""


def rates(samples: Sequence[Sample], name: str) -> list[Point]:
    """How fast a total grew, per second: at each sample, since the one before."""
    points: list[Point] = []
    for before, after in pairwise(samples):
        grown = max(0, getattr(after, f"{name}_total") - getattr(before, f"{name}_total"))
        if after.at_ms > before.at_ms:
            points.append((after.at_ms, 1000 * grown / (after.at_ms - before.at_ms)))
    return _held(points)


def values(samples: Sequence[Sample], name: str) -> list[Point]:
    """A value of each sample."""
    return _held([(sample.at_ms, getattr(sample, name)) for sample in samples])


def _held(points: list[Point]) -> list[Point]:
    """While nothing changes no samples are kept: the line goes level to where it goes on."""
    held: list[Point] = []
    for ms, value in points:
        if held and ms - held[-1][0] > 3 * _ROUND:
            held.append((ms - _ROUND, held[-1][1]))
        held.append((ms, value))
    return held


def charts(samples: Sequence[Sample], now_ms: int, window_ms: int) -> list[Chart]:
    """Throughput, depth, lateness and failures of one queue."""
    since = now_ms - window_ms
    lately = [sample for sample in samples if sample.at_ms >= since - 2 * _ROUND]
    return [
        chart(
            "Throughput, jobs per second",
            {("enqueued", "blue"): rates(lately, "enqueued"), ("completed", "green"): rates(lately, "completed")},
            since,
            now_ms,
        ),
        chart(
            "Depth, jobs",
            {
                ("pending", "blue"): values(lately, "pending_depth"),
                ("delayed", "violet"): values(lately, "delayed_depth"),
                ("processing", "green"): values(lately, "processing_depth"),
            },
            since,
            now_ms,
        ),
        chart(
            "Lateness of starts",
            {
                ("median", "blue"): values(lately, "lateness_p50_ms"),
                ("99 in 100", "amber"): values(lately, "lateness_p99_ms"),
            },
            since,
            now_ms,
            milliseconds,
        ),
        chart(
            "Failures, per second",
            {
                ("failed for good", "red"): rates(lately, "failed"),
                ("retried", "amber"): rates(lately, "retried"),
                ("taken back", "violet"): rates(lately, "reclaimed"),
            },
            since,
            now_ms,
        ),
    ]


def sparklines(samples: Sequence[Sample], now_ms: int, window_ms: int) -> dict[str, str]:
    """The same in small."""
    since = now_ms - window_ms
    return {
        "throughput": sparkline(rates(samples, "completed"), since, now_ms),
        "depth": sparkline(values(samples, "pending_depth"), since, now_ms),
        "lateness": sparkline(values(samples, "lateness_p99_ms"), since, now_ms),
        "failures": sparkline(rates(samples, "failed"), since, now_ms),
    }
