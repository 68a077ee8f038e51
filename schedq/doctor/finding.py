"""What an examination says: findings, each with its meaning and a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

Level = Literal["error", "warning", "note"]
LEVELS: Final[tuple[Level, ...]] = ("error", "warning", "note")
"""Worst first. error: jobs are lost or stand still, or will; warning: act before that; note: good to know."""
MOST_EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        code: names the kind of finding, for programs; never renamed.
        level: how bad it is; a note wants nothing done.
        says: what was found, with its figures.
        means: what comes of it.
        remedy: what to do.
        queue: the queue, or '' for the server's or everybody's.
        examples: ids, keys or names that it is about, the first few.
    """

    code: str
    level: Level
    says: str
    means: str
    remedy: str
    queue: str = ""
    examples: tuple[str, ...] = ()

    def tagged(self, prefix: str) -> Finding:
        """The same where a cluster's keys begin with `prefix`."""
        return replace(self, remedy=self.remedy.replace(f"queue:{self.queue}:", prefix))


def few(things: Iterable[str]) -> tuple[str, ...]:
    """The first of many, for `Finding.examples`."""
    return tuple(sorted(things)[:MOST_EXAMPLES])


def many(count: int, noun: str) -> str:
    """`1 job`, `1,234 jobs`; a noun with `=` has its plural behind it: `entry=entries`."""
    one, _, more = noun.partition("=")
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def span(ms: float) -> str:
    """A duration in its two largest units that count."""
    seconds = ms / 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{ms:,.0f} ms" if ms < 2000 else f"{seconds:,.1f} s"
