"""What workers count of each task: how attempts ended, how long they ran, and how late they began."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_LEAST: Final = 2.0**0.5
_BIN: Final = re.compile(r"(\d{1,3}):(\d{1,15})")
_COUNT: Final = re.compile(r"\d{1,15}")
BINS: Final = 81
"""How many bins there are; the last one counts all durations of 24 years and more."""
_MOST_BIN: Final = BINS - 1


def bin_of(ms: int) -> int:
    """The number of the bin that counts a duration: two bins for each doubling, and bin 0 for less than 1 ms."""
    return min((ms * ms).bit_length(), _MOST_BIN)


@dataclass(frozen=True, slots=True)
class Histogram:
    """The distribution of durations, in bins that are 1.41 times as wide as the one before.

    Attributes:
        bins: number of durations by bin; see `edges`.
    """

    bins: Mapping[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.bins.values())

    @staticmethod
    def edges(number: int) -> tuple[float, float]:
        """The least duration that a bin counts, and the first one above it, in ms."""
        return (0.0, 1.0) if number == 0 else (_LEAST ** (number - 1), _LEAST**number)

    def quantile_ms(self, share: float) -> float | None:
        """The duration that this share of all durations does not exceed, at most 41 % off; None without durations."""
        rest = share * self.count
        for number, count in sorted(self.bins.items()):
            if count and rest <= count:
                low, high = self.edges(number)
                return low + (high - low) * rest / count
            rest -= count
        return None

    def __add__(self, other: Histogram) -> Histogram:
        bins = dict(self.bins)
        for number, count in other.bins.items():
            bins[number] = bins.get(number, 0) + count
        return Histogram(bins)


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted of one task in some time.

    Attributes:
        completed: attempts that completed their job.
        failed: attempts after which the job failed for good.
        retried: attempts that failed, after which the job was to be tried again.
        cancelled: attempts that ended because their job was cancelled.
        run_ms: the sum of the run times of all these attempts.
        longest_ms: the longest run time.
        latest_ms: the longest time from when a job could start to its start.
        run: the distribution of their run times.
        lateness: the distribution of the times from when jobs could start (enqueued or due) to their start.
    """

    completed: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    run_ms: int = 0
    longest_ms: int = 0
    latest_ms: int = 0
    run: Histogram = field(default_factory=Histogram)
    lateness: Histogram = field(default_factory=Histogram)

    @property
    def attempts(self) -> int:
        """How many attempts were counted."""
        return self.completed + self.failed + self.retried + self.cancelled

    @property
    def error_rate(self) -> float | None:
        """The share of the attempts that failed, whether or not another one followed; None without attempts."""
        return (self.failed + self.retried) / self.attempts if self.attempts else None

    @property
    def mean_ms(self) -> float | None:
        """The mean run time; None without attempts."""
        return self.run_ms / self.attempts if self.attempts else None

    def run_quantile_ms(self, share: float) -> float | None:
        """The run time that this share of all attempts did not exceed, at most 41 % off; None without attempts."""
        return _at_most(self.run.quantile_ms(share), self.longest_ms)

    def lateness_quantile_ms(self, share: float) -> float | None:
        """The same of the time until their start."""
        return _at_most(self.lateness.quantile_ms(share), self.latest_ms)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.completed + other.completed,
            self.failed + other.failed,
            self.retried + other.retried,
            self.cancelled + other.cancelled,
            self.run_ms + other.run_ms,
            max(self.longest_ms, other.longest_ms),
            max(self.latest_ms, other.latest_ms),
            self.run + other.run,
            self.lateness + other.lateness,
        )

    @classmethod
    def from_text(cls, text: str) -> Counts:
        """Read what `count_tasks.lua` stores; what is damaged counts as 0."""
        sums, longest, run, lateness = (*text.split("|"), "", "", "", "")[:4]
        completed, failed, retried, cancelled, run_ms = _numbers(sums, 5)
        longest_ms, latest_ms = _numbers(longest, 2)
        times = longest_ms, latest_ms, _histogram(run), _histogram(lateness)
        return cls(completed, failed, retried, cancelled, run_ms, *times)


def _at_most(ms: float | None, longest_ms: int) -> float | None:
    """A bin reaches beyond the longest duration in it."""
    return None if ms is None else min(ms, longest_ms)


def _numbers(text: str, count: int) -> list[int]:
    return [*map(int, _COUNT.findall(text)), *[0] * count][:count]


def _histogram(text: str) -> Histogram:
    return Histogram({min(int(number), _MOST_BIN): int(count) for number, count in _BIN.findall(text)})


def bins_text(bins: Mapping[int, int]) -> str:
    """A histogram as it is stored: `BIN:COUNT` for each bin that is not empty."""
    return " ".join(f"{number}:{count}" for number, count in sorted(bins.items()))
