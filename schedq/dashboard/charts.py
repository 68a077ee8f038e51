"""Charts as data for a template: paths, bars, ticks and labels. The template draws SVG, without JavaScript."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from schedq.inspect.display import NOTHING, count, number
from schedq.inspect.forecast import Bucket, Forecast
from schedq.inspect.samples import Sample
from schedq.model.times import span

Point = tuple[int, float | None]
"""A time, ms, and a value; None where nothing was measured."""
Ticks = tuple[tuple[float, str], ...]
"""The ticks of an axis: position and label."""
Times = tuple[tuple[float, str, int], ...]
"""The ticks of an axis of time: position, label in UTC, and the time, ms; 0 if the label is no time."""

# The edges of the plot, as in `charts.html`.
LEFT, RIGHT, BOTTOM, HEIGHT = 44, 474, 114, 106
_BARS_LEFT, _BARS_RIGHT, _BARS_BOTTOM, _BARS_HEIGHT = 52, 954, 180, 170
_MIN_BAR: Final = 2.0
"""Minimum height of a bar, so that a few jobs stay visible next to many."""
_MOST_POINTS: Final = 240
_ZONES: Final = 48
_STEPS: Final = (1, 2, 5, 10)
_TIME_STEPS_S: Final = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
_DAY_MS: Final = 86_400_000
WINDOWS: Final = {"10m": 600_000, "1h": 3_600_000, "6h": 21_600_000}
"""Periods that a chart of samples can show, ms."""
_SPACING_MS: Final = 11_000
"""A little more than the spacing of samples; nothing changed between samples that are farther apart."""


# -- lines over time


@dataclass(frozen=True, slots=True)
class Zone:
    """A part of a chart from its left to its right edge, with its values as text.

    Attributes:
        x: its left edge.
        width: its width.
        at_ms: the time with which the text begins; 0 if it begins with none.
        label: the values.
    """

    x: float
    width: float
    at_ms: int
    label: str


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart.

    Attributes:
        name: its legend.
        kind: its color, a class of the style sheet.
        path: SVG path.
        last: its last value as text.
    """

    name: str
    kind: str
    path: str
    last: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, ready to be rendered.

    Attributes:
        title: what it shows.
        lines: its lines.
        heights: ticks of the y axis.
        times: ticks of the x axis.
        alt_text: the chart as text, for screen readers.
        zones: its values.
    """

    title: str
    lines: tuple[ChartLine, ...]
    heights: Ticks
    times: Times
    alt_text: str
    zones: tuple[Zone, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there are no values yet."""
        return not any(line.path for line in self.lines)


def chart(
    title: str,
    series: Mapping[tuple[str, str], Sequence[Point]],
    since_ms: int,
    until_ms: int,
    to_text: Callable[[float | None], str] = number,
) -> Chart:
    """A chart of lines over time.

    Args:
        title: what it shows.
        series: by name and kind.
        since_ms: its left end.
        until_ms: its right end.
        to_text: formats a value.
    """
    thin = {names: thinned(points, since_ms, until_ms) for names, points in series.items()}
    top, step = scale(max((value for points in thin.values() for _, value in points if value is not None), default=0))

    def x(ms: int) -> float:
        return LEFT + (RIGHT - LEFT) * (ms - since_ms) / max(1, until_ms - since_ms)

    lines = tuple(
        ChartLine(
            name,
            kind,
            path(points, x, lambda value: BOTTOM - HEIGHT * value / top),
            to_text(points[-1][1] if points else None),
        )
        for (name, kind), points in thin.items()
    )
    marks = heights(BOTTOM, HEIGHT, top, step, to_text)
    values = ", ".join(f"{line.name} {line.last}" for line in lines)
    zones = tuple(_zones(thin, since_ms, until_ms, to_text))
    return Chart(title, lines, marks, tuple(times(since_ms, until_ms, x)), f"{title}: now {values}", zones)


def _zones(
    series: Mapping[tuple[str, str], Sequence[Point]],
    since_ms: int,
    until_ms: int,
    to_text: Callable[[float | None], str],
) -> Iterable[Zone]:
    """The highest values in each part of the time; a value holds until the next one."""
    length, width = max(1, -(-(until_ms - since_ms) // _ZONES)), (RIGHT - LEFT) / _ZONES
    parts: dict[int, dict[str, float | None]] = {}
    for (name, _), points in series.items():
        for ms, value in points:
            part = parts.setdefault((ms - since_ms) // length, {})
            known = [each for each in (part.get(name), value) if each is not None]
            part[name] = max(known, default=None)
    shown: dict[str, float | None] = {}
    for nth in range(_ZONES):
        shown |= parts.get(nth, {})
        if shown:
            at_ms = since_ms + nth * length
            said = ", ".join(f"{name} {to_text(value)}" for name, value in shown.items())
            yield Zone(round(LEFT + nth * width, 1), round(width, 1), at_ms, f"{clock(at_ms)} UTC: {said}")


def sparkline(points: Sequence[Point], since_ms: int, until_ms: int, width: int = 96, height: int = 22) -> str:
    """The path of a small chart without ticks; '' if there is nothing to show."""
    thin = thinned(points, since_ms, until_ms)
    most = max((value for _, value in thin if value is not None), default=0) or 1
    return path(
        thin,
        lambda ms: width * (ms - since_ms) / max(1, until_ms - since_ms),
        lambda value: height - 1 - (height - 2) * value / most,
    )


def path(points: Iterable[Point], x: Callable[[int], float], y: Callable[[float], float]) -> str:
    """An SVG path through points, with a gap where nothing was measured."""
    parts: list[str] = []
    is_drawing = False
    for ms, value in points:
        if value is not None:
            at = f"{x(ms):.1f} {y(value):.1f}"
            parts.append(f"L{at}" if is_drawing else f"M{at}h0.01")  # `h0.01` makes a single point visible
        is_drawing = value is not None
    return "".join(parts)


def thinned(points: Sequence[Point], since_ms: int, until_ms: int) -> list[Point]:
    """At most 240 points, the highest of each part of the time, so that peaks stay visible."""
    width = max(1, (until_ms - since_ms) // _MOST_POINTS)
    kept: dict[int, Point] = {}
    for ms, value in points:
        if not since_ms <= ms <= until_ms:
            continue
        part = (ms - since_ms) // width
        before = kept.get(part, (0, None))[1]
        if before is None or (value is not None and value >= before):
            kept[part] = (ms, value)
    return [*kept.values()]


def scale(most: float) -> tuple[float, float]:
    """The top of an axis that fits `most`, and the step between its ticks, both round numbers."""
    if most <= 0:
        return 1, 1
    size = 10 ** math.floor(math.log10(most / 3))
    step = next(size * factor for factor in _STEPS if most <= 3 * size * factor)
    return step * math.ceil(most / step), step


def heights(bottom: int, height: int, top: float, step: float, to_text: Callable[[float], str]) -> Ticks:
    """Ticks of a y axis."""
    return tuple((round(bottom - height * n * step / top, 1), to_text(n * step)) for n in range(round(top / step) + 1))


def times(since_ms: int, until_ms: int, x: Callable[[int], float]) -> Iterable[tuple[float, str, int]]:
    """Ticks of an axis of time."""
    span_s = (until_ms - since_ms) / 1000
    step_s = next((step for step in _TIME_STEPS_S if span_s / step <= 5), _TIME_STEPS_S[-1])
    first = math.ceil(since_ms / 1000 / step_s) * step_s
    for second in range(first, until_ms // 1000 + 1, step_s):
        at = x(second * 1000)
        if LEFT + 14 <= at <= RIGHT - 8:
            yield round(at, 1), clock(second * 1000), second * 1000


def clock(ms: int, *, is_long: bool = False) -> str:
    """A time of day in UTC, to the minute; with the date if that is wanted."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC):{'%m-%d %H:%M' if is_long else '%H:%M'}}"


def milliseconds(value: float | None) -> str:
    """A duration on an axis."""
    if value is None:
        return NOTHING
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} ms"


# -- the activity of a queue, from its samples


def rates(samples: Sequence[Sample], name: str) -> list[Point]:
    """The growth of a total per second, at each sample, since the previous one."""
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
    """Extend the line horizontally to the next sample: none are stored while nothing changes."""
    held: list[Point] = []
    for ms, value in points:
        if held and ms - held[-1][0] > 3 * _SPACING_MS:
            held.append((ms - _SPACING_MS, held[-1][1]))
        held.append((ms, value))
    return held


Series = tuple[str, str, str, Callable[[Sequence[Sample], str], list[Point]]]
"""A line of a chart: its name, its color, the field of the samples, and the function that reads it."""
_CHARTS: Final[tuple[tuple[str, Callable[[float | None], str], tuple[Series, ...]], ...]] = (
    (
        "Throughput, jobs per second",
        number,
        (("enqueued", "blue", "enqueued", rates), ("completed", "green", "completed", rates)),
    ),
    (
        "Depth, jobs",
        number,
        (
            ("pending", "blue", "pending_depth", values),
            ("delayed", "violet", "delayed_depth", values),
            ("processing", "green", "processing_depth", values),
        ),
    ),
    (
        "Start lateness",
        milliseconds,
        (("median", "blue", "lateness_p50_ms", values), ("p99", "amber", "lateness_p99_ms", values)),
    ),
    (
        "Failures, per second",
        number,
        (
            ("failed for good", "red", "failed", rates),
            ("retried", "amber", "retried", rates),
            ("reclaimed", "violet", "reclaimed", rates),
        ),
    ),
)


def charts(samples: Sequence[Sample], now_ms: int, window_ms: int) -> list[Chart]:
    """Throughput, depth, lateness and failures of one queue."""
    since = now_ms - window_ms
    recent = [sample for sample in samples if sample.at_ms >= since - 2 * _SPACING_MS]
    return [
        chart(title, {(name, color): read(recent, field) for name, color, field, read in lines}, since, now_ms, to_text)
        for title, to_text, lines in _CHARTS
    ]


def window_of(samples: Sequence[Sample], now_ms: int) -> str:
    """The period that a chart shows by default: 10 min while the queue is younger than that, else an hour."""
    return "1h" if samples and now_ms - samples[0].at_ms >= WINDOWS["10m"] else "10m"


def sparklines(samples: Sequence[Sample], now_ms: int, window_ms: int) -> dict[str, str]:
    """The paths of the small charts in the list of queues."""
    points = {
        "throughput": rates(samples, "completed"),
        "depth": values(samples, "pending_depth"),
        "lateness": values(samples, "lateness_p99_ms"),
        "failures": rates(samples, "failed"),
    }
    return {name: sparkline(line, now_ms - window_ms, now_ms) for name, line in points.items()}


# -- what is due when, from the forecast


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.

    Attributes:
        x: its left edge.
        width: its width.
        delayed: top and height of its part for delayed jobs, the lower one.
        slots: top and height of its part for slots of schedules.
        label: the same as text.
        at_ms: when it begins.
    """

    x: float
    width: float
    delayed: tuple[float, float]
    slots: tuple[float, float]
    label: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ForecastChart:
    """One bar per period of time, ready to be rendered.

    Attributes:
        bars: from left to right.
        heights: ticks of the y axis.
        times: ticks of the x axis.
        alt_text: the chart as text, for screen readers.
        busiest: the minutes with the most jobs, each with its time as text.
    """

    bars: tuple[Bar, ...]
    heights: Ticks
    times: Times
    alt_text: str
    busiest: tuple[tuple[Bucket, str], ...]


def forecast_chart(found: Forecast) -> ForecastChart:
    """The chart of a forecast."""
    top, step = scale(max((bucket.jobs for bucket in found.buckets), default=0))
    width = (_BARS_RIGHT - _BARS_LEFT) / max(1, len(found.buckets))
    is_long = found.until_ms - found.now_ms > _DAY_MS
    placed = [(_BARS_LEFT + nth * width, bucket) for nth, bucket in enumerate(found.buckets)]
    every = max(1, -(-len(placed) // 8))
    return ForecastChart(
        tuple(_bar(bucket, x, width, top) for x, bucket in placed),
        heights(_BARS_BOTTOM, _BARS_HEIGHT, top, max(step, 1), number),
        tuple((round(x, 1), clock(bucket.start_ms, is_long=is_long), bucket.start_ms) for x, bucket in placed[::every]),
        f"{count(found.delayed, 'delayed job')} and {count(found.slots, 'slot')} of schedules are due",
        tuple((minute, clock(minute.start_ms, is_long=is_long)) for minute in found.busiest),
    )


def _bar(bucket: Bucket, x: float, width: float, top: float) -> Bar:
    jobs, slots = (
        max(_MIN_BAR, _BARS_HEIGHT * value / top) if value else 0.0 for value in (bucket.delayed, bucket.slots)
    )
    label = (
        f"{clock(bucket.start_ms, is_long=True)} UTC, {span(bucket.end_ms - bucket.start_ms)}: "
        f"{count(bucket.delayed, 'delayed job')}, {count(bucket.slots, 'slot')}"
    )
    return Bar(
        round(x + 0.75, 2),
        round(max(1.0, width - 1.5), 2),
        (round(_BARS_BOTTOM - jobs, 2), round(jobs, 2)),
        (round(_BARS_BOTTOM - jobs - slots, 2), round(slots, 2)),
        label,
        bucket.start_ms,
    )
