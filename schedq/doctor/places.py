"""What a queue's places hold, read by pages: all of it, or of a long place both ends.

A queue goes on while it is read, so what is read here is a reason to look twice (`standing`), never a verdict.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from schedq.doctor.asking import asked, known, plain
from schedq.errors import SchedqError
from schedq.keys import QueueKeys
from schedq.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, FINISHED, PENDING, PROCESSING
from schedq.operations import Flow

LISTS: Final = (PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED)
SETS: Final = (DELAYED, "leases")
LIVE: Final = (PENDING, PROCESSING, DELAYED)
LONG_PENDING: Final = 10_000
"""Beyond this a cancelled job's entry stays in `pending` until a claim meets it."""
_PAGE: Final = 500
_SCANNED: Final = 500
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(slots=True)
class Places:
    """What was read of a queue.

    Attributes:
        ids: the ids of each place that were read; an id as often as it was met.
        lengths: how many each holds.
        whole: places that were read from end to end; not those that were too long, or could not be read.
        status: of every id that was looked up: its status, '' without one, None if nothing is stored, `?` if that is
            of a wrong type or may not be read.
        hashes: ids of job hashes that were met in the key space.
        scanned: keys that were looked at for that.
        keys: keys that the server has; 0 if it does not say.
        is_scanned: all of them were looked at.
    """

    ids: dict[str, list[str]] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    status: dict[str, str | None] = field(default_factory=dict)
    hashes: set[str] = field(default_factory=set)
    scanned: int = 0
    keys: int = 0
    is_scanned: bool = False


def look(keys: QueueKeys, sample: int) -> Flow[Places]:
    """Read the places, at most `sample` entries of each, and as many keys ten times over for hashes in no place."""
    found = Places()
    for place in (*LISTS, *SETS):
        yield from _read(found, keys, place, sample)
    yield from _scan(found, keys, 10 * sample)
    held = {job_id for ids in found.ids.values() for job_id in ids}
    yield from _statuses(found, keys, [*held, *sorted(found.hashes - held)])
    return found


def _read(found: Places, keys: QueueKeys, place: str, sample: int) -> Flow[None]:
    key = getattr(keys, place)
    count, read = ("ZCARD", "ZRANGE") if place in SETS else ("LLEN", "LRANGE")
    (length,) = yield [plain(count, key)]
    is_readable = not isinstance(length, SchedqError)
    found.lengths[place] = length = known(length, 0)
    if length <= sample:
        if is_readable:
            found.whole.add(place)
        spans = [(first, min(first + _PAGE, length) - 1) for first in range(0, length, _PAGE)]
    else:
        half = sample // 2
        spans = [(first, min(first + _PAGE, half) - 1) for first in range(0, half, _PAGE)]
        spans += [(-last, max(0, last - _PAGE) * -1 - 1) for last in range(half, 0, -_PAGE)]
    ids: list[str] = []
    for span in spans:
        (page,) = yield [plain(read, key, *span)]
        ids += known(page, [])
    found.ids[place] = ids


def _scan(found: Places, keys: QueueKeys, most: int) -> Flow[None]:
    (size,) = yield [plain("DBSIZE")]
    found.keys = known(size, 0)
    cursor = "0"
    while found.scanned < most:
        (answer,) = yield [plain("SCAN", cursor, "MATCH", f"{keys.jobs}*", "COUNT", _SCANNED)]
        if isinstance(answer, SchedqError):
            return
        cursor, page = answer
        found.scanned += _SCANNED
        found.hashes.update(name.removeprefix(keys.jobs) for name in page)
        if cursor == "0":
            found.is_scanned = True
            return


def _statuses(found: Places, keys: QueueKeys, ids: list[str]) -> Flow[None]:
    answers = yield from asked([plain("HGET", keys.job(job_id), "status") for job_id in ids])
    bare: list[str] = []
    for job_id, answer in zip(ids, answers, strict=True):
        if isinstance(answer, SchedqError):
            found.status[job_id] = "?"
        elif answer is None:
            bare.append(job_id)
        else:
            found.status[job_id] = answer
    there = yield from asked([plain("EXISTS", keys.job(job_id)) for job_id in bare])
    for job_id, answer in zip(bare, there, strict=True):
        found.status[job_id] = "?" if isinstance(answer, SchedqError) else ("" if answer else None)


def suspects(found: Places) -> tuple[list[str], int]:
    """The ids that deserve a second look, and how many hashes could not be judged: their place was not read whole."""
    doubtful: set[str] = set()
    held = Counter(
        job_id
        for place, ids in found.ids.items()
        for job_id in ids
        if place != "leases" and not (place == PENDING and _may_stay(found, job_id))
    )
    doubtful.update(job_id for job_id, count in held.items() if count > 1)
    for place in LIVE:
        doubtful.update(job_id for job_id in found.ids.get(place, ()) if _is_odd(found, place, job_id))
    for place in (FAILED, CANCELLED):
        doubtful.update(job_id for job_id in found.ids.get(place, ()) if found.status.get(job_id) in (None, "?"))
    leases, running = set(found.ids.get("leases", ())), set(found.ids.get(PROCESSING, ()))
    if found.whole.issuperset(("leases", PROCESSING)):
        doubtful |= leases ^ running
    unjudged = 0
    waiting = set(found.ids.get(PENDING, ()))
    for job_id in found.hashes - held.keys():
        place = found.status.get(job_id) or ""
        if _may_stay(found, job_id) and (job_id in waiting or PENDING not in found.whole):
            continue  # what stays of a cancelled job whose record was trimmed
        if found.whole.issuperset((place,) if place in (*LISTS, DELAYED) else (*LISTS, DELAYED)):
            doubtful.add(job_id)
        else:
            unjudged += 1
    return sorted(doubtful), unjudged


def limits(found: Places, unjudged: int) -> Iterator[str]:
    """What was not looked at, in words."""
    for place, length in found.lengths.items():
        if place not in found.whole and found.ids[place]:
            yield f"{len(found.ids[place]):,} of {length:,} entries of {place} were looked at, at both ends"
    if not found.is_scanned and found.scanned:
        yield f"jobs in no place were looked for among {found.scanned:,} of {found.keys:,} keys"
    if unjudged:
        yield f"{unjudged:,} jobs could not be judged, as the places that they may be in were not read whole"


def _is_odd(found: Places, place: str, job_id: str) -> bool:
    status = found.status.get(job_id)
    if place == PENDING and _may_stay(found, job_id):
        return False
    return status is None or status == "?" or status in FINISHED or not _ID.fullmatch(job_id)


def _may_stay(found: Places, job_id: str) -> bool:
    """Whether an entry of `pending` is one that a cancel left there, as the list is too long to be searched."""
    return found.status.get(job_id) == CANCELLED and found.lengths[PENDING] > LONG_PENDING
