"""The results of many jobs in few round trips."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from schedq.errors import JobGone, SchedqError, UsageError
from schedq.inspect import stats, wait
from schedq.inspect.stats import JobStatus
from schedq.inspect.wait import POLL_S, ended
from schedq.model.keys import checked_id
from schedq.model.lifecycle import FINISHED
from schedq.model.settings import Settings
from schedq.model.times import Duration, duration_ms, monotonic
from schedq.queue.job import Job
from schedq.queue.requests import AnyRequest, InTurn, is_finished
from schedq.transitions import Operation, RoundTrips, identity, unwrap

_MOST_READ: Final = 250
"""The most jobs whose results are read in one round trip. A result may have `max_payload` bytes."""


def gather_results(
    queue: Settings, jobs: Iterable[Job[Any] | str], timeout: Duration | None, *, return_exceptions: bool
) -> InTurn[list[Any]]:
    """The results of jobs, in the order given; see `Queue.gather_results`."""
    if isinstance(jobs, (str, bytes)) or not isinstance(jobs, Iterable):
        raise UsageError(f"jobs must be a list of jobs or of their ids, got {jobs!r:.200}")
    seconds = math.inf if timeout is None else duration_ms(timeout, "timeout") / 1000
    wanted = [_wanted(queue, job) for job in jobs]
    return InTurn(_gather(queue, wanted, seconds, return_exceptions=return_exceptions))


class _Wanted(NamedTuple):
    """One of the jobs, and the function that converts its result for the caller."""

    id: str
    read: Callable[[Any], Any]


_Known = JobStatus | JobGone
"""The status of a job, or that nothing is stored."""


def _is_over(known: _Known) -> bool:
    """Whether nothing more will happen to a job."""
    return isinstance(known, JobGone) or known.status in FINISHED


def _result(job_id: str, known: _Known) -> Any:
    """The job's result.

    Raises:
        JobFailed, JobCancelled, JobGone, TimeoutError: there is none, or not yet.
    """
    if isinstance(known, JobGone):
        raise known
    return ended(job_id, known)


def _wanted(queue: Settings, job: Job[Any] | str) -> _Wanted:
    if not isinstance(job, Job):
        return _Wanted(checked_id(job), identity)
    if job.queue_name != queue.name:
        raise UsageError(f"job {job.id} is in queue {job.queue_name!r}, not in {queue.name!r}")
    return _Wanted(job.id, job._read)


def _gather(
    queue: Settings, wanted: Sequence[_Wanted], seconds: float, *, return_exceptions: bool
) -> Generator[AnyRequest[Any], Any, list[Any]]:
    deadline, has_waited = monotonic() + seconds, False
    known: dict[str, _Known] = {}
    waiting = [*dict.fromkeys(job.id for job in wanted)]
    while True:
        known |= unwrap((yield _look(queue, waiting)))
        if not return_exceptions:
            _raise_first(wanted, known)
        waiting = [job_id for job_id in waiting if not _is_over(known[job_id])]
        left = deadline - monotonic()
        if not waiting or left <= 0:
            return [_outcome(job, known[job.id], return_exceptions=return_exceptions) for job in wanted]
        # Jobs mostly end as they were enqueued, so the last one is awaited first, then the middle one of those left:
        # whatever order they end in, about half of them are done by then.
        awaited = waiting[len(waiting) // 2 if has_waited else -1]
        has_ended = yield is_finished(queue, awaited, min(POLL_S, left))
        if isinstance(has_ended, SchedqError) and not isinstance(has_ended, JobGone):
            raise has_ended
        has_waited = has_waited or bool(has_ended)


def _raise_first(wanted: Sequence[_Wanted], known: Mapping[str, _Known]) -> None:
    """Raise the error of the first job that has ended without a result."""
    for job in wanted:
        if _is_over(known[job.id]):
            _result(job.id, known[job.id])


def _outcome(job: _Wanted, known: _Known, *, return_exceptions: bool) -> Any:
    try:
        return job.read(_result(job.id, known))
    except (SchedqError, TimeoutError) as error:
        if not return_exceptions:
            raise
        return error


def _look(queue: Settings, job_ids: Sequence[str]) -> RoundTrips[dict[str, _Known]]:
    """What is known about each job now."""
    found: dict[str, _Known] = {}
    for first in range(0, len(job_ids), _MOST_READ):
        part = job_ids[first : first + _MOST_READ]
        yield from _read(queue, part, stats.read_status, found)
        # Rarely needed: for jobs of which nothing is stored, and records of other programs that have no status.
        yield from _read(queue, [job_id for job_id in part if job_id not in found], stats.watch, found)
        gone = [job_id for job_id in part if job_id not in found]
        if gone:
            found.update(zip(gone, (yield from wait.all_absent(queue, gone)), strict=True))
    return found


def _read(
    queue: Settings,
    job_ids: Sequence[str],
    ask: Callable[[Settings, str], Operation[JobStatus | None]],
    found: dict[str, _Known],
) -> RoundTrips[None]:
    """Add to `found` what one round trip tells about these jobs."""
    replies = (yield [ask(queue, job_id) for job_id in job_ids]) if job_ids else []
    for job_id, reply in zip(job_ids, replies, strict=True):
        if (status := unwrap(reply)) is not None:
            found[job_id] = status
