"""Failed jobs grouped by error: errors that differ only in an id, an address or a number are the same."""

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
    """Replace a long run of letters, digits, `_` and `-` by `<id>` if it has letters and digits; outer dashes stay."""
    text = run[0]
    core = text.strip("-")
    if len(core) < _SHORTEST_ID or not _DIGIT.search(core) or not _LETTER.search(core):
        return text
    before, _, after = text.partition(core)
    return f"{before}<id>{after}"


_SHORTEST_ID: Final = 16
_DIGIT: Final = re.compile(r"[0-9]")
_LETTER: Final = re.compile(r"[A-Za-z]")
# Error texts come from anywhere, so each pattern must take linear time: a search must not start again within a run that
# has already failed (hence the lookbehind), and must not backtrack (++). Groups must not be possessive: before Python
# 3.11.5, one that fails half-way keeps what it matched.
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
    """Failed jobs with the same error.

    Attributes:
        text: the first line of the error, with `<id>`, `<n>` or `<address>` in place of what differs.
        example: the beginning of the newest job's error.
        count: how many of the jobs looked at.
        first_at_ms: when the first of them failed, ms on Redis's clock; 0 if unknown.
        last_at_ms: when the last of them failed.
        tasks: the number of jobs per task, largest first; '' stands for payloads that are not task calls.
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
    """Failed jobs, grouped by error.

    Attributes:
        groups: the groups, largest first.
        looked_at: how many failed jobs were looked at, the newest ones.
        failed: how many failed jobs there are; some of their records may have expired.
    """

    groups: tuple[ErrorGroup, ...]
    looked_at: int
    failed: int


def masked(error: str) -> str:
    """The first line of an error, with everything that differs from job to job masked."""
    lines = error.strip().splitlines()
    text = lines[0][:_LONGEST] if lines else ""
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return text


def errors(queue: Settings, limit: int) -> RoundTrips[Errors]:
    """Group the newest `limit` failed jobs by error, reading them page by page.

    Raises:
        UsageError: `limit` is not 1 to 100,000.
    """
    whole_number("limit", limit, 1, MOST_LOOKED_AT)
    place = queue.keys.failed
    (count,) = yield [Operation("errors", None, (), ("LLEN", place), int)]
    seen: set[str] = set()
    alike: dict[str, list[JobSummary]] = {}
    looked_at = 0
    while looked_at < limit:
        (reply,) = yield [summaries(queue, place, "newest", looked_at, min(limit - looked_at, MOST_SUMMARIZED))]
        page: list[JobSummary] = unwrap(reply)
        if not page:
            break
        looked_at += len(page)
        # Jobs fail between two pages, so one may be on both. Masking after each page, not at the end, lets an event
        # loop run in between.
        for job in page:
            if job.id not in seen and not job.is_gone:
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
