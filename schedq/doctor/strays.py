"""Jobs that are not where they should be: nowhere, in two places, finished and waiting, without data or lease."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from schedq.doctor.finding import Finding, few, many
from schedq.doctor.places import LIVE
from schedq.doctor.standing import Standing
from schedq.lifecycle import FINISHED, PROCESSING

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is said of jobs that are misplaced in one way; `{queue}` stands for its name."""

    noun: str
    means: str
    remedy: str
    is_mended: bool = False


_MENDED: Final = "a worker or promoter of the queue mends it by itself: see that one runs"
_KINDS: Final = {
    "job-wrong-type": _Kind(
        "job whose key is no hash=jobs whose keys are no hashes",
        "it can't be run: whoever meets its id puts a note about it into broken",
        "another program wrote the key: look at it with redis-cli, put it aside, enqueue the job again",
    ),
    "bad-id": _Kind(
        "id that breaks the rule for ids=ids that break the rule for ids",
        "such a job is not run: a note about it goes into broken",
        "let its producer use 1 to 64 of A-Z a-z 0-9 _ -",
    ),
    "no-data": _Kind(
        "id without a job's data=ids without a job's data",
        "it can't be run; a claim puts a note about it into broken. Evicted keys, an EXPIRE of another program, or a "
        "producer "
        "that pushes the id before its HSET do that",
        "enqueue these jobs again; see that the server evicts nothing and nobody expires live jobs",
    ),
    "record-gone": _Kind(
        "entry of a history without a record=entries of histories without records",
        "the record was deleted or has expired (other programs' EXPIRE does that to failed jobs): it can't be requeued",
        "nothing brings it back; see what is said of foreign workers",
    ),
    "stray": _Kind(
        "finished job that is still on the way to be run=finished jobs that are still on the way to be run",
        "schedq's workers drop such an entry and count it as a stray; a worker of another program would run the job "
        "again",
        _MENDED,
        is_mended=True,
    ),
    "listed-twice": _Kind(
        "id that is listed twice=ids that are listed twice",
        "schedq's workers drop the second entry; a worker of another program would run the job twice",
        _MENDED + "; a producer that pushes again without knowing whether it had done so before is the usual cause",
        is_mended=True,
    ),
    "in-two-places": _Kind(
        "job that is in two places at once=jobs that are in two places at once",
        "the entry that its status does not name is dropped when it is met, and a job may run a second time",
        "see which programs move jobs by more than one command; schedq job ID --queue {queue} shows what is stored",
    ),
    "lease-without-job": _Kind(
        "lease of a job that does not run=leases of jobs that do not run",
        "other programs' workers leave these behind; when it ends the reclaimer drops it",
        _MENDED,
        is_mended=True,
    ),
    "job-without-lease": _Kind(
        "running job without a lease=running jobs without a lease",
        "a worker of another program claimed it, or its lease was deleted: it is given one when a reclaimer sees it, "
        "and until "
        "then nobody would notice the worker's death",
        _MENDED,
        is_mended=True,
    ),
    "orphan": _Kind(
        "job that is in no place=jobs that are in no place",
        "nothing will ever run it: its id was lost on the way, by a program that moves jobs by more than one "
        "command, or by a "
        "failover that lost half of that",
        "redis-cli LPUSH queue:{queue}:pending ID runs it; redis-cli DEL queue:{queue}:job:ID forgets it",
    ),
    "record-unlisted": _Kind(
        "finished record that no history lists=finished records that no history lists",
        "it takes memory until it expires, if it does; the LTRIM of another program cut it off",
        "schedq job ID --queue {queue} still shows it, and schedq requeue ID revives it; let that program LTRIM to "
        "your caps",
    ),
}


def kind_of(job: Standing) -> str:
    """The way in which a job is misplaced, '' if it is not."""
    live = [place for place in LIVE if place in job.places]
    if job.kind == "none":
        return "no-data" if live else "lease-without-job" if job.has_lease else "record-gone" if job.places else ""
    if job.kind != "hash":
        return "job-wrong-type"
    if live and not _ID.fullmatch(job.id):
        return "bad-id"
    return _misplaced(job, live) or _unleased(job)


def _misplaced(job: Standing, live: Sequence[str]) -> str:
    if any(count > 1 for count in job.places.values()):
        return "listed-twice"
    if live and job.status in FINISHED:
        return "stray"
    if len(job.places) > 1:
        return "in-two-places"
    if job.places or not job.is_sure or job.has_lease:
        return ""
    return "record-unlisted" if job.status in FINISHED else "orphan"


def _unleased(job: Standing) -> str:
    if job.has_lease and PROCESSING not in job.places:
        return "lease-without-job"
    if PROCESSING in job.places and not job.has_lease:
        return "job-without-lease"
    return ""


def judge(queue: str, jobs: Iterable[Standing], *, is_tended: bool, more: int = 0) -> Iterator[Finding]:
    """The findings about misplaced jobs.

    Args:
        queue: its name.
        jobs: those that were looked at closely.
        is_tended: a promoter of schedq's is alive: it mends some of it.
        more: suspects that were not looked at.
    """
    found: dict[str, list[Standing]] = {}
    for job in jobs:
        found.setdefault(kind_of(job), []).append(job)
    for code, kind in _KINDS.items():
        if misplaced := found.get(code):
            yield Finding(
                code,
                "note" if kind.is_mended and is_tended else "warning",
                ("at least " if more else "") + many(len(misplaced), kind.noun),
                kind.means,
                kind.remedy.format(queue=queue),
                queue=queue,
                examples=few(job.id for job in misplaced),
            )
