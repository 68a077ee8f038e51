"""What recurs, whatever it is made of: the next slot, the slots of a time, how many, the last one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from schedq.errors import UsageError
from schedq.instants import Duration, duration_ms

SHORTEST_MS: Final = 10


class Rhythm(Protocol):
    """An endless or ending row of instants, UTC ms; those of a time are after its begin, and its end counts."""

    def next_after(self, instant_ms: int) -> int | None:
        """The first slot that is later than the instant; None if there is never one again."""
        ...

    def between(self, after_ms: int, until_ms: int) -> Iterator[int]:
        """The slots later than `after_ms` and not later than `until_ms`, in ascending order."""
        ...

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many slots `between` would yield, without making them."""
        ...

    def words(self) -> str:
        """The rhythm in words."""
        ...

    @property
    def meaning(self) -> tuple[object, ...]:
        """What decides its slots: equal for rhythms that have the same ones."""
        ...


def slots(rhythm: Rhythm, after_ms: int, until_ms: int) -> Iterator[int]:
    """The slots later than `after_ms` and not later than `until_ms`, in ascending order."""
    return rhythm.between(after_ms, until_ms)


def last(rhythm: Rhythm, after_ms: int, until_ms: int) -> int | None:
    """The last slot later than `after_ms` and not later than `until_ms`, found without going through the others."""
    found = None
    early, late = after_ms, until_ms
    while early < late:
        middle = (early + late) // 2
        slot = rhythm.next_after(middle)
        if slot is None or slot > until_ms:
            late = middle
        else:
            found = early = slot
    return found


@dataclass(frozen=True, slots=True)
class Interval:
    """A slot every `every_ms`, in step with `anchor_ms`: real time, whatever clocks on walls do.

    Attributes:
        every_ms: between two slots.
        anchor_ms: one of the slots; there are others before it, too.
    """

    every_ms: int
    anchor_ms: int = 0

    def next_after(self, instant_ms: int) -> int:
        """The first slot that is later than the instant."""
        return instant_ms + self.every_ms - (instant_ms - self.anchor_ms) % self.every_ms

    def between(self, after_ms: int, until_ms: int) -> Iterator[int]:
        """The slots later than `after_ms` and not later than `until_ms`."""
        return iter(range(self.next_after(after_ms), until_ms + 1, self.every_ms))

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many of them there are."""
        return len(range(self.next_after(after_ms), until_ms + 1, self.every_ms))

    @property
    def meaning(self) -> tuple[object, ...]:
        """What decides its slots."""
        return self.every_ms, self.anchor_ms % self.every_ms

    def words(self) -> str:
        """The rhythm in words: `every 1 h 30 min`."""
        parts, rest = [], self.every_ms
        for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)):
            number, rest = divmod(rest, unit_ms)
            if number:
                parts.append(f"{number} {unit}")
        return f"every {' '.join(parts)}"


def every(interval: Duration, *, anchor_ms: int = 0) -> Interval:
    """A slot every `interval` (seconds or a timedelta), in step with `anchor_ms`.

    Raises:
        UsageError: shorter than 10 ms, no duration, or the anchor is no integer.
    """
    every_ms = duration_ms(interval, "every")
    if every_ms < SHORTEST_MS:
        raise UsageError(f"every must be at least {SHORTEST_MS} ms, got {interval!r}")
    if type(anchor_ms) is not int:
        raise UsageError(f"anchor_ms must be an instant in whole milliseconds, got {anchor_ms!r:.40}")
    return Interval(every_ms, anchor_ms)
