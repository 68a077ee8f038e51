"""Claim jobs, and recover the jobs of a claim whose reply was lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from schedq.errors import StoreUnavailable
from schedq.model.ids import new_request
from schedq.model.records import ClaimedJob, score_ms
from schedq.model.settings import Settings
from schedq.model.times import monotonic
from schedq.transitions import MOST_BYTES, Binding, MarkerWait, Operation, RoundTrips, unwrap
from schedq.transitions.settle import refusal, settle

MOST_PROMOTED: Final = 100
_CLAIM: Final = Binding("claim", "request", "limit", "worker", "allowed", "promote_limit", "bytes", "only", "share")
_RECOVER: Final = Binding("recover", "request", "offset", "length")
_PAGE: Final = 200
_OVERLAP: Final = 50
_LONGEST_WAIT_S: Final = 2.0
"""One claim and one wait every two seconds, so on average one request a second."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The result of a claim.

    Attributes:
        jobs: the jobs, oldest first.
        now_ms: Redis's clock.
        next_due_ms: the earliest due instant of `delayed`, or None.
        has_more: whether more jobs wait.
        is_paused: whether the queue is paused; then no job was looked at.
        left_suspects: whether there were suspects that this claim was not allowed to take.
    """

    jobs: tuple[ClaimedJob, ...]
    now_ms: int
    next_due_ms: int | None
    has_more: bool
    is_paused: bool
    left_suspects: bool = False


def claim(
    queue: Settings,
    request: str,
    limit: int = 1,
    worker: str = "",
    *,
    suspects: bool = True,
    all_attempts: bool = True,
    only: tuple[str, ...] | None = None,
    share: tuple[int, int, int] | None = None,
) -> Operation[Claim]:
    """Claim up to `limit` jobs.

    Args:
        queue: where to claim.
        request: a new id; the tokens of the claimed jobs begin with it.
        limit: the most jobs to claim.
        worker: id of the worker, or ''.
        suspects: allow one suspect: a job that lost two leases, so it may be a poison pill that kills its workers.
        all_attempts: if False, allow only first attempts that are not the last ones, and no suspect.
        only: the tasks whose jobs to claim, with '' for payloads that call no task; None for all.
        share: claim no more than this process's share of the waiting jobs: the number of processes that share them, of
            jobs held by all of them, and of jobs held by this one.
    """
    return Operation(
        "claim",
        *_CLAIM(
            queue,
            request=request,
            limit=limit,
            worker=worker,
            allowed=int(suspects) if all_attempts else -1,
            promote_limit=MOST_PROMOTED,
            bytes=MOST_BYTES,
            only="" if only is None else json.dumps(only),
            share=share or (),
        ),
        _read_claim,
        is_repeatable=False,
    )


def _read_claim(reply: list[Any]) -> Claim:
    now_ms = int(reply[1])
    jobs = tuple([ClaimedJob.from_reply(job, now_ms) for job in reply[4:]])
    return Claim(
        jobs,
        now_ms,
        score_ms(reply[2]) if reply[2] else None,
        has_more=bool(reply[3] & 1),
        is_paused=reply[0] == "PAUSED",
        left_suspects=bool(reply[3] & 2),
    )


class ClaimWait:
    """A manual claim that waits for a job.

    It sends at most one request a second on average. Between claims it blocks on the wake marker, at most until the
    next due instant.

    Attributes:
        request: id of the last claim that was sent; finds the jobs it took after a cancellation.
    """

    def __init__(self, queue: Settings, timeout_s: float) -> None:
        self.request = ""
        self._queue = queue
        self._deadline = monotonic() + timeout_s

    def steps(self) -> RoundTrips[ClaimedJob | None]:
        """Claim and wait in turn, until there is a job or time is up."""
        failures = 0
        while True:
            self.request = new_request()
            (result,) = yield [claim(self._queue, self.request)]
            if isinstance(result, StoreUnavailable) and failures < 3:
                # The claim may have been carried out, so ask for the jobs it took before claiming again.
                failures += 1
                jobs = yield from recover(self._queue, self.request)
                if not jobs:
                    continue
                found = Claim(tuple(jobs), 0, None, has_more=False, is_paused=False)
            else:
                found, failures = unwrap(result), 0
            for job in found.jobs:
                if not job.problem:
                    return job
                yield [settle(self._queue, [refusal(job)])]
            if found.jobs or found.has_more:
                continue  # jobs that could not be run are settled now
            left = self._deadline - monotonic()
            if left <= 0:
                return None
            yield _marker_wait(found, left)


def _marker_wait(found: Claim, left: float) -> MarkerWait:
    seconds = min(left, _LONGEST_WAIT_S)
    if found.next_due_ms is None or found.is_paused:
        return MarkerWait(seconds, is_exact=False)
    until_due = max(0.0, (found.next_due_ms - found.now_ms) / 1000)
    return MarkerWait(min(seconds, until_due), is_exact=until_due < seconds)


def recover(queue: Settings, request: str) -> RoundTrips[list[ClaimedJob]]:
    """The jobs that the claim `request`, whose reply was lost, took and still holds, oldest first."""
    found: dict[str, ClaimedJob] = {}
    offset = 0
    while offset >= 0:
        bound = _RECOVER(queue, request=request, offset=offset, length=_PAGE)
        (result,) = yield [Operation("recover", *bound, _read_page)]
        next_offset, jobs = unwrap(result)
        # Other claims and settlements shift the list between pages, so pages overlap and a job may appear twice.
        is_new = [job for job in jobs if job.id not in found]
        found.update((job.id, job) for job in is_new)
        # The jobs of one claim are next to each other, so a page without new ones, after some were found, is the end.
        offset = -1 if found and not is_new else next_offset - _OVERLAP
    return list(found.values())[::-1]


def _read_page(reply: list[Any]) -> tuple[int, list[ClaimedJob]]:
    return int(reply[0]), [ClaimedJob.from_reply(job, int(reply[1])) for job in reply[2:]]
