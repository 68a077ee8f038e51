"""The picture of what is coming: a bar for each stretch of time, delayed jobs below and slots of schedules above."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from schedq.cli.show import count
from schedq.dashboard.charts import scale
from schedq.dashboard.wording import number
from schedq.operations.forecast import Bucket, Forecast

WIDTH: Final = 960
HEIGHT: Final = 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 6, 10, 20
_LEAST: Final = 2.0
"""Height of a bar that stands for few jobs beside one that stands for many: what is not nothing shows."""
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.

    Attributes:
        x: its left end.
        width: how wide it is.
        delayed: where its part for delayed jobs begins, and how high that is.
        slots: the same of its part for slots.
        words: all of it in words.
    """

    x: float
    width: float
    delayed: tuple[float, float]
    slots: tuple[float, float]
    words: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The picture, ready to be drawn.

    Attributes:
        bars: in order.
        heights: ticks at the left: where, and what is there.
        times: ticks below.
        words: the same for who can't see it.
        busiest: the minutes with most jobs: when, and how many.
    """

    bars: tuple[Bar, ...]
    heights: tuple[tuple[float, str], ...]
    times: tuple[tuple[float, str], ...]
    words: str
    busiest: tuple[tuple[Bucket, str], ...]


def picture(found: Forecast) -> Picture:
    """The picture of a forecast."""
    top, step = scale(max((bucket.jobs for bucket in found.buckets), default=0))
    step = max(step, 1)
    width = (WIDTH - _LEFT - _RIGHT) / max(1, len(found.buckets))
    is_long = found.until_ms - found.now_ms > _DAY_MS
    bars, times = [], []
    every = max(1, -(-len(found.buckets) // 8))
    for nth, bucket in enumerate(found.buckets):
        x = _LEFT + nth * width
        bars.append(_bar(bucket, x, width, top))
        if nth % every == 0:
            times.append((round(x, 1), _at(bucket.start_ms, is_long=is_long)))
    floor, room = HEIGHT - _BOTTOM, HEIGHT - _TOP - _BOTTOM
    heights = tuple((round(floor - room * n * step / top, 1), number(n * step)) for n in range(round(top / step) + 1))
    words = f"{count(found.delayed, 'delayed job')} and {count(found.slots, 'slot')} of schedules come due"
    busiest = tuple((minute, _at(minute.start_ms, is_long=is_long)) for minute in found.busiest)
    return Picture(tuple(bars), heights, tuple(times), words, busiest)


def _bar(bucket: Bucket, x: float, width: float, top: float) -> Bar:
    floor, room = HEIGHT - _BOTTOM, HEIGHT - _TOP - _BOTTOM
    jobs, slots = (max(_LEAST, room * value / top) if value else 0.0 for value in (bucket.delayed, bucket.slots))
    words = (
        f"{_at(bucket.start_ms, is_long=True)} to {_at(bucket.end_ms, is_long=False)}: "
        f"{count(bucket.delayed, 'delayed job')}, {count(bucket.slots, 'slot')}"
    )
    return Bar(
        round(x + 0.75, 2),
        round(max(1.0, width - 1.5), 2),
        (round(floor - jobs, 2), round(jobs, 2)),
        (round(floor - jobs - slots, 2), round(slots, 2)),
        words,
    )


def _at(ms: int, *, is_long: bool) -> str:
    return f"{datetime.fromtimestamp(ms // 1000, UTC):{'%m-%d %H:%M' if is_long else '%H:%M'}}"
