"""Where one job stands, looked at closely: what its hash says, and every place that holds it.

Plain commands, so not one instant: the hash is read before and after, and if it differs the job has moved meanwhile
and nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from schedq.doctor.asking import asked, plain
from schedq.doctor.places import LISTS, SETS
from schedq.errors import Conflict, SchedqError
from schedq.keys import QueueKeys
from schedq.lifecycle import COMPLETED
from schedq.operations import Flow, Operation

_SEARCHED: Final = 10_000
"""Entries of each end of a list that are searched for one id: what a script of schedq's searches too."""
_FIELDS: Final = ("status", "attempts", "claim_token", "settled_token", "request", "enqueued_at_ms", "released")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands.

    Attributes:
        id: the job.
        kind: of its key: hash, none, or what it should not be.
        status: as its hash has it; '' without one.
        expires: its record has a time to live.
        places: each place that holds it -> how often.
        has_lease: it is in `leases`.
        is_sure: it was looked for in all of each place that may have it; else one is too long to be searched, or of a
            wrong type.
    """

    id: str
    kind: str
    status: str
    expires: bool
    places: dict[str, int]
    has_lease: bool
    is_sure: bool


def look(keys: QueueKeys, ids: Sequence[str], lengths: dict[str, int]) -> Flow[list[Standing]]:
    """Look at some jobs closely; those that moved meanwhile are left out."""
    long = {place for place in LISTS if lengths.get(place, 0) > 2 * _SEARCHED}
    found: list[Standing] = []
    for job_id in ids:
        answers = yield from asked(_questions(keys, job_id))
        standing = _read(job_id, answers, long)
        if standing is not None:
            found.append(standing)
    return found


def _questions(keys: QueueKeys, job_id: str) -> list[Operation[Any]]:
    key = keys.job(job_id)
    state = plain("HMGET", key, *_FIELDS)
    lists = [
        plain("LPOS", getattr(keys, place), job_id, "RANK", rank, "COUNT", 5, "MAXLEN", _SEARCHED)
        for place in LISTS
        for rank in (1, -1)
    ]
    return [
        state,
        *lists,
        *(plain("ZSCORE", getattr(keys, place), job_id) for place in SETS),
        plain("TYPE", key),
        plain("PTTL", key),
        state,
    ]


def _read(job_id: str, answers: Sequence[Any], long: set[str]) -> Standing | None:
    before, *rest, kind, expiry, after = answers
    if repr(before) != repr(after) and not isinstance(before, SchedqError):
        return None
    if any(isinstance(answer, SchedqError) and not isinstance(answer, Conflict) for answer in answers):
        return None
    places: dict[str, int] = {}
    for number, place in enumerate(LISTS):
        ends = rest[2 * number : 2 * number + 2]
        at = {position for end in ends if isinstance(end, list) for position in end}
        if at:
            places[place] = len(at)
    delayed, lease = rest[2 * len(LISTS) :]
    if isinstance(delayed, str):
        places["delayed"] = 1
    status = (before[0] or "") if isinstance(before, list) else ""
    # Completed jobs are many. Nobody but a completed job is missed for standing unseen among them.
    unseen = long if status == COMPLETED else long - {COMPLETED}
    is_sure = not unseen and not any(isinstance(answer, SchedqError) for answer in rest)
    return Standing(job_id, str(kind), status, int(expiry) >= 0, places, isinstance(lease, str), is_sure)
