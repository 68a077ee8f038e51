"""What `schedq top` draws: an overview of a queue, the list of queues, a list of jobs, one job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, cast

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from schedq.cli import output
from schedq.cli.stats import summary
from schedq.inspect import display
from schedq.inspect.overview import Pulse, TaskPulse
from schedq.inspect.samples import Sample, Throughput
from schedq.inspect.stats import Stats
from schedq.inspect.summary import Spread
from schedq.model import escaping
from schedq.model.records import JobRecord
from schedq.model.times import span

_BARS: Final = " ▁▂▃▄▅▆▇█"
_BUCKET_MS: Final = 10_000
_BUCKETS: Final = 60
_FEW: Final = 8
_TAKEN: Final = 23
"""Lines of a queue's screen without its four lists."""


def queue(found: Pulse, where: str, lines: int) -> RenderableType:
    """The overview of one queue."""
    parts: list[RenderableType] = [_head(found, where), "", _figures(found), Curve(curve(found.samples, found.now_ms))]
    share = max(1, min(_FEW, (lines - _TAKEN) // 4))
    since = display.roundly(max(0, found.now_ms - found.since_ms))
    parts += [output.heading(f"tasks of the last {since}, slowest first"), _tasks(found.tasks[:share])]
    if found.failing:
        since = display.roundly(max(0, found.now_ms - found.failing_since_ms))
        parts += [output.heading(f"failing tasks of the last {since}"), _failing(found.failing[:share])]
    if found.running:
        parts += [output.heading("running longest"), _running(found, share)]
    parts.append(output.heading(f"{display.count(len(found.workers), 'live worker')}"))
    parts += [output.cell(f"{worker.id}  {summary(worker, found.now_ms)}") for worker in found.workers[:share]]
    return Group(*parts)


def _head(found: Pulse, where: str) -> RenderableType:
    text = Text(escaping.harmless(f"queue {found.queue} at {where}"), style="bold", no_wrap=True, overflow="ellipsis")
    paused = found.stats["paused_since_ms"]
    alarms = [f"PAUSED {display.apart(paused, found.now_ms)}"] if paused is not None else []
    alarms += [f"TASK {task} PAUSED {display.apart(since, found.now_ms)}" for task, since in found.paused_tasks.items()]
    if found.promoter is None:
        alarms.append("NO PROMOTER: due jobs stay delayed")
    # On a separate line: the address may be long, and alarms must not be cut off.
    return Group(text, Text("   ".join(alarms), style="bold red")) if alarms else text


def _figures(found: Pulse) -> RenderableType:
    depths = output.table(
        ["jobs", "now", "so far"],
        [(place, f"{n:,}", _so_far(found, place)) for place, n in found.depths.items()],
        right=["now", "so far"],
    )
    rates = output.table(
        ["per second", "10 s", "1 min", "10 min"],
        [
            (what, *(_rate(rate, what) for rate in found.rates))
            for what in ("enqueued", "completed", "failed", "retried")
        ],
        right=["10 s", "1 min", "10 min"],
    )
    times = output.table(
        ["", "p50", "p99", "longest", "of"],
        [("start late by", *_spread(found.lateness)), ("run for", *_spread(found.run))],
        right=["p50", "p99", "longest", "of"],
    )
    due = found.stats["next_due_ms"]
    overdue = f", {span(found.overdue_ms)} behind" if found.overdue_ms else ""
    facts = output.facts(
        [
            ("next due", (display.apart(due, found.now_ms) if due else display.NOTHING) + overdue),
            ("next in line waits", span(found.oldest_pending_ms) if found.depths["pending"] else display.NOTHING),
            ("promoter", found.promoter or display.NOTHING),
        ]
    )
    return _Figures(depths, rates, times, facts)


class _Figures:
    """Four blocks of numbers side by side, or in two rows on a narrow terminal: a cut number misleads."""

    def __init__(self, depths: Table, rates: Table, times: Table, facts: Table) -> None:
        self._depths, self._rates, self._times, self._facts = depths, rates, times, facts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = _side_by_side(self._depths, self._rates, Group(self._times, "", self._facts))
        if Measurement.get(console, options.update(width=1000), wide).maximum <= options.max_width:
            yield wide
        else:
            yield _side_by_side(self._depths, Group(self._rates, "", self._facts))
            yield ""
            yield self._times


def _side_by_side(*blocks: RenderableType) -> Table:
    grid = Table.grid(padding=(0, 5, 0, 0))
    grid.add_row(*blocks)
    return grid


def _so_far(found: Pulse, place: str) -> str:
    """The all-time total of a finished state, whose depth counts only the records kept; '' for other states."""
    if place not in ("completed", "failed", "cancelled"):
        return ""
    return f"{cast('dict[str, int]', found.stats)[f'{place}_total']:,}"


def _rate(rate: Throughput | None, what: str) -> str:
    return display.NOTHING if rate is None else per_second(getattr(rate, what))


def per_second(number: float) -> str:
    """`0`, `0.13`, `7.5`, `1,234`."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}".rstrip("0").rstrip(".")


def _spread(found: Spread) -> tuple[str, str, str, str]:
    if found.p50_ms is None or found.p99_ms is None or found.max_ms is None:
        return (display.NOTHING, display.NOTHING, display.NOTHING, "0")
    return (span(found.p50_ms), span(found.p99_ms), span(found.max_ms), f"{found.count}")


class Curve:
    """Completed jobs per second in the last ten minutes, one bar per 10 s.

    On a narrow terminal, one bar shows the highest of several adjacent values.
    """

    def __init__(self, bars: Sequence[float]) -> None:
        self._bars = bars

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        most = max(self._bars)
        if not most:
            yield Text("completed/s, 10 min: none", style="dim")
            return
        before, after = "completed/s, 10 min: ", f"  at most {per_second(most)}"
        room = max(1, options.max_width - len(before) - len(after))
        width = -(-len(self._bars) // room)
        bars = [max(self._bars[at : at + width]) for at in range(0, len(self._bars), width)]
        text = "".join(_BARS[round(bar / most * (len(_BARS) - 1)) or (1 if bar else 0)] for bar in bars)
        yield Text(f"{before}{text}{after}", no_wrap=True, overflow="ellipsis")


def curve(samples: Sequence[Sample], now_ms: int) -> list[float]:
    """Completed jobs per second in each 10 s of the last ten minutes, oldest first."""
    found = [0.0] * _BUCKETS
    for before, after in pairwise(samples):
        rate = max(0, after.completed_total - before.completed_total) / (after.at_ms - before.at_ms) * 1000
        first, last = ((now_ms - at_ms) // _BUCKET_MS for at_ms in (after.at_ms, before.at_ms))
        for n in range(max(0, first), min(_BUCKETS, max(last, first + 1))):
            found[_BUCKETS - 1 - n] = rate
    return found


def _tasks(tasks: Iterable[TaskPulse]) -> Table:
    rows = [
        (
            task.task or "(no task)",
            f"{task.completed}",
            f"{task.failed}",
            f"{task.running}",
            *_spread(task.run)[:3],
        )
        for task in tasks
    ]
    titles = ["task", "completed", "failed", "running", "p50", "p99", "longest"]
    return output.table(titles, rows, whole=-1, right=titles[1:])


def _failing(tasks: Iterable[TaskPulse]) -> Table:
    rows = [(task.task or "(no task)", f"{task.failed}", task.last_error.strip().partition("\n")[0]) for task in tasks]
    return output.table(["task", "failed", "last error"], rows, whole=-1, right=["failed"])


def _running(found: Pulse, most: int) -> Table:
    jobs = [job for job in found.running[:most] if job.started_at_ms]
    rows = [[job.id, job.task or "(no task)", span(max(0, found.now_ms - job.started_at_ms))] for job in jobs]
    titles = ["id", "task", "for"]
    if any(job.progress for job in jobs):
        titles.append("progress")
        for row, job in zip(rows, jobs, strict=True):
            row.append(display.bar(job.progress) if job.progress else "")
    for row, job in zip(rows, jobs, strict=True):
        row.append(job.worker)
    return output.table([*titles, "worker"], rows, times=range(2, len(titles)))


def queues(rows: Sequence[tuple[str, Stats | None, Throughput | None]], selected: int, lines: int) -> RenderableType:
    """The list of all queues, one per line."""
    titles = ["", "queue", "pending", "delayed", "running", "failed", "done/s", "workers", "next due", ""]
    first, shown = window(len(rows), selected, lines - 3)
    cells = [
        (">" if n == selected else " ", name, *_line(stats, rate))
        for n, (name, stats, rate) in enumerate(rows[first : first + shown], first)
    ]
    return Group(output.heading("queues"), output.table(titles, cells, whole=1, right=titles[2:8], times=(8,)))


def _line(stats: Stats | None, rate: Throughput | None) -> tuple[str, ...]:
    if stats is None:
        return ("damaged: see schedq doctor", *[""] * 7)
    now, paused = stats["now_ms"], stats["paused_since_ms"]
    return (
        f"{stats['pending_depth']:,}",
        f"{stats['delayed_depth']:,}",
        f"{stats['processing_depth']:,}",
        f"{stats['failed_depth']:,}",
        _rate(rate, "completed"),
        f"{stats['workers']:,}",
        display.roughly(stats["next_due_ms"] or 0, now),
        "PAUSED" if paused is not None else _paused_tasks(stats),
    )


def _paused_tasks(stats: Stats) -> str:
    return f"{display.count(stats['paused_tasks'], 'task')} PAUSED" if stats["paused_tasks"] else ""


def jobs(
    title: str, records: Sequence[JobRecord], selected: int, now_ms: int, *, first: int, total: int
) -> RenderableType:
    """A page of jobs."""
    rows = []
    for n, job in enumerate(records):
        instant = _instant(job)
        what = (
            job.last_error.strip().partition("\n")[0]
            if job.status == "failed"
            else display.stored(job.fields, "payload")
        )
        if job.status == "processing" and job.progress:
            what = f"{display.bar(job.progress)}  {what}"
        rows.append((">" if n == selected else " ", job.id, display.roughly(instant, now_ms), f"{job.attempts}", what))
    last = first + len(records)
    head = f"{title}: {first + 1:,} to {last:,} of {max(total, last):,}" if records else f"{title}: none"
    return Group(
        output.heading(head),
        output.table([" ", "id", "", "attempts", ""], rows, whole=1, right=["attempts"], times=(2,)),
    )


def _instant(job: JobRecord) -> int:
    """The most informative time of a job in its state."""
    return {
        "delayed": job.run_at_ms,
        "processing": job.started_at_ms,
        "completed": job.completed_at_ms,
        "failed": job.last_error_at_ms,
    }.get(job.status, job.enqueued_at_ms)


def job(record: JobRecord, now_ms: int, lines: int) -> RenderableType:
    """One job."""
    instants = {
        "enqueued": record.enqueued_at_ms,
        "due": record.run_at_ms,
        "started": record.started_at_ms,
        "completed": record.completed_at_ms,
        "last failed": record.last_error_at_ms,
    }
    facts = [
        ("job", record.id),
        ("state", record.status),
        ("attempts", f"{record.attempts}" + (f" of {record.max_attempts}" if record.max_attempts else "")),
        ("worker", record.worker),
        ("progress", output.progress_line(record.progress) if record.progress else ""),
        *((what, display.moment(at_ms, now_ms)) for what, at_ms in instants.items() if at_ms),
    ]
    texts = {
        "payload": display.pretty(record.fields.get("payload", "")),
        "result": display.pretty(record.fields["result"]) if "result" in record.fields else "",
        "last error": escaping.harmless_lines(record.last_error),
        "traceback": escaping.harmless_lines(record.fields.get("traceback", "").rstrip()),
    }
    parts: list[RenderableType] = [output.facts(facts)]
    for title, text in texts.items():
        if text:
            parts += [output.heading(title), Text("\n".join(text.split("\n")[:lines]))]
    return Group(*parts)


def window(count: int, selected: int, lines: int) -> tuple[int, int]:
    """Which of `count` rows to show around the selected one: index of the first, and number of rows."""
    shown = max(1, lines)
    return max(0, min(selected - shown // 2, count - shown)), shown
