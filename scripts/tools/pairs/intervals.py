"""The statistics of paired measurements."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SLOWER: Final = 1.03
"""A row is slower if the lower end of its interval is above this."""
_RESAMPLES: Final = 4000


@dataclass(frozen=True, slots=True)
class Interval:
    """The median of paired ratios with its 90 % interval.

    Attributes:
        median: of the ratios, new to old.
        low: lower end of the interval.
        high: upper end.
    """

    median: float
    low: float
    high: float

    @property
    def is_slower(self) -> bool:
        """Whether the new version needs more time beyond doubt."""
        return self.low > SLOWER

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Interval:
        """Bootstrap the median; the seed is fixed, so equal ratios give equal intervals."""
        draw = random.Random(1)
        medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES))
        return cls(statistics.median(ratios), medians[_RESAMPLES // 20], medians[-_RESAMPLES // 20 - 1])
