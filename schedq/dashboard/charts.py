"""Line charts as numbers for a template: paths, ticks and words. They are SVG, and need no script to be seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from schedq.cli.show import NOTHING
from schedq.dashboard.wording import number

Point = tuple[int, float | None]
"""An instant, ms, and a value; None where nothing was measured."""

WIDTH: Final = 480
HEIGHT: Final = 132
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 6, 8, 18
_MOST_POINTS: Final = 240
_STEPS: Final = (1, 2, 5, 10)
_TIME_STEPS_S: Final = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)


@dataclass(frozen=True, slots=True)
class Line:
    """One line.

    Attributes:
        name: what it shows.
        kind: its colour, a class of the style sheet.
        path: of the SVG.
        last: its last value, in words.
    """

    name: str
    kind: str
    path: str
    last: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, ready to be drawn.

    Attributes:
        title: what it shows.
        lines: its lines.
        heights: ticks at the left: where, and what is there.
        times: ticks below.
        words: the same for who can't see it.
    """

    title: str
    lines: tuple[Line, ...]
    heights: tuple[tuple[float, str], ...]
    times: tuple[tuple[float, str], ...]
    words: str

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show yet."""
        return not any(line.path for line in self.lines)


def chart(
    title: str,
    series: Mapping[tuple[str, str], Sequence[Point]],
    since_ms: int,
    until_ms: int,
    say: Callable[[float | None], str] = number,
) -> Chart:
    """A chart of lines over time.

    Args:
        title: what it shows.
        series: by name and kind.
        since_ms: its left end.
        until_ms: its right end.
        say: puts a value into words.
    """
    thin = {names: thinned(points, since_ms, until_ms) for names, points in series.items()}
    most = max((value for points in thin.values() for _, value in points if value is not None), default=0)
    top, step = scale(most)

    def x(ms: int) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (ms - since_ms) / max(1, until_ms - since_ms)

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top

    lines = tuple(
        Line(name, kind, path(points, x, y), say(points[-1][1] if points else None))
        for (name, kind), points in thin.items()
    )
    heights = tuple((round(y(n * step), 1), say(n * step)) for n in range(round(top / step) + 1))
    said = ", ".join(f"{line.name} {line.last}" for line in lines)
    return Chart(title, lines, heights, tuple(_times(since_ms, until_ms, x)), f"{title}: now {said}")


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
    """An SVG path through points; it is interrupted where nothing was measured."""
    parts: list[str] = []
    is_down = False
    for ms, value in points:
        if value is None:
            is_down = False
            continue
        parts.append(f"{'L' if is_down else 'M'}{x(ms):.1f} {y(value):.1f}")
        if not is_down:
            parts.append("h0.01")  # so that a point alone is seen, too
        is_down = True
    return "".join(parts)


def thinned(points: Sequence[Point], since_ms: int, until_ms: int) -> list[Point]:
    """The points of a time, the highest one of each of 240 parts of it: peaks are what one looks for."""
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
    """The top of an axis that has room for `most`, and the step between its ticks, round numbers."""
    if most <= 0:
        return 1, 1
    size = 10 ** math.floor(math.log10(most / 3))
    step = next(size * factor for factor in _STEPS if most <= 3 * size * factor)
    return step * math.ceil(most / step), step


def _times(since_ms: int, until_ms: int, x: Callable[[int], float]) -> Iterable[tuple[float, str]]:
    span_s = (until_ms - since_ms) / 1000
    step_s = next((step for step in _TIME_STEPS_S if span_s / step <= 5), _TIME_STEPS_S[-1])
    first = math.ceil(since_ms / 1000 / step_s) * step_s
    for second in range(first, until_ms // 1000 + 1, step_s):
        at = x(second * 1000)
        if _LEFT + 14 <= at <= WIDTH - 14:
            yield round(at, 1), f"{datetime.fromtimestamp(second, UTC):%H:%M}"


def milliseconds(value: float | None) -> str:
    """A duration on an axis."""
    if value is None:
        return NOTHING
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} ms"
