"""What happens between a claim and its end: claim, recover, renew, settle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from schedq import lua
from schedq.clocks import monotonic
from schedq.errors import SchedqError, StoreUnavailable
from schedq.ids import new_request
from schedq.instants import duration_ms
from schedq.job import ClaimedJob, Settlement, score_ms
from schedq.operations import Argument, Block, Flow, Operation, firm
from schedq.payload import size_of
from schedq.settings import KEEP_ALL, Settings

MOST_PROMOTED: Final = 100
MOST_BYTES: Final = 1_048_576
MOST_SETTLED: Final = 200
"""Attempts that end in one script, which keeps everybody else waiting, for about 15 µs each."""
_PAGE: Final = 200
_OVERLAP: Final = 50
_LONGEST_BLOCK_S: Final = 2.0
"""One look and one block in two seconds: on average Redis is asked once a second."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim got.

    Attributes:
        jobs: the jobs, oldest first.
        now_ms: Redis's clock.
        next_due_ms: the earliest due instant of `delayed`, or None.
        has_more: jobs wait that were not taken.
        is_paused: the queue is paused; nothing was looked at.
        left_suspects: there were jobs that lost two leases, which this claim might not have.
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
    share: tuple[int, int, int] | None = None,
) -> Operation[Claim]:
    """Take up to `limit` jobs in the name of `request`; `suspects` allows one that has lost two leases.

    With `share` no more than this process's share of the jobs that wait: how many processes share them, how many jobs
    all of these hold, and how many this one.
    """
    keys = queue.keys
    return Operation(
        "claim",
        lua.load("claim"),
        (
            keys.pending,
            keys.processing,
            keys.leases,
            keys.delayed,
            keys.failed,
            keys.broken,
            keys.stats,
            keys.wake,
            keys.paused,
            keys.log,
            keys.suspects,
        ),
        (
            keys.jobs,
            queue.now_argument(),
            keys.events,
            queue.log_size,
            request,
            limit,
            queue.visibility_ms,
            worker,
            int(suspects),
            MOST_PROMOTED,
            MOST_BYTES,
            queue.failed_history,
            duration_ms(queue.min_keep, "min_keep"),
            keys.due,
            *(share or ()),
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
    """A claim by hand that waits for a job.

    It asks Redis once a second at most on average: between two looks it blocks on the wake marker, until the next due
    instant at the latest.

    Attributes:
        request: of the claim that was sent last; after a cancellation, what it took is found by that.
    """

    def __init__(self, queue: Settings, timeout_s: float) -> None:
        self.request = ""
        self._queue = queue
        self._deadline = monotonic() + timeout_s

    def steps(self) -> Flow[ClaimedJob | None]:
        """Claim, or wait and claim again, until there is a job or time is up."""
        troubles = 0
        while True:
            self.request = new_request()
            (answer,) = yield [claim(self._queue, self.request)]
            if isinstance(answer, StoreUnavailable) and troubles < 3:
                # Whether the claim was carried out is not known: what it took, if anything, is asked for first.
                troubles += 1
                jobs = tuple((yield from recover(self._queue, self.request)))
                found = Claim(jobs, 0, None, has_more=False, is_paused=False) if jobs else None
                if found is None:
                    continue
            else:
                found = firm(answer)
                troubles = 0
            for job in found.jobs:
                if not job.problem:
                    return job
                yield [settle(self._queue, [refusal(job)])]
            if found.jobs or found.has_more:
                continue  # what could not be run is out of the way now
            left = self._deadline - monotonic()
            if left <= 0:
                return None
            yield self._block(found, left)

    def _block(self, found: Claim, left: float) -> Block:
        wait = min(left, _LONGEST_BLOCK_S)
        if found.next_due_ms is not None and not found.is_paused:
            until_due = max(0.0, (found.next_due_ms - found.now_ms) / 1000)
            if until_due < wait:
                return Block(until_due, is_exact=True)
        return Block(wait, is_exact=False)


def refusal(job: ClaimedJob) -> Settlement:
    """How a job ends whose payload can't be read: it is never run, and never dropped."""
    return Settlement("fail", job.id, job.claim_token, text=f"unreadable payload: {job.problem}", note=job.problem)


def recover(queue: Settings, request: str) -> Flow[list[ClaimedJob]]:
    """The jobs that an unanswered claim of `request` took and that are still held by it, oldest first."""
    found: dict[str, ClaimedJob] = {}
    offset = 0
    while offset >= 0:
        (answer,) = yield [_recover_page(queue, request, offset)]
        next_offset, jobs = firm(answer)
        # Others claim and settle meanwhile, so pages overlap, and a job may be seen twice.
        is_new = [job for job in jobs if job.id not in found]
        found.update((job.id, job) for job in is_new)
        # One claim's jobs stand side by side, so a page without more of them after some means that was all.
        offset = -1 if found and not is_new else next_offset - _OVERLAP
    return list(found.values())[::-1]


def _recover_page(queue: Settings, request: str, offset: int) -> Operation[tuple[int, list[ClaimedJob]]]:
    def read(reply: list[Any]) -> tuple[int, list[ClaimedJob]]:
        return int(reply[0]), [ClaimedJob.from_reply(job, int(reply[1])) for job in reply[2:]]

    keys = queue.keys
    return Operation("recover", lua.load("recover"), (keys.processing,), (keys.jobs, request, offset, _PAGE), read)


def renew(queue: Settings, held: Sequence[tuple[str, str]]) -> Operation[list[str]]:
    """Let the leases of `held` (id, token) begin anew; answers OK, STOP or LOST for each. At most 1000."""
    keys = queue.keys
    flat = [word for pair in held for word in pair]
    return Operation(
        "renew",
        lua.load("renew"),
        (keys.leases,),
        (keys.jobs, queue.now_argument(), queue.visibility_ms, *flat),
        list,
    )


def settle(queue: Settings, items: Sequence[Settlement]) -> Operation[list[str]]:
    """End attempts; answers OK, DUPLICATE, LOST or AGAIN for each. At most 1000, and 1 MiB."""
    keys = queue.keys
    keep_ms = duration_ms(queue.min_keep, "min_keep")
    ttl_ms = max(duration_ms(queue.completed_ttl, "completed_ttl"), keep_ms)
    history = queue.completed_history
    if ttl_ms == 0 and history != KEEP_ALL:
        history = 0  # a record that expires at once is not kept at all
    args: list[Argument] = [
        keys.jobs,
        queue.now_argument(),
        keys.events,
        queue.log_size,
        keys.due,
        max(ttl_ms, 1),
        history,
    ]
    args += [queue.failed_history, keep_ms]
    for item in items:
        args += [item.move, item.job_id, item.token, item.delay_ms, item.text, item.note, item.traceback]
    return Operation(
        "settle",
        lua.load("settle"),
        (
            keys.processing,
            keys.leases,
            keys.pending,
            keys.delayed,
            keys.completed,
            keys.failed,
            keys.cancelled,
            keys.stats,
            keys.wake,
            keys.paused,
            keys.promoter,
            keys.log,
        ),
        tuple(args),
        list,
    )


def batches(items: Sequence[Settlement]) -> list[list[Settlement]]:
    """`items` in order, in batches that one script may take."""
    cut: list[list[Settlement]] = []
    room = ids = 0
    for item in items:
        size = size_of(item.text) + size_of(item.traceback) + 1024
        if size > room or ids == 0:
            cut.append([])
            room, ids = MOST_BYTES, MOST_SETTLED
        cut[-1].append(item)
        room -= size
        ids -= 1
    return cut


def settle_all(queue: Settings, items: Sequence[Settlement]) -> Flow[list[str]]:
    """End attempts, however many; answers OK, DUPLICATE or LOST for each, in order.

    Raises:
        SchedqError: a batch was refused; those settled so far stay settled.
    """
    answers: dict[int, str] = {}
    left = list(range(len(items)))
    while left:
        index = iter(left)
        requests = [settle(queue, batch) for batch in batches([items[n] for n in left])]
        again: list[int] = []
        for batch in (yield requests):
            if isinstance(batch, SchedqError):
                raise batch
            for word in batch:
                number = next(index)
                if word == "AGAIN":
                    again.append(number)
                else:
                    answers[number] = word
        left = again
    return [answers[number] for number in range(len(items))]
