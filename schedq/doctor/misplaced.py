"""Jobs that are not where they should be: in no list, in two lists, finished but waiting, without data or lease.

First, the keys of a queue are read page by page; of long ones, only both ends. The queue keeps working during that
time, so anything odd is only a suspicion: each suspect is read again in detail, and only that result is judged.
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
_HELD: Final = "held"
_SETS: Final = (DELAYED, _HELD, _LEASES)
_LIVE: Final = (PENDING, _HELD, PROCESSING, DELAYED)
_PLACES: Final = {state: (state,) for state in (*_LISTS, DELAYED)} | {PENDING: (PENDING, _HELD)}
"""State of a job -> the list or set that holds it; a pending job of a paused task is in `held`."""
_LONG_PENDING: Final = 10_000
"""If `pending` is longer than this, the entry of a cancelled job stays there until a claim reaches it."""
_SEARCHED: Final = 10_000
"""How many entries at each end of a list are searched for an id, as in schedq's scripts."""
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BARE: Final = {0: None, 1: ""}
"""Reply of EXISTS for a key without a status -> the status that represents it."""
_FIELDS: Final = ("status", "attempts", "claim_token", "settled_token", "request", "enqueued_at_ms", "released")


@dataclass(slots=True)
class QueueScan:
    """What was read about a queue.

    Attributes:
        ids: list or set -> the ids read from it, including repeated ones.
        lengths: list or set -> number of entries.
        whole: the lists and sets that were read completely; not those that were too long or could not be read.
        status: id -> status of the job; '' without a status, None if nothing is stored, `?` if the key is of the wrong
            type or may not be read.
        hashes: ids of the job hashes found by scanning keys.
        scanned: number of keys scanned for that.
        keys: number of keys of the server; 0 if unknown.
        is_scanned: all keys were scanned.
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
        """The ids read from one list or set."""
        return set(self.ids.get(place, ()))

    def may_stay(self, job_id: str) -> bool:
        """Whether a cancel left this entry in `pending` because the list is too long to be searched."""
        return self.status.get(job_id) == CANCELLED and self.lengths[PENDING] > _LONG_PENDING

    def is_odd(self, place: str, job_id: str) -> bool:
        """Whether an entry of a live job looks wrong."""
        is_left = place == PENDING and self.may_stay(job_id)
        is_wrong = self.status.get(job_id) in (None, "?", *FINISHED) or not _ID.fullmatch(job_id)
        return is_wrong and not is_left


def read_queue(keys: QueueKeys, sample: int) -> RoundTrips[QueueScan]:
    """Read up to `sample` entries of each list and set, and scan ten times as many keys for unlisted job hashes."""
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
    (reply,) = yield [plain(count, key)]
    found.lengths[place] = length = known(reply, 0)
    if length <= sample:
        if not isinstance(reply, SchedqError):
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
    replies = yield from asked([plain("HGET", keys.job(job_id), "status") for job_id in ids])
    found.status = {
        job_id: "?" if isinstance(reply, SchedqError) else reply for job_id, reply in zip(ids, replies, strict=True)
    }
    bare = [job_id for job_id, status in found.status.items() if status is None]
    there = yield from asked([plain("EXISTS", keys.job(job_id)) for job_id in bare])
    found.status |= {job_id: _BARE.get(reply, "?") for job_id, reply in zip(bare, there, strict=True)}


def suspects(found: QueueScan) -> tuple[list[str], int]:
    """The ids to read in detail, and the number of hashes that can't be judged: their list was not read completely."""
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
            continue  # left over from a cancelled job whose record was trimmed
        if found.whole.issuperset(_PLACES.get(status) or (*_LISTS, DELAYED, _HELD)):
            doubtful.add(job_id)
        else:
            unjudged += 1
    return sorted(doubtful), unjudged


def limits(found: QueueScan, unjudged: int) -> Iterator[str]:
    """What was not examined, in words."""
    for place, length in found.lengths.items():
        if place not in found.whole and found.ids[place]:
            yield f"only {len(found.ids[place]):,} of {length:,} entries of {place} were read, at both ends"
    if not found.is_scanned and found.scanned:
        yield f"only {found.scanned:,} of {found.keys:,} keys were searched for jobs that no list holds"
    if unjudged:
        yield f"{unjudged:,} jobs could not be judged, because the lists that may hold them were not read completely"


@dataclass(frozen=True, slots=True)
class JobLocations:
    """The hash of one job, and every list or set that holds its id.

    Attributes:
        id: the job.
        kind: type of its key: hash, none, or a wrong type.
        status: the status in its hash; '' without one.
        counts: list or set -> how often it holds the id; `pending` includes held jobs.
        has_lease: it is in `leases`.
        is_sure: all lists that may hold it were searched completely; none was too long or of the wrong type.
        is_promoted: a schedq promoter is alive, which repairs some of these states.
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
        """Its data exists and has the right type."""
        return self.kind == "hash"

    @property
    def is_live(self) -> bool:
        """It waits or runs."""
        return any(place in self.counts for place in _LIVE)

    @property
    def is_nowhere(self) -> bool:
        """Its data exists, but no list, set or lease holds its id."""
        return self.is_hash and not self.counts and self.is_sure and not self.has_lease


def read_locations(
    keys: QueueKeys, ids: Sequence[str], lengths: dict[str, int], *, is_promoted: bool
) -> RoundTrips[list[JobLocations]]:
    """Read some jobs in detail; jobs that moved during the reading are left out.

    The commands do not run atomically, so the hash is read before and after them: if it differs, the job has moved.
    """
    long = {place for place in _LISTS if lengths.get(place, 0) > 2 * _SEARCHED}
    found: list[JobLocations] = []
    for job_id in ids:
        replies = yield from asked(_queries(keys, job_id))
        if job := _locations(job_id, replies, long, is_promoted=is_promoted):
            found.append(job)
    return found


def _queries(keys: QueueKeys, job_id: str) -> list[Operation[Any]]:
    key = keys.job(job_id)
    state = plain("HMGET", key, *_FIELDS)
    lists = [
        plain("LPOS", getattr(keys, place), job_id, "RANK", rank, "COUNT", 5, "MAXLEN", _SEARCHED)
        for place in _LISTS
        for rank in (1, -1)
    ]
    sets = [plain("ZSCORE", getattr(keys, place), job_id) for place in _SETS]
    return [state, *lists, *sets, plain("TYPE", key), state]


def _locations(job_id: str, replies: Sequence[Any], long: set[str], *, is_promoted: bool) -> JobLocations | None:
    before, *rest, kind, after = replies
    if repr(before) != repr(after) and not isinstance(before, SchedqError):
        return None
    if any(isinstance(reply, SchedqError) and not isinstance(reply, Conflict) for reply in replies):
        return None
    counts: dict[str, int] = {}
    for number, place in enumerate(_LISTS):
        ends = rest[2 * number : 2 * number + 2]
        if at := {position for end in ends if isinstance(end, list) for position in end}:
            counts[place] = len(at)
    delayed, held, lease = rest[2 * len(_LISTS) :]
    if isinstance(delayed, str):
        counts[DELAYED] = 1
    if isinstance(held, str):
        counts[PENDING] = counts.get(PENDING, 0) + 1
    status = (before[0] or "") if isinstance(before, list) else ""
    # `completed` is often long. Not searching it completely matters only for a job whose status is completed.
    unseen = long if status == COMPLETED else long - {COMPLETED}
    is_sure = not unseen and not any(isinstance(reply, SchedqError) for reply in rest)
    return JobLocations(job_id, str(kind), status, counts, isinstance(lease, str), is_sure, is_promoted)


def _unless_promoted(it: JobLocations) -> Level:
    return "note" if it.is_promoted else "warning"


_REPAIRED: Final = "a worker or promoter of the queue repairs this automatically: make sure that one is running"
MISPLACED: Final[tuple[Check[JobLocations], ...]] = (
    Check(
        "no-data",
        "warning",
        lambda it: it.kind == "none" and it.is_live,
        "id without a job's data=ids without a job's data",
        "it can't be run; a claim adds a note about it to broken. The cause is eviction, an EXPIRE by another program, "
        "or a producer that pushes the id before its HSET",
        "enqueue these jobs again; make sure that the server evicts nothing and no program expires live jobs",
        own_id,
    ),
    Check(
        "job-wrong-type",
        "warning",
        lambda it: it.kind not in ("none", "hash"),
        "job whose key is not a hash=jobs whose keys are not hashes",
        "it can't be run: a note about it is added to broken",
        "another program wrote the key: inspect it with redis-cli, rename it, and enqueue the job again",
        own_id,
    ),
    Check(
        "bad-id",
        "warning",
        lambda it: it.is_hash and it.is_live and not _ID.fullmatch(it.id),
        "invalid id=invalid ids",
        "such a job is not run: a note about it is added to broken",
        "change its producer to use 1 to 64 of A-Z a-z 0-9 _ -",
        own_id,
    ),
    Check(
        "listed-twice",
        _unless_promoted,
        lambda it: it.is_hash and any(count > 1 for count in it.counts.values()),
        "id that is listed twice=ids that are listed twice",
        "schedq's workers drop the second entry; a worker of another program would run the job twice",
        _REPAIRED
        + "; the usual cause is a producer that pushes again without knowing whether the first push succeeded",
        own_id,
    ),
    Check(
        "stray",
        _unless_promoted,
        lambda it: it.is_hash and it.is_live and it.status in FINISHED,
        "finished job that is still waiting to run=finished jobs that are still waiting to run",
        "schedq's workers drop such an entry and count it as a stray; a worker of another program would run the job "
        "again",
        _REPAIRED,
        own_id,
    ),
    Check(
        "in-two-places",
        "warning",
        lambda it: it.is_hash and len(it.counts) > 1,
        "job that is in two states at once=jobs that are in two states at once",
        "the entry that does not match its status is dropped when a worker reaches it, and the job may run twice",
        "find the programs that move jobs in several commands; schedq job ID --queue {queue} shows what is stored",
        own_id,
    ),
    Check(
        "lease-without-job",
        _unless_promoted,
        lambda it: it.has_lease and PROCESSING not in it.counts,
        "lease of a job that is not running=leases of jobs that are not running",
        "workers of other programs leave these behind; the reclaimer drops a lease when it ends",
        _REPAIRED,
        own_id,
    ),
    Check(
        "record-gone",
        _unless_promoted,
        lambda it: it.kind == "none" and it.counts,
        "entry of a history without a record=entries of histories without records",
        "the record was deleted or expired, by a failed_ttl or another program's EXPIRE: it can't be requeued",
        "the record can't be restored; a worker or promoter of the queue removes the entry",
        own_id,
    ),
    Check(
        "job-without-lease",
        _unless_promoted,
        lambda it: PROCESSING in it.counts and not it.has_lease,
        "running job without a lease=running jobs without a lease",
        "a worker of another program claimed it, or its lease was deleted: a reclaimer will give it a lease, and until "
        "then the worker's death would go unnoticed",
        _REPAIRED,
        own_id,
    ),
    Check(
        "record-unlisted",
        "warning",
        lambda it: it.is_nowhere and it.status in FINISHED,
        "finished record that no history lists=finished records that no history lists",
        "it takes memory until it expires, if it ever does; another program's LTRIM removed it from the history",
        "schedq job ID --queue {queue} still shows it, and schedq requeue ID runs it again; change that program's "
        "LTRIM to your limits",
        own_id,
    ),
    Check(
        "orphan",
        "warning",
        lambda it: it.is_nowhere,
        "job that no list holds=jobs that no list holds",
        "it will never run: a program that moves jobs with more than one command lost its id, or a failover lost part "
        "of such a move",
        "redis-cli LPUSH queue:{queue}:pending ID runs it; redis-cli DEL queue:{queue}:job:ID deletes it",
        own_id,
    ),
)
"""The first row that applies to a job determines its finding."""
