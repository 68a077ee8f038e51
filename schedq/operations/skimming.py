"""Looking over many jobs at once: of each a few facts, without its payload and result."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from schedq import lua
from schedq.job import whole
from schedq.operations import Operation
from schedq.settings import Settings

MOST_SKIMMED: Final = 150
"""Jobs that one script looks over: it keeps everybody else waiting, for about 10 µs each."""
_WIDTH: Final = 10
_TASK: Final = re.compile(r'\s*\{\s*"task"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True)
class Skimmed:
    """A few facts of one job; instants are ms on Redis's clock, 0 where they do not apply.

    Attributes:
        id: the job.
        task: its name, '' if the payload is no task call.
        lateness_ms: from when it could have been started to its last start; None if that is not known.
        waits_ms: since the last that is known of it.
        started_at_ms: its last attempt.
        ended_at_ms: when it completed or failed.
        attempts: claims so far.
        worker: of the last attempt.
        error: how the last one begins, or ''.
        unknown_since_ms: since when every worker that took it lacked its task.
    """

    id: str
    task: str
    lateness_ms: int | None
    waits_ms: int
    started_at_ms: int
    ended_at_ms: int
    attempts: int
    worker: str
    error: str
    unknown_since_ms: int = 0


@dataclass(frozen=True, slots=True)
class Spread:
    """How some durations are spread; ms, None without any.

    Attributes:
        count: how many there are.
        p50_ms: half are not longer.
        p99_ms: of a hundred, 99 are not longer.
        max_ms: the longest.
    """

    count: int
    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None

    @classmethod
    def of(cls, durations: Iterable[int]) -> Spread:
        """Of these."""
        found = sorted(durations)
        if not found:
            return cls(0, None, None, None)
        return cls(len(found), _quantile(found, 0.5), _quantile(found, 0.99), found[-1])


def _quantile(found: Sequence[int], share: float) -> int:
    return found[math.ceil(share * len(found)) - 1]


def skim(
    queue: Settings, place: str, order: str, offset: int = 0, limit: int = MOST_SKIMMED
) -> Operation[list[Skimmed]]:
    """Look over a page of a place; `order` is newest, oldest or due. Large jobs end it early."""

    def read(reply: list[Any]) -> list[Skimmed]:
        return [_skimmed(*reply[n : n + _WIDTH]) for n in range(1, len(reply), _WIDTH)]

    return Operation(
        "look over", lua.load("skim"), (place,), (queue.keys.jobs, queue.now_argument(), order, offset, limit), read
    )


def _skimmed(
    job_id: str,
    ready: str,
    waits: str,
    started: str,
    ended: str,
    attempts: str,
    worker: str,
    error: str,
    payload: str,
    unknown: str,
) -> Skimmed:
    started_at_ms = whole(started)
    lateness = started_at_ms - whole(ready) if ready else None
    return Skimmed(
        job_id,
        task_of(payload),
        lateness,
        whole(waits),
        started_at_ms,
        whole(ended),
        whole(attempts),
        worker,
        error,
        whole(unknown),
    )


def task_of(payload: str) -> str:
    """The task that a payload calls, of which only the beginning is known; '' if that does not tell."""
    found = _TASK.match(payload)
    try:
        return str(json.loads(found[1])) if found else str(_whole_call(payload))
    except ValueError:
        return ""


def _whole_call(payload: str) -> object:
    """The same of a short one, whatever it begins with."""
    call = json.loads(payload)
    return call.get("task", "") if isinstance(call, dict) else ""
