"""Who is alive: workers, the one that wakes; and what keeps jobs waiting: a pause, nobody at work, broken notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from schedq.doctor.asking import known, plain
from schedq.doctor.finding import Finding, few, many, span
from schedq.errors import SchedqError
from schedq.job import whole
from schedq.keys import QueueKeys
from schedq.operations import Flow, directory
from schedq.operations.upkeep import HEARTBEAT_S
from schedq.operations.views import broken
from schedq.settings import Settings

_LONG_PAUSE_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Life:
    """Who is there, and what waits.

    Attributes:
        now_ms: Redis's clock.
        workers: that gave a sign within three heartbeats.
        has_promoter: some process does the waking.
        paused_since_ms: None if the queue is not paused, 0 if nobody knows since when.
        waiting: entries of `pending`.
        delayed: entries of `delayed`.
        running: entries of `processing`.
        scheduled: schedules that have a next slot.
        broken: notes about ids that could not be run.
        notes: the last of them, in words.
        stuck: workers that can take no job, because handlers that do not end hold all their slots; each in words.
    """

    now_ms: int
    workers: int
    has_promoter: bool
    paused_since_ms: int | None
    waiting: int
    delayed: int
    running: int
    scheduled: int
    broken: int
    notes: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()

    @property
    def is_tended(self) -> bool:
        """Somebody promotes and reclaims."""
        return self.has_promoter

    @property
    def is_deserted(self) -> bool:
        """There is nothing to do, and nobody to do it."""
        return self.is_empty and not self.scheduled and not self.workers

    @property
    def is_empty(self) -> bool:
        """There is nothing to do."""
        return not (self.waiting or self.delayed or self.running)


def look(queue: Settings) -> Flow[Life]:
    """Look who is there."""
    keys: QueueKeys = queue.keys
    (time,) = yield [plain("TIME")]
    seconds, micros = known(time, ("0", "0"))
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    answers = yield [
        plain("ZCOUNT", keys.workers, now_ms - 3000 * HEARTBEAT_S, "+inf"),
        plain("EXISTS", keys.promoter),
        plain("EXISTS", keys.paused),
        plain("GET", keys.paused),
        plain("LLEN", keys.pending),
        plain("ZCARD", keys.delayed),
        plain("LLEN", keys.processing),
        plain("ZCOUNT", keys.schedules, "-inf", "(+inf"),
        plain("LLEN", keys.broken),
        broken(queue, 0, 3),
    ]
    workers, promoter, paused, since, waiting, delayed, running, scheduled, notes, last = answers
    return Life(
        now_ms,
        known(workers, 0),
        bool(known(promoter, 1)),
        whole(known(since, "0")) if known(paused, 0) else None,
        known(waiting, 0),
        known(delayed, 0),
        known(running, 0),
        known(scheduled, 0),
        known(notes, 0),
        tuple(f"{note.id or '?'}: {note.reason}" for note in known(last, [])),
        (yield from _stuck(queue)) if known(workers, 0) else (),
    )


def _stuck(queue: Settings) -> Flow[tuple[str, ...]]:
    try:
        crew = yield from directory.workers(queue)
    except SchedqError:
        return ()  # their keys are damaged, or may not be read, which others say
    return tuple(
        f"{worker.id}: {', '.join(sorted({str(job.get('task')) for job in worker.stuck_jobs}))}"
        for worker in crew
        if worker.is_stuck
    )


def judge(queue: str, found: Life) -> Iterator[Finding]:
    """The findings about them."""
    if found.paused_since_ms is not None:
        yield _paused(queue, found, found.paused_since_ms)
    if not found.workers:
        yield Finding(
            "no-worker",
            "note" if found.is_empty else "warning",
            "no worker gave a sign in the last 30 s"
            + (
                ""
                if found.is_empty
                else f"; {found.waiting:,} pending, {found.delayed:,} delayed, {found.running:,} running"
            ),
            "nothing runs what waits, unless workers of other programs do: those do not show here",
            "start one: schedq worker MODULE:QUEUE",
            queue=queue,
        )
    if found.stuck:
        yield Finding(
            "stuck-workers",
            "warning",
            f"{many(len(found.stuck), 'worker')} can take no job: handlers that do not end hold all slots",
            "these handlers timed out, were cancelled or lost their lease, and go on; a thread can't be ended from "
            "outside",
            "restart these workers; give what the handlers wait for a timeout of its own",
            queue=queue,
            examples=few(found.stuck),
        )
    if not found.has_promoter:
        needs = found.delayed or found.running or found.scheduled
        yield Finding(
            "no-promoter",
            "warning" if needs else "note",
            "nobody does the waking",
            "delayed jobs wait until a worker claims, no slot of a schedule makes a job, and jobs of dead workers are "
            "not taken back",
            f"start a worker (without --no-promoter), or schedq promoter {queue}",
            queue=queue,
        )
    if found.broken:
        yield Finding(
            "broken-notes",
            "warning",
            f"{many(found.broken, 'id')} could not be run, because its data is gone or damaged"
            if found.broken == 1
            else f"{many(found.broken, 'id')} could not be run, because their data is gone or damaged",
            "these jobs are lost unless somebody enqueues them again",
            f"schedq jobs {queue} --state broken lists them; when that is dealt with: redis-cli DEL "
            f"queue:{queue}:broken",
            queue=queue,
            examples=few(found.notes),
        )


def _paused(queue: str, found: Life, since_ms: int) -> Finding:
    is_long = not since_ms or found.now_ms - since_ms > _LONG_PAUSE_MS
    since = f"for {span(found.now_ms - since_ms)}" if since_ms else "since nobody knows when"
    return Finding(
        "paused-long" if is_long else "paused",
        "warning" if is_long else "note",
        f"the queue has been paused {since}; {found.waiting:,} pending",
        "no worker of schedq's takes jobs; those of other programs do",
        f"schedq resume {queue}",
        queue=queue,
    )
