"""Jobs that are not where they should be: nowhere, in two places, finished and waiting, without data or lease.

First the keys of a queue are read by pages, or of long ones both ends. The queue goes on meanwhile, so what is odd
there is only a suspicion: those jobs are looked at again, closely, and only what they show then is judged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schedq.doctor.checks import PAGE, Check, Level, asked, known, own_id, plain, scan
from schedq.errors import Conflict, SchedqError
from schedq.model.keys import QueueKeys
from schedq.model.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, FINISHED, PENDING, PROCESSING
from schedq.transitions import Operation, RoundTrips

_LISTS: Final = (PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED)
_LEASES: Final = "leases"
_SETS: Final = (DELAYED, _LEASES)
_LIVE: Final = (PENDING, PROCESSING, DELAYED)
_LONG_PENDING: Final = 10_000
"""Beyond this a cancelled job's entry stays in `pending` until a claim meets it."""
_SEARCHED: Final = 10_000
"""Entries of each end of a list that are searched for one id: what a script of schedq's searches too."""
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BARE: Final = {0: None, 1: ""}
"""What EXISTS replies of a key without a status -> the status that stands for it."""
_FIELDS: Final = ("status", "attempts", "claim_token", "settled_token", "request", "enqueued_at_ms", "released")


@dataclass(slots=True)
class QueueScan:
    """What was read of a queue.

    Attributes:
        ids: the ids of each list or set that were read; an id as often as it was met.
        lengths: how many entries each has.
        whole: those that were read from end to end; not those that were too long, or could not be read.
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

    def of(self, place: str) -> set[str]:
        """The ids that were read in one list or set."""
        return set(self.ids.get(place, ()))

    def may_stay(self, job_id: str) -> bool:
        """Whether an entry of `pending` is one that a cancel left there, as the list is too long to be searched."""
        return self.status.get(job_id) == CANCELLED and self.lengths[PENDING] > _LONG_PENDING

    def is_odd(self, place: str, job_id: str) -> bool:
        """Whether an entry of a live job looks wrong."""
        is_left = place == PENDING and self.may_stay(job_id)
        is_wrong = self.status.get(job_id) in (None, "?", *FINISHED) or not _ID.fullmatch(job_id)
        return is_wrong and not is_left


def read_queue(keys: QueueKeys, sample: int) -> RoundTrips[QueueScan]:
    """Read at most `sample` entries of each list and set, and ten times as many keys for hashes that none has."""
    found = QueueScan()
    for place in (*_LISTS, *_SETS):
        yield from _read_entries(found, keys, place, sample)
    (size,) = yield [plain("DBSIZE")]
    found.keys = known(size, 0)
    names, found.scanned, found.is_scanned = yield from scan(f"{keys.jobs}*", 10 * sample)
    found.hashes.update(name.removeprefix(keys.jobs) for name in names)
    held = {job_id for ids in found.ids.values() for job_id in ids}
    yield from _read_statuses(found, keys, [*held, *sorted(found.hashes - held)])
    return found


def _read_entries(found: QueueScan, keys: QueueKeys, place: str, sample: int) -> RoundTrips[None]:
    key = getattr(keys, place)
    count, read = ("ZCARD", "ZRANGE") if place in _SETS else ("LLEN", "LRANGE")
    (answer,) = yield [plain(count, key)]
    found.lengths[place] = length = known(answer, 0)
    if length <= sample:
        if not isinstance(answer, SchedqError):
            found.whole.add(place)
        spans = [(first, min(first + PAGE, length) - 1) for first in range(0, length, PAGE)]
    else:
        half = sample // 2
        spans = [(first, min(first + PAGE, half) - 1) for first in range(0, half, PAGE)]
        spans += [(-last, max(0, last - PAGE) * -1 - 1) for last in range(half, 0, -PAGE)]
    found.ids[place] = []
    for span in spans:
        (page,) = yield [plain(read, key, *span)]
        found.ids[place] += known(page, [])


def _read_statuses(found: QueueScan, keys: QueueKeys, ids: list[str]) -> RoundTrips[None]:
    answers = yield from asked([plain("HGET", keys.job(job_id), "status") for job_id in ids])
    found.status = {
        job_id: "?" if isinstance(answer, SchedqError) else answer for job_id, answer in zip(ids, answers, strict=True)
    }
    bare = [job_id for job_id, status in found.status.items() if status is None]
    there = yield from asked([plain("EXISTS", keys.job(job_id)) for job_id in bare])
    found.status |= {job_id: _BARE.get(answer, "?") for job_id, answer in zip(bare, there, strict=True)}


def suspects(found: QueueScan) -> tuple[list[str], int]:
    """The ids to be looked at closely, and how many hashes could not be judged: their list was not read whole."""
    held = Counter(
        job_id
        for place, ids in found.ids.items()
        for job_id in ids
        if place != _LEASES and not (place == PENDING and found.may_stay(job_id))
    )
    doubtful = {job_id for job_id, count in held.items() if count > 1}
    for place in _LIVE:
        doubtful.update(job_id for job_id in found.of(place) if found.is_odd(place, job_id))
    for place in (FAILED, CANCELLED):
        doubtful.update(job_id for job_id in found.of(place) if found.status.get(job_id) in (None, "?"))
    if found.whole.issuperset((_LEASES, PROCESSING)):
        doubtful |= found.of(_LEASES) ^ found.of(PROCESSING)
    unjudged, waiting = 0, found.of(PENDING)
    for job_id in found.hashes - held.keys():
        status = found.status.get(job_id) or ""
        if found.may_stay(job_id) and (job_id in waiting or PENDING not in found.whole):
            continue  # what stays of a cancelled job whose record was trimmed
        if found.whole.issuperset((status,) if status in (*_LISTS, DELAYED) else (*_LISTS, DELAYED)):
            doubtful.add(job_id)
        else:
            unjudged += 1
    return sorted(doubtful), unjudged


def limits(found: QueueScan, unjudged: int) -> Iterator[str]:
    """What was not looked at, in words."""
    for place, length in found.lengths.items():
        if place not in found.whole and found.ids[place]:
            yield f"{len(found.ids[place]):,} of {length:,} entries of {place} were looked at, at both ends"
    if not found.is_scanned and found.scanned:
        yield f"jobs in no place were looked for among {found.scanned:,} of {found.keys:,} keys"
    if unjudged:
        yield f"{unjudged:,} jobs could not be judged, as the places that they may be in were not read whole"


@dataclass(frozen=True, slots=True)
class JobLocations:
    """What the hash of one job says, and every list or set that has it.

    Attributes:
        id: the job.
        kind: of its key: hash, none, or what it should not be.
        status: as its hash has it; '' without one.
        counts: each list or set that has it -> how often.
        has_lease: it is in `leases`.
        is_sure: all that may have it were searched whole; else one is too long for that, or of a wrong type.
        is_promoted: a promoter of schedq's is alive, which puts some of it right.
    """

    id: str
    kind: str
    status: str
    counts: dict[str, int]
    has_lease: bool
    is_sure: bool
    is_promoted: bool

    @property
    def is_hash(self) -> bool:
        """Its data is there, and of the right type."""
        return self.kind == "hash"

    @property
    def is_live(self) -> bool:
        """It waits or runs."""
        return any(place in self.counts for place in _LIVE)

    @property
    def is_nowhere(self) -> bool:
        """Its data is there, and nothing else of it."""
        return self.is_hash and not self.counts and self.is_sure and not self.has_lease


def read_locations(
    keys: QueueKeys, ids: Sequence[str], lengths: dict[str, int], *, is_promoted: bool
) -> RoundTrips[list[JobLocations]]:
    """Look at some jobs closely; those that moved meanwhile are left out.

    Plain commands do not see one instant: the hash is read before and after, and if it differs the job has moved.
    """
    long = {place for place in _LISTS if lengths.get(place, 0) > 2 * _SEARCHED}
    found: list[JobLocations] = []
    for job_id in ids:
        answers = yield from asked(_questions(keys, job_id))
        if job := _locations(job_id, answers, long, is_promoted=is_promoted):
            found.append(job)
    return found


def _questions(keys: QueueKeys, job_id: str) -> list[Operation[Any]]:
    key = keys.job(job_id)
    state = plain("HMGET", key, *_FIELDS)
    lists = [
        plain("LPOS", getattr(keys, place), job_id, "RANK", rank, "COUNT", 5, "MAXLEN", _SEARCHED)
        for place in _LISTS
        for rank in (1, -1)
    ]
    sets = [plain("ZSCORE", getattr(keys, place), job_id) for place in _SETS]
    return [state, *lists, *sets, plain("TYPE", key), state]


def _locations(job_id: str, answers: Sequence[Any], long: set[str], *, is_promoted: bool) -> JobLocations | None:
    before, *rest, kind, after = answers
    if repr(before) != repr(after) and not isinstance(before, SchedqError):
        return None
    if any(isinstance(answer, SchedqError) and not isinstance(answer, Conflict) for answer in answers):
        return None
    counts: dict[str, int] = {}
    for number, place in enumerate(_LISTS):
        ends = rest[2 * number : 2 * number + 2]
        if at := {position for end in ends if isinstance(end, list) for position in end}:
            counts[place] = len(at)
    delayed, lease = rest[2 * len(_LISTS) :]
    if isinstance(delayed, str):
        counts[DELAYED] = 1
    status = (before[0] or "") if isinstance(before, list) else ""
    # Completed jobs are many. Only a completed job is missed if it is among those that were not searched.
    unseen = long if status == COMPLETED else long - {COMPLETED}
    is_sure = not unseen and not any(isinstance(answer, SchedqError) for answer in rest)
    return JobLocations(job_id, str(kind), status, counts, isinstance(lease, str), is_sure, is_promoted)


def _unless_promoted(it: JobLocations) -> Level:
    return "note" if it.is_promoted else "warning"


_MENDED: Final = "a worker or promoter of the queue mends it by itself: see that one runs"
MISPLACED: Final[tuple[Check[JobLocations], ...]] = (
    Check(
        "no-data",
        "warning",
        lambda it: it.kind == "none" and it.is_live,
        "id without a job's data=ids without a job's data",
        "it can't be run; a claim puts a note about it into broken. Evicted keys, an EXPIRE of another program, or a "
        "producer that pushes the id before its HSET do that",
        "enqueue these jobs again; see that the server evicts nothing and nobody expires live jobs",
        own_id,
    ),
    Check(
        "job-wrong-type",
        "warning",
        lambda it: it.kind not in ("none", "hash"),
        "job whose key is no hash=jobs whose keys are no hashes",
        "it can't be run: whoever meets its id puts a note about it into broken",
        "another program wrote the key: look at it with redis-cli, put it aside, enqueue the job again",
        own_id,
    ),
    Check(
        "bad-id",
        "warning",
        lambda it: it.is_hash and it.is_live and not _ID.fullmatch(it.id),
        "id that breaks the rule for ids=ids that break the rule for ids",
        "such a job is not run: a note about it goes into broken",
        "let its producer use 1 to 64 of A-Z a-z 0-9 _ -",
        own_id,
    ),
    Check(
        "listed-twice",
        _unless_promoted,
        lambda it: it.is_hash and any(count > 1 for count in it.counts.values()),
        "id that is listed twice=ids that are listed twice",
        "schedq's workers drop the second entry; a worker of another program would run the job twice",
        _MENDED + "; a producer that pushes again without knowing whether it had done so before is the usual cause",
        own_id,
    ),
    Check(
        "stray",
        _unless_promoted,
        lambda it: it.is_hash and it.is_live and it.status in FINISHED,
        "finished job that is still on the way to be run=finished jobs that are still on the way to be run",
        "schedq's workers drop such an entry and count it as a stray; a worker of another program would run the job "
        "again",
        _MENDED,
        own_id,
    ),
    Check(
        "in-two-places",
        "warning",
        lambda it: it.is_hash and len(it.counts) > 1,
        "job that is in two places at once=jobs that are in two places at once",
        "the entry that its status does not name is dropped when it is met, and a job may run a second time",
        "see which programs move jobs by more than one command; schedq job ID --queue {queue} shows what is stored",
        own_id,
    ),
    Check(
        "lease-without-job",
        _unless_promoted,
        lambda it: it.has_lease and PROCESSING not in it.counts,
        "lease of a job that does not run=leases of jobs that do not run",
        "other programs' workers leave these behind; when it ends the reclaimer drops it",
        _MENDED,
        own_id,
    ),
    Check(
        "record-gone",
        "warning",
        lambda it: it.kind == "none" and it.counts,
        "entry of a history without a record=entries of histories without records",
        "the record was deleted or has expired (other programs' EXPIRE does that to failed jobs): it can't be requeued",
        "nothing brings it back; see what is said of foreign workers",
        own_id,
    ),
    Check(
        "job-without-lease",
        _unless_promoted,
        lambda it: PROCESSING in it.counts and not it.has_lease,
        "running job without a lease=running jobs without a lease",
        "a worker of another program claimed it, or its lease was deleted: it is given one when a reclaimer sees it, "
        "and until then nobody would notice the worker's death",
        _MENDED,
        own_id,
    ),
    Check(
        "record-unlisted",
        "warning",
        lambda it: it.is_nowhere and it.status in FINISHED,
        "finished record that no history lists=finished records that no history lists",
        "it takes memory until it expires, if it does; the LTRIM of another program cut it off",
        "schedq job ID --queue {queue} still shows it, and schedq requeue ID revives it; let that program LTRIM to "
        "your caps",
        own_id,
    ),
    Check(
        "orphan",
        "warning",
        lambda it: it.is_nowhere,
        "job that is in no place=jobs that are in no place",
        "nothing will ever run it: its id was lost on the way, by a program that moves jobs by more than one command, "
        "or by a failover that lost half of that",
        "redis-cli LPUSH queue:{queue}:pending ID runs it; redis-cli DEL queue:{queue}:job:ID forgets it",
        own_id,
    ),
)
"""The first row that holds for a job is its kind."""
