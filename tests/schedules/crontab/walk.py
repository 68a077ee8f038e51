"""Slots by brute force: walk UTC step by step, read the wall clock from zoneinfo, apply the rules literally.

Uses nothing of schedq. Only `walk` knows the zone; gaps and folds show in its list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

Matches = Callable[[datetime], bool]
HOUR_S = 3600
DAY_S = 86_400


@dataclass(frozen=True, eq=False)
class Walk:
    """A walk through a period: (instant, wall clock) at each step.

    Attributes:
        jumps: (wall clock before, instant, wall clock) where the clock did not go forward by one step.
    """

    step_s: int
    steps: tuple[tuple[int, datetime], ...]
    jumps: tuple[tuple[datetime, int, datetime], ...]


def wall_clock(instant_s: int, zone: ZoneInfo) -> datetime:
    """The local time in the zone, without an offset."""
    return datetime.fromtimestamp(instant_s, UTC).astimezone(zone).replace(tzinfo=None)


@lru_cache(maxsize=64)
def walk(zone_name: str, start_s: int, end_s: int, step_s: int = 60) -> Walk:
    """(instant, wall clock) for every step of [start_s, end_s)."""
    zone = ZoneInfo(zone_name)
    steps = tuple((instant, wall_clock(instant, zone)) for instant in range(start_s, end_s, step_s))
    step = timedelta(seconds=step_s)
    jumps = tuple((before, late, after) for (_, before), (late, after) in pairwise(steps) if after - before != step)
    return Walk(step_s, steps, jumps)


def changes(zone_name: str, start: datetime, end: datetime) -> Iterator[int]:
    """The instants, to the minute, at which the zone's offset changes between start and end."""
    first, final = int(start.timestamp()), int(end.timestamp())
    for _, hour, _ in walk(zone_name, first, final, HOUR_S).jumps:
        yield from (instant for _, instant, _ in walk(zone_name, hour - HOUR_S, hour + 60).jumps)


@dataclass(frozen=True)
class Meant:
    """The local times of an expression within a walk, before any policy.

    The first and the last hours of a walk are wrong where a change lies just outside: leave six on either side.

    Attributes:
        comings: the instants of each wall time that matches; two where the clock was put back.
        after_gaps: the first minute after each gap that a matching wall time falls into.
    """

    comings: tuple[tuple[int, ...], ...]
    after_gaps: tuple[int, ...]

    @classmethod
    def by(cls, matches: Matches, walked: Walk) -> Meant:
        comings: dict[datetime, list[int]] = {}
        for instant, wall in walked.steps:
            if matches(wall):
                comings.setdefault(wall, []).append(instant)
        return cls(tuple(map(tuple, comings.values())), tuple(_after_gaps(walked, matches)))

    def real_time(self) -> list[int]:
        """The slots, seconds, of an expression that follows real time."""
        return sorted(instant for instants in self.comings for instant in instants)

    def slots(self, gap: str, fold: str) -> list[int]:
        """The slots, seconds, of an expression with fixed times."""
        found: set[int] = set()
        for instants in self.comings:
            found.update({"first": instants[:1], "second": instants[-1:], "both": instants}[fold])
        return sorted(found.union(self.after_gaps if gap == "next" else ()))

    def marks(self, *, fills_gaps: bool) -> dict[int, str]:
        """The facts about a slot."""
        found = dict.fromkeys(self.after_gaps if fills_gaps else (), "gap")
        for instants in self.comings:
            if len(instants) > 1:
                found |= {instants[0]: "first", instants[-1]: "second"}
        return found


def _after_gaps(walked: Walk, matches: Matches) -> Iterator[int]:
    step = timedelta(seconds=walked.step_s)
    for before, instant, after in walked.jumps:
        missing = before + step
        while missing < after and not matches(missing):
            missing += step
        if missing < after:
            assert after.second == 0, "the walks begin at whole minutes, and no change here is within one"
            yield instant
