"""Failed jobs by what went wrong: errors that differ in an id, a number or a quoted value only are one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from schedq.inspect.summary import MOST_SUMMARIZED, JobSummary, summaries
from schedq.model.checks import whole_number
from schedq.model.settings import Settings
from schedq.transitions import Operation, RoundTrips, unwrap

MOST_LOOKED_AT: Final = 100_000
_MOST_NAMED: Final = 10
_LONGEST: Final = 200


def _masked_id(run: re.Match[str]) -> str:
    """A long run of letters, digits, `_` and `-` as `<id>` if it has letters and digits; dashes around it stay."""
    text = run[0]
    core = text.strip("-")
    if len(core) < _SHORTEST_ID or not _DIGIT.search(core) or not _LETTER.search(core):
        return text
    before, _, after = text.partition(core)
    return f"{before}<id>{after}"


_SHORTEST_ID: Final = 16
_DIGIT: Final = re.compile(r"[0-9]")
_LETTER: Final = re.compile(r"[A-Za-z]")
# Anybody can choose an error's text, so each takes time in proportion to it: a search must not begin again within a run
# that has failed already (hence the look behind), and must not give back what it has taken (++). A group may not be
# possessive: before Python 3.11.5 one that fails half-way keeps what it had taken.
_MASKS: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)+"), "<address>"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b0x[0-9a-fA-F]++\b"), "<id>"),
    (re.compile(rf"[A-Za-z0-9_-]{{{_SHORTEST_ID},}}+"), _masked_id),
    (re.compile(r"\b(?=[a-fA-F]*+[0-9])[0-9a-fA-F]{8,}+\b"), "<id>"),
    (re.compile(r"\d++(?:[.,:]\d++)*"), "<n>"),
)


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failed jobs that failed alike.

    Attributes:
        text: the first line of the error, with `<id>`, `<n>` or `<address>` for what differs.
        example: how the error of the newest one begins.
        count: jobs, of those looked at.
        first_at_ms: when the first of them failed, ms on Redis's clock; 0 if that is not known.
        last_at_ms: when the last did.
        tasks: how many there are of each task, the one with the most first; '' for payloads that are no task call.
        job_ids: the newest 10.
    """

    text: str
    example: str
    count: int
    first_at_ms: int
    last_at_ms: int
    tasks: dict[str, int]
    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Errors:
    """What went wrong.

    Attributes:
        groups: the largest first.
        looked_at: failed jobs that were looked at, the newest.
        failed: failed jobs that there are.
    """

    groups: tuple[ErrorGroup, ...]
    looked_at: int
    failed: int


def masked(error: str) -> str:
    """The first line of an error, without what is another one each time."""
    lines = error.strip().splitlines()
    text = lines[0][:_LONGEST] if lines else ""
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return text


def errors(queue: Settings, limit: int) -> RoundTrips[Errors]:
    """Group the newest `limit` failed jobs by their errors; by pages.

    Raises:
        UsageError: limit not within 1 and 100,000.
    """
    whole_number("limit", limit, 1, MOST_LOOKED_AT)
    place = queue.keys.failed
    (count,) = yield [Operation("errors", None, (), ("LLEN", place), int)]
    seen: set[str] = set()
    alike: dict[str, list[JobSummary]] = {}
    looked_at = 0
    while looked_at < limit:
        (answer,) = yield [summaries(queue, place, "newest", looked_at, min(limit - looked_at, MOST_SUMMARIZED))]
        page: list[JobSummary] = unwrap(answer)
        if not page:
            break
        looked_at += len(page)
        # Jobs fail between two pages, so one may be on both. Masking each page between requests gives an event loop
        # its turn.
        for job in page:
            if job.id not in seen:
                seen.add(job.id)
                alike.setdefault(masked(job.error), []).append(job)
    groups = sorted((_group(text, jobs) for text, jobs in alike.items()), key=lambda group: (-group.count, group.text))
    return Errors(tuple(groups), len(seen), max(unwrap(count), len(seen)))


def _group(text: str, jobs: list[JobSummary]) -> ErrorGroup:
    tasks = Counter(job.task for job in jobs)
    instants = [job.ended_at_ms for job in jobs if job.ended_at_ms]
    return ErrorGroup(
        text,
        jobs[0].error,
        len(jobs),
        min(instants, default=0),
        max(instants, default=0),
        dict(sorted(tasks.items(), key=lambda task: (-task[1], task[0]))),
        tuple(job.id for job in jobs[:_MOST_NAMED]),
    )
