"""What waits for its time: scores that can't be meant, and jobs that are overdue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from schedq.doctor.asking import known, plain
from schedq.doctor.finding import Finding, many, span
from schedq.instants import LAST_INSTANT_MS
from schedq.job import score_ms
from schedq.keys import QueueKeys
from schedq.operations import Flow

_SECONDS_END: Final = 100_000_000_000
"""Unix seconds of the year 5138, or the milliseconds of March 1973: nobody means those."""
_LATE_MS: Final = 5000


@dataclass(frozen=True, slots=True)
class Delayed:
    """Figures of `delayed`.

    Attributes:
        seconds: entries whose score looks like Unix seconds, or is negative.
        never: entries whose score is beyond the last instant that schedq knows: micro- or nanoseconds, or infinity.
        overdue: entries that were due more than 5 s ago.
        oldest_ms: due instant of the first of those that can be meant; 0 if there is none.
        now_ms: Redis's clock.
        early: ids of the first of `seconds`.
        late: ids of the first of `never`.
    """

    seconds: int
    never: int
    overdue: int
    oldest_ms: int
    now_ms: int
    early: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


def look(keys: QueueKeys, now_ms: int) -> Flow[Delayed]:
    """Count by score: none of this grows with the queue."""
    key = keys.delayed
    answers = yield [
        plain("ZCOUNT", key, "-inf", f"({_SECONDS_END}"),
        plain("ZCOUNT", key, f"({LAST_INSTANT_MS}", "+inf"),
        plain("ZCOUNT", key, _SECONDS_END, now_ms - _LATE_MS),
        plain("ZRANGE", key, _SECONDS_END, now_ms - _LATE_MS, "BYSCORE", "LIMIT", 0, 1, "WITHSCORES"),
        plain("ZRANGE", key, "-inf", f"({_SECONDS_END}", "BYSCORE", "LIMIT", 0, 5),
        plain("ZRANGE", key, f"({LAST_INSTANT_MS}", "+inf", "BYSCORE", "LIMIT", 0, 5),
    ]
    seconds, never, overdue, oldest, early, late = answers
    first = known(oldest, [])
    return Delayed(
        known(seconds, 0),
        known(never, 0),
        known(overdue, 0),
        score_ms(first[1]) if first else 0,
        now_ms,
        tuple(known(early, [])),
        tuple(known(late, [])),
    )


def judge(queue: str, found: Delayed, *, is_tended: bool) -> Iterator[Finding]:
    """The findings about them; `is_tended`: somebody promotes."""
    if found.seconds:
        yield Finding(
            "due-in-seconds",
            "error",
            many(found.seconds, "delayed job has a score that looks=delayed jobs have scores that look")
            + " like seconds",
            "scores are milliseconds since the epoch: such a job counts as long overdue and starts at once, not at "
            "its time",
            f"let its producer multiply by 1000: ZADD queue:{queue}:delayed MS ID; mend these with schedq reschedule "
            "ID",
            queue=queue,
            examples=found.early,
        )
    if found.never:
        yield Finding(
            "due-never",
            "warning",
            f"{many(found.never, 'delayed job has a score=delayed jobs have scores')} beyond the year 9999",
            "micro- or nanoseconds were written, or infinity: such a job never starts",
            f"let its producer write milliseconds: ZADD queue:{queue}:delayed MS ID; mend these with schedq "
            "reschedule ID",
            queue=queue,
            examples=found.late,
        )
    if found.overdue:
        yield Finding(
            "overdue",
            "warning" if is_tended else "error",
            f"{many(found.overdue, 'delayed job was=delayed jobs were')} due more than 5 s ago, the first one "
            f"{span(found.now_ms - found.oldest_ms)}",
            "nobody moves what is due to where workers find it" if not is_tended else "the promoter does not keep up",
            f"start a worker, or schedq promoter {queue}"
            if not is_tended
            else "look at the log of the process that promotes, and at the server's load",
            queue=queue,
        )
