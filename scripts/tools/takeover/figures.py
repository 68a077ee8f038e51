"""The results of a run, and their limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

P99_S = 2.5
WORST_S = 4.0
REQUESTS_PER_S = 1.5


@dataclass(frozen=True)
class Figures:
    """One scenario.

    Attributes:
        name: name of the scenario.
        took_s: per loss, from the holder's death to the next holder's first promotion.
        requests: sent by candidates while they did not hold the lease.
        lasted_s: from the first loss to the last takeover.
    """

    name: str
    took_s: Sequence[float]
    requests: int
    lasted_s: float

    def percentile(self, share: float) -> float:
        """The percentile, by nearest rank."""
        return sorted(self.took_s)[max(0, math.ceil(share * len(self.took_s)) - 1)]

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.lasted_s

    @property
    def misses(self) -> list[str]:
        """The limits that were exceeded."""
        limits = (
            ("p99", self.percentile(0.99), P99_S),
            ("worst", self.percentile(1), WORST_S),
            ("standby requests/s", self.requests_per_s, REQUESTS_PER_S),
        )
        return [f"{self.name}: {what} {found:.2f}, at most {most:g}" for what, found, most in limits if found > most]

    def line(self) -> str:
        """One line of the table."""
        spread = "  ".join(f"{self.percentile(share):5.2f}" for share in (0.5, 0.99, 1))
        return f"{self.name:<70} {len(self.took_s):>6}  {spread}  {self.requests_per_s:>10.2f}"


HEAD = f"{'scenario':<70} {'losses':>6}  {'p50 s':>5}  {'p99 s':>5}  {'worst':>5}  {'requests/s':>10}"
