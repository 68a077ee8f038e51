"""A queue at a glance, from a few bounded reads: what `schedq top` and the dashboard's overview show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schedq.inspect.samples import Sample, Throughput, newest, rate
from schedq.inspect.stats import Stats, stats
from schedq.inspect.summary import JobSummary, Spread, UnknownTask, by_task, soonest, summaries, unknown_tasks
from schedq.inspect.task_stats import CountedTime, counted, read_task_stats
from schedq.model.lifecycle import JOB_STATES
from schedq.model.settings import Settings
from schedq.model.task_stats import Counts, Histogram
from schedq.transitions import Operation, RoundTrips, identity, unwrap
from schedq.transitions.heartbeat import WorkerRecord, workers
from schedq.transitions.pause import paused_tasks

RATES_S: Final = (10, 60, 600)
_SAMPLES: Final = 65
"""Enough to include one older than ten minutes, since samples are slightly more than 10 s apart."""
_RECENT_MS: Final = 600_000
_MOST_OTHERS: Final = 100


@dataclass(frozen=True, slots=True)
class TaskPulse:
    """How one task has been doing, by what workers counted; see `TaskStats`.

    Attributes:
        task: its name; '' stands for payloads that are not task calls.
        completed: how many jobs completed.
        failed: how many failed for good.
        running: how many of the 100 jobs that have been running longest are of this task.
        run: run times of the attempts that ended; `max_ms` also covers the jobs that are still running, so far.
        last_error: the beginning of the last failed job's error, or ''.
        retried: how many attempts failed and were to be repeated.
    """

    task: str
    completed: int
    failed: int
    running: int
    run: Spread
    last_error: str
    retried: int = 0


@dataclass(frozen=True, slots=True)
class Pulse:
    """A queue at a glance; instants are ms on Redis's clock.

    Lateness, run times and tasks are what workers counted since `since_ms`, which is ten to 15 minutes ago; they report
    every 10 s. See `TaskStats` for what counts.

    Attributes:
        queue: its name.
        now_ms: when this was read.
        stats: depths and totals, as from `stats()`.
        rates: jobs per second over the last 10 s, minute and ten minutes; None until a promoter has taken samples, and
            for a queue that was not used for eight days.
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
        since_ms: from when attempts count for `lateness`, `run`, `tasks` and `failing`.
        failing: those of `tasks` with failed jobs, the one with the most first.
        failing_since_ms: the same as `since_ms`.
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
        summaries(queue, keys.failed, "newest", 0, _MOST_OTHERS),
        counted(queue),
        Operation("promoter", None, (), ("GET", keys.promoter), identity),
        soonest(queue),
        paused_tasks(queue),
    ]
    for reply in (replies[0], *replies[2:5]):
        unwrap(reply)
    return _pulse(queue, replies, (yield from workers(queue)))


def _pulse(queue: Settings, replies: Sequence[Any], live: Sequence[WorkerRecord]) -> Pulse:
    # If the samples, the counts or the promoter's key are damaged, operators must still see the rest.
    found, taken = unwrap(replies[0]), replies[1] if isinstance(replies[1], list) else []
    waiting, running, failed = (unwrap(reply) for reply in replies[2:5])
    now, due = found["now_ms"], found["next_due_ms"]
    fields = replies[5] if isinstance(replies[5], dict) else {}
    recent = read_task_stats(fields, now).within(_RECENT_MS / 1000)
    tasks = _by_task(recent, failed, running, now)
    return Pulse(
        queue=queue.name,
        now_ms=now,
        stats=found,
        rates=tuple(rate(taken, found, now, seconds) for seconds in RATES_S),
        lateness=_spread(recent.all.lateness, recent.all.latest_ms),
        run=_spread(recent.all.run, recent.all.longest_ms),
        overdue_ms=0 if due is None else max(0, now - due),
        oldest_pending_ms=waiting[0].waits_ms if waiting else 0,
        running=tuple(running),
        tasks=tuple(tasks),
        workers=tuple(live),
        promoter=replies[6] if isinstance(replies[6], str) else None,
        samples=tuple(sample for sample in taken if sample.at_ms >= now - _RECENT_MS),
        unknown=unknown_tasks(replies[7] if isinstance(replies[7], list) else ()),
        since_ms=recent.since_ms,
        failing=tuple(sorted((each for each in tasks if each.failed), key=lambda task: (-task.failed, task.task))),
        failing_since_ms=recent.since_ms,
        paused_tasks=replies[8] if isinstance(replies[8], dict) else {},
    )


def _by_task(
    counted: CountedTime, failed: Iterable[JobSummary], running: Iterable[JobSummary], now_ms: int
) -> list[TaskPulse]:
    busy, lost = by_task(running), by_task(failed)
    found = []
    for task in {*counted.tasks, *busy}:
        counts, here = counted.tasks.get(task, Counts()), busy.get(task, [])
        errors = [(job.ended_at_ms, job.error) for job in lost.get(task, ())]
        so_far = (now_ms - job.started_at_ms for job in here if job.started_at_ms)
        longest_ms = max([counts.longest_ms, *so_far])
        found.append(
            TaskPulse(
                task,
                completed=counts.completed,
                failed=counts.failed,
                running=len(here),
                run=_spread(counts.run, longest_ms) if counts.attempts or here else Spread.of(()),
                last_error=max(errors)[1] if errors and counts.failed else "",
                retried=counts.retried,
            )
        )
    return sorted(found, key=lambda task: (-(task.run.max_ms or 0), task.task))


def _spread(found: Histogram, longest_ms: int) -> Spread:
    """The distribution, of which the longest duration is known."""
    p50, p99 = found.quantile_ms(0.5), found.quantile_ms(0.99)
    if p50 is None or p99 is None:
        return Spread(0, longest_ms, longest_ms, longest_ms) if longest_ms else Spread.of(())
    return Spread(found.count, min(round(p50), longest_ms), min(round(p99), longest_ms), longest_ms)
