"""A queue at a glance, from a few bounded reads: what `schedq top` and the dashboard's overview show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from schedq.inspect.samples import Sample, Throughput, newest, rate
from schedq.inspect.stats import Stats, stats
from schedq.inspect.summary import JobSummary, Spread, UnknownTask, by_task, soonest, summaries, unknown_tasks
from schedq.model.lifecycle import JOB_STATES
from schedq.model.settings import Settings
from schedq.transitions import Operation, RoundTrips, identity, unwrap
from schedq.transitions.heartbeat import WorkerRecord, workers
from schedq.transitions.pause import paused_tasks

RATES_S: Final = (10, 60, 600)
_SAMPLES: Final = 65
"""Enough to include one older than ten minutes, since samples are slightly more than 10 s apart."""
_RECENT_MS: Final = 600_000
_MOST_COMPLETED: Final = 150
_MOST_OTHERS: Final = 100


@dataclass(frozen=True, slots=True)
class TaskPulse:
    """How one task has been doing, judged by its last jobs.

    Attributes:
        task: its name; '' stands for payloads that are not task calls.
        completed: how many of the jobs looked at completed.
        failed: how many of them failed for good.
        running: how many of them are running.
        run: run times of the jobs that ended, and of those still running so far.
        last_error: the beginning of the last failed job's error, or ''.
    """

    task: str
    completed: int
    failed: int
    running: int
    run: Spread
    last_error: str


@dataclass(frozen=True, slots=True)
class Pulse:
    """A queue at a glance; instants are ms on Redis's clock.

    Lateness, run times and tasks come from the newest records: at most 150 completed and 100 failed jobs of the last
    ten minutes, and the 100 jobs that have been running longest. If these records cover less than ten minutes, jobs
    count from `since_ms` on, so that completed and failed ones cover the same period.

    Attributes:
        queue: its name.
        now_ms: when this was read.
        stats: depths and totals, as from `stats()`.
        rates: jobs per second over the last 10 s, minute and ten minutes; None until a promoter has taken samples.
        lateness: the time from when jobs could start (enqueued, due or reclaimed) to their start.
        run: how long jobs ran.
        overdue_ms: how long ago the earliest delayed job became due, which is how far the promoter is behind; 0 if it
            is not due.
        oldest_pending_ms: how long the next job in line has been waiting; 0 if none waits.
        running: the jobs that have been running longest, longest first.
        tasks: the tasks of jobs since `since_ms`, the one with the longest run first.
        workers: live workers, as of their last heartbeats.
        promoter: id of the process that holds the promoter lease, or None.
        samples: the samples of the last ten minutes, oldest first.
        since_ms: from when ended jobs count for `lateness`, `run` and `tasks`.
        failing: the tasks with failed jobs, the one with the most first. `failed` and `last_error` cover the time since
            `failing_since_ms`, which may be earlier because there are fewer failed jobs. The rest is as in `tasks`.
        failing_since_ms: from when failed jobs count for `failing`.
        unknown: tasks of waiting jobs that no worker has had.
        paused_tasks: the paused tasks, and since when each is, ms on Redis's clock.
    """

    queue: str
    now_ms: int
    stats: Stats
    rates: tuple[Throughput | None, ...]
    lateness: Spread
    run: Spread
    overdue_ms: int
    oldest_pending_ms: int
    running: tuple[JobSummary, ...]
    tasks: tuple[TaskPulse, ...]
    workers: tuple[WorkerRecord, ...]
    promoter: str | None
    samples: tuple[Sample, ...]
    unknown: tuple[UnknownTask, ...] = ()
    since_ms: int = 0
    failing: tuple[TaskPulse, ...] = ()
    failing_since_ms: int = 0
    paused_tasks: Mapping[str, int] = field(default_factory=dict)

    @property
    def depths(self) -> dict[str, int]:
        """The number of jobs in each state."""
        return {place: self.stats[f"{place}_depth"] for place in JOB_STATES}


def pulse(queue: Settings) -> RoundTrips[Pulse]:
    """Read the overview: one round trip for the queue, two for its workers."""
    keys = queue.keys
    replies = yield [
        stats(queue),
        newest(queue, _SAMPLES),
        summaries(queue, keys.pending, "oldest", 0, 1),
        summaries(queue, keys.processing, "oldest", 0, _MOST_OTHERS),
        summaries(queue, keys.completed, "newest", 0, _MOST_COMPLETED),
        summaries(queue, keys.failed, "newest", 0, _MOST_OTHERS),
        Operation("promoter", None, (), ("GET", keys.promoter), identity),
        soonest(queue),
        paused_tasks(queue),
    ]
    for reply in (replies[0], *replies[2:6]):
        unwrap(reply)
    return _pulse(queue, replies, (yield from workers(queue)))


def _pulse(queue: Settings, replies: Sequence[Any], live: Sequence[WorkerRecord]) -> Pulse:
    # If the samples or the promoter's key are damaged, operators must still see the rest.
    found, taken = unwrap(replies[0]), replies[1] if isinstance(replies[1], list) else []
    waiting, running, completed, failed = (unwrap(reply) for reply in replies[2:6])
    now, due = found["now_ms"], found["next_due_ms"]
    failing_since = _whole_since(failed, _MOST_OTHERS, queue.failed_history, queue, now)
    since = max(failing_since, _whole_since(completed, _MOST_COMPLETED, queue.completed_history, queue, now))
    ended = [job for job in (*completed, *failed) if job.ended_at_ms >= since]
    begun = [job for job in (*ended, *running) if job.started_at_ms >= now - _RECENT_MS]
    tasks = _by_task(ended, failed, running, now)
    return Pulse(
        queue=queue.name,
        now_ms=now,
        stats=found,
        rates=tuple(rate(taken, found, now, seconds) for seconds in RATES_S),
        lateness=Spread.of(job.lateness_ms for job in begun if job.lateness_ms is not None),
        run=_run_times(ended, now),
        overdue_ms=0 if due is None else max(0, now - due),
        oldest_pending_ms=waiting[0].waits_ms if waiting else 0,
        running=tuple(running),
        tasks=tuple(tasks),
        workers=tuple(live),
        promoter=replies[6] if isinstance(replies[6], str) else None,
        samples=tuple(sample for sample in taken if sample.at_ms >= now - _RECENT_MS),
        unknown=unknown_tasks(replies[7] if isinstance(replies[7], list) else ()),
        since_ms=since,
        failing=tuple(_failing(tasks, [job for job in failed if job.ended_at_ms >= failing_since])),
        failing_since_ms=failing_since,
        paused_tasks=replies[8] if isinstance(replies[8], dict) else {},
    )


def _whole_since(newest: Sequence[JobSummary], limit: int, history: int, queue: Settings, now_ms: int) -> int:
    """The instant since which these are all the jobs that ended this way, at the earliest ten minutes ago.

    Args:
        newest: the newest records of a history; a record whose data has expired has no instant.
        limit: how many were requested.
        history: how many are kept, whatever their age; negative for all.
        queue: settings with the least time for which a record is kept.
        now_ms: Redis's clock.
    """
    instants = [job.ended_at_ms for job in newest if job.ended_at_ms]
    is_whole = len(newest) < limit and len(instants) == len(newest) and (history < 0 or len(newest) < history)
    kept = now_ms - round(1000 * queue.min_keep)
    return max(now_ms - _RECENT_MS, 0 if is_whole else min([*instants, kept] if history == 0 else instants or [kept]))


def _failing(tasks: Sequence[TaskPulse], failed: Iterable[JobSummary]) -> list[TaskPulse]:
    counted = {task.task: task for task in tasks}
    found = [
        replace(
            counted.get(task, TaskPulse(task, 0, 0, 0, Spread.of(()), "")),
            failed=len(some),
            last_error=max(some, key=lambda job: job.ended_at_ms).error,
        )
        for task, some in by_task(failed).items()
    ]
    return sorted(found, key=lambda task: (-task.failed, task.task))


def _run_times(jobs: Iterable[JobSummary], now_ms: int) -> Spread:
    """How long jobs ran, or have been running, if their start is known."""
    return Spread.of(max(0, (job.ended_at_ms or now_ms) - job.started_at_ms) for job in jobs if job.started_at_ms)


def _by_task(
    ended: Iterable[JobSummary], failed: Sequence[JobSummary], running: Sequence[JobSummary], now_ms: int
) -> list[TaskPulse]:
    lost, busy = {job.id for job in failed}, {job.id for job in running}
    jobs = {job.id: job for job in (*running, *ended)}  # a job may have ended between the reads
    found = []
    for task, some in by_task(jobs.values()).items():
        errors = sorted((job.ended_at_ms, job.error) for job in some if job.id in lost)
        done = sum(bool(job.ended_at_ms) for job in some)
        found.append(
            TaskPulse(
                task,
                completed=done - len(errors),
                failed=len(errors),
                running=sum(job.id in busy and not job.ended_at_ms for job in some),
                run=_run_times(some, now_ms),
                last_error=errors[-1][1] if errors else "",
            )
        )
    return sorted(found, key=lambda task: (-(task.run.max_ms or 0), task.task))
