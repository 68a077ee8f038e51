"""Figures of tasks: what all workers of a queue have counted, by task and time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schedq.errors import UsageError
from schedq.inspect.stats import stats
from schedq.model.settings import Settings
from schedq.model.task_stats import Counts
from schedq.model.times import Duration, duration_ms, span
from schedq.transitions import Operation, RoundTrips, pairs, unwrap

_FIVE_MINUTES_MS: Final = 300_000
_HOUR_MS: Final = 3_600_000
_INSTANT: Final = re.compile(r"[0-9]{1,15}")
_SPANS: Final = {"m": _FIVE_MINUTES_MS, "h": _HOUR_MS}
FINE_MS: Final = 24 * _FIVE_MINUTES_MS
"""How far the counts of five minutes reach back; those of hours reach back 48 hours."""
COARSE_MS: Final = 48 * _HOUR_MS


@dataclass(frozen=True, slots=True)
class CountedTime:
    """What was counted in some time, by task; instants are ms on Redis's clock.

    Attributes:
        since_ms: its beginning; 0 for all time.
        until_ms: its end.
        tasks: the counts by task; '' stands for payloads that call no task, '(other)' for tasks beyond the first 300.
    """

    since_ms: int
    until_ms: int
    tasks: Mapping[str, Counts]

    @property
    def seconds(self) -> float:
        """The length of this time."""
        return (self.until_ms - self.since_ms) / 1000

    @property
    def all(self) -> Counts:
        """The sum over all tasks."""
        return sum(self.tasks.values(), Counts())


@dataclass(frozen=True, slots=True)
class TaskStats:
    """What the workers of a queue have counted. They report every 10 s, so the newest jobs are missing.

    Only workers of schedq count. Jobs that are claimed by hand or by programs in other languages do not count, nor do
    jobs that no worker finished: those that expired or were cancelled while they waited, and those that failed because
    their workers died too often.

    Attributes:
        now_ms: when this was read, on Redis's clock.
        times: the counted times, oldest first: hours up to 48 hours ago, and five minutes up to two hours ago. The
            latter are also part of the hours.
        ever: the counts since the queue began.
    """

    now_ms: int
    times: tuple[CountedTime, ...]
    ever: CountedTime

    def within(self, period: Duration) -> CountedTime:
        """What was counted in the last `period`, at most 48 hours; it begins with full five minutes, or a full hour.

        Raises:
            UsageError: `period` is longer, or is no duration.
        """
        parts = self.history(period)
        tasks: dict[str, Counts] = {}
        for part in parts:
            for task, counts in part.tasks.items():
                tasks[task] = tasks.get(task, Counts()) + counts
        return CountedTime(parts[0].since_ms, self.now_ms, tasks)

    def history(self, period: Duration) -> list[CountedTime]:
        """The counted times of the last `period`, at most 48 hours, oldest first, without a gap.

        They are five minutes each if `period` is at most two hours, else an hour. The last one has not ended.

        Raises:
            UsageError: `period` is longer, or is no duration.
        """
        period_ms = duration_ms(period, "period")
        if not 0 < period_ms <= COARSE_MS:
            raise UsageError(
                f"period: {span(period_ms)} is not between 0 and 48 hours, which is how long counts are kept"
            )
        length = _FIVE_MINUTES_MS if period_ms <= FINE_MS else _HOUR_MS
        known = {time.since_ms: time for time in self.times if time.until_ms - time.since_ms == length}
        first = (self.now_ms - period_ms) // length * length
        return [
            known.get(since, CountedTime(since, since + length, {}))
            for since in range(max(0, first), self.now_ms + 1, length)
        ]


def task_stats(queue: Settings) -> RoundTrips[TaskStats]:
    """Read the figures of tasks: one round trip."""
    found, fields = yield [stats(queue), counted(queue)]
    return read_task_stats(unwrap(fields), unwrap(found)["now_ms"])


def counted(queue: Settings) -> Operation[dict[str, str]]:
    """The stored figures, for `read_task_stats`."""
    return Operation("task stats", None, (), ("HGETALL", queue.keys.task_stats), pairs)


def read_task_stats(fields: Mapping[str, str], now_ms: int) -> TaskStats:
    """Read the stored figures; a damaged field counts as 0."""
    ever: dict[str, Counts] = {}
    times: dict[tuple[int, int], dict[str, Counts]] = {}
    for name, text in fields.items():
        when, _, task = name.partition(":")
        if when == "t":
            ever[task] = Counts.from_text(text)
        elif when[:1] in _SPANS and _INSTANT.fullmatch(when[1:]):
            times.setdefault((int(when[1:]), _SPANS[when[0]]), {})[task] = Counts.from_text(text)
    found = (CountedTime(since, since + length, tasks) for (since, length), tasks in sorted(times.items()))
    return TaskStats(now_ms, tuple(found), CountedTime(0, now_ms, ever))
