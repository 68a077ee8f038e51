"""What `schedq top` draws: an overview of a queue, the list of queues, a list of jobs, one job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple, cast

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from schedq.cli import output
from schedq.inspect import display
from schedq.inspect.overview import Pulse, TaskPulse
from schedq.inspect.samples import Sample, Throughput
from schedq.inspect.stats import Stats
from schedq.inspect.summary import Spread
from schedq.model import escaping
from schedq.model.lifecycle import FINISHED
from schedq.model.records import JobRecord
from schedq.model.tasks import is_task_call
from schedq.model.times import span

_BARS: Final = " ▁▂▃▄▅▆▇█"
_BUCKET_MS: Final = 10_000
_BUCKETS: Final = 60
_ROOMY: Final = 34
"""Screens of fewer lines are dense: headings are titles of columns, and the figures stand closer."""
_TWO_COLUMNS: Final = 150
_COLOURS: Final = {"processing": "green", "failed": "red", "broken": "bold red"}
"""State -> its color while it has jobs."""


def queue(found: Pulse, where: str, lines: int) -> RenderableType:
    """The overview of one queue, at most `lines` high if that is 22 or more."""
    return _Overview(found, where, lines)


class _List(NamedTuple):
    """One of the lists below the figures.

    Attributes:
        heading: what it lists.
        size: how many rows there are.
        draw: the table with the first rows; takes the title of the first column and the number of rows.
        title: the first column, if the heading has a line of its own.
    """

    heading: str
    size: int
    draw: Callable[[str, int], Table]
    title: str


class _Overview:
    """Figures above lists that share the remaining lines: side by side on a wide terminal, dense on a low one."""

    def __init__(self, found: Pulse, where: str, lines: int) -> None:
        self._found, self._where, self._lines = found, where, lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found, is_dense = self._found, self._lines < _ROOMY
        upper = Group(
            _head(found, self._where),
            *([] if is_dense else [""]),
            _Figures(found, is_dense=is_dense),
            Curve(curve(found.samples, found.now_ms)),
        )
        left = self._lines - len(console.render_lines(upper, options.update(height=None), pad=False))
        yield upper
        tasks, failing, running, workers = _lists(found)
        if options.max_width >= _TWO_COLUMNS:
            grid = Table.grid(padding=(0, 4, 0, 0), expand=True)
            grid.add_column(ratio=1)
            grid.add_column(ratio=1)
            grid.add_row(*(_stacked(part, left, is_dense=False) for part in ([tasks, running], [failing, workers])))
            yield grid
        else:
            yield _stacked([tasks, failing, running, workers], left, is_dense=is_dense)


def _lists(found: Pulse) -> tuple[_List, _List, _List, _List]:
    """Tasks, failing tasks, running jobs and workers."""
    since = display.roundly(max(0, found.now_ms - found.since_ms))
    failing = display.roundly(max(0, found.now_ms - found.failing_since_ms))
    return (
        _List(f"slowest tasks of {since}", len(found.tasks), partial(_tasks, found.tasks), "task"),
        _List(f"failing tasks of {failing}", len(found.failing), partial(_failing, found.failing), "task"),
        _List("running longest", len(found.running), partial(_running, found), "id"),
        _List(display.count(len(found.workers), "live worker"), len(found.workers), partial(_workers, found), "worker"),
    )


def _stacked(lists: Sequence[_List], lines: int, *, is_dense: bool) -> Group:
    """Lists one above the other, at most `lines` high. Those without rows are left out, but not the workers."""
    shown = [one for one in lists if one.size or one.title == "worker"]
    above = 1 if is_dense else 2
    rows = shares([one.size for one in shown], lines - above * len(shown))
    parts: list[RenderableType] = []
    for one, count in zip(shown, rows, strict=True):
        if not is_dense:
            parts.append(output.heading(one.heading))
        table = one.draw(one.heading if is_dense else one.title, count)
        table.columns[0].no_wrap = True
        parts.append(table)
    return Group(*parts)


def shares(counts: Sequence[int], room: int) -> list[int]:
    """How many of its rows each list shows, if all together have `room` lines: as equal as their counts allow."""
    given = [0] * len(counts)
    while room > 0 and given != list(counts):
        for n in [n for n, count in enumerate(counts) if given[n] < count][:room]:
            given[n] += 1
            room -= 1
    return given


def _head(found: Pulse, where: str) -> RenderableType:
    text = Text(escaping.harmless(f"queue {found.queue} at {where}"), style="bold", no_wrap=True, overflow="ellipsis")
    paused = found.stats["paused_since_ms"]
    alarms = [f"PAUSED {display.apart(paused, found.now_ms)}"] if paused is not None else []
    alarms += [f"TASK {task} PAUSED {display.apart(since, found.now_ms)}" for task, since in found.paused_tasks.items()]
    if found.promoter is None:
        alarms.append("NO PROMOTER: due jobs stay delayed")
    # On a separate line: the address may be long, and alarms must not be cut off.
    return Group(text, Text("   ".join(alarms), style="bold red")) if alarms else text


class _Figures:
    """Four blocks of numbers side by side, or in rows where the terminal is narrow: a cut number misleads."""

    def __init__(self, found: Pulse, *, is_dense: bool) -> None:
        self._is_dense = is_dense
        self._depths, self._rates, self._times = _depths(found), _rates(found), _times(found)
        self._facts = _facts(found)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        facts = output.facts(self._facts)
        wide = _side_by_side(self._depths, self._rates, Group(self._times, "", facts))
        if Measurement.get(console, options.update(width=1000), wide).maximum <= options.max_width:
            yield wide
        elif self._is_dense:
            yield _side_by_side(self._depths, Group(self._rates, self._times), gap=3)
            yield output.cell(", ".join(f"{what} {said}" for what, said in self._facts))
        else:
            yield _side_by_side(self._depths, Group(self._rates, "", facts))
            yield ""
            yield self._times


def _depths(found: Pulse) -> Table:
    table = output.table(
        ["jobs", "now", "so far"],
        [(place, f"{n:,}", _so_far(found, place)) for place, n in found.depths.items()],
        right=["now", "so far"],
    )
    for row, (place, count) in zip(table.rows, found.depths.items(), strict=True):
        if count:
            row.style = _COLOURS.get(place, "")
    return table


def _rates(found: Pulse) -> Table:
    return output.table(
        ["per second", "10 s", "1 min", "10 min"],
        [
            (what, *(_rate(rate, what) for rate in found.rates))
            for what in ("enqueued", "completed", "failed", "retried")
        ],
        right=["10 s", "1 min", "10 min"],
    )


def _times(found: Pulse) -> Table:
    return output.table(
        ["", "p50", "p99", "longest", "of"],
        [("start late by", *_spread(found.lateness)), ("run for", *_spread(found.run))],
        right=["p50", "p99", "longest", "of"],
    )


def _facts(found: Pulse) -> list[tuple[str, str]]:
    due = found.stats["next_due_ms"]
    overdue = f", {span(found.overdue_ms)} behind" if found.overdue_ms else ""
    return [
        ("next due", (display.apart(due, found.now_ms) if due else display.NOTHING) + overdue),
        ("next in line waits", span(found.oldest_pending_ms) if found.depths["pending"] else display.NOTHING),
        ("promoter", found.promoter or display.NOTHING),
    ]


def _side_by_side(*blocks: RenderableType, gap: int = 5) -> Table:
    grid = Table.grid(padding=(0, gap, 0, 0))
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
    p50, p99, longest = map(display.approximate, (found.p50_ms, found.p99_ms, found.max_ms))
    return (p50, p99, longest, f"{found.count:,}")


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
        yield Text.assemble(before, (text, "green"), after, no_wrap=True, overflow="ellipsis")


def curve(samples: Sequence[Sample], now_ms: int) -> list[float]:
    """Completed jobs per second in each 10 s of the last ten minutes, oldest first."""
    found = [0.0] * _BUCKETS
    for before, after in pairwise(samples):
        rate = max(0, after.completed_total - before.completed_total) / (after.at_ms - before.at_ms) * 1000
        first, last = ((now_ms - at_ms) // _BUCKET_MS for at_ms in (after.at_ms, before.at_ms))
        for n in range(max(0, first), min(_BUCKETS, max(last, first + 1))):
            found[_BUCKETS - 1 - n] = rate
    return found


def _tasks(tasks: Sequence[TaskPulse], title: str, most: int) -> Table:
    rows = [
        (
            task.task or "(no task)",
            f"{task.completed}",
            f"{task.failed}",
            f"{task.running}",
            *_spread(task.run)[:3],
        )
        for task in tasks[:most]
    ]
    titles = [title, "completed", "failed", "running", "p50", "p99", "longest"]
    return output.table(titles, rows, whole=-1, right=titles[1:])


def _failing(tasks: Sequence[TaskPulse], title: str, most: int) -> Table:
    rows = [
        (task.task or "(no task)", f"{task.failed}", task.last_error.strip().partition("\n")[0])
        for task in tasks[:most]
    ]
    table = output.table([title, "failed", "last error"], rows, whole=-1, right=["failed"])
    for row in table.rows:
        row.style = "red"
    return table


def _workers(found: Pulse, title: str, most: int) -> Table:
    """The workers with a recent heartbeat."""
    rows = []
    for worker in found.workers[:most]:
        stopping = ", STOPPING" if worker.is_stopping else ""
        stuck = f", {worker.stuck} STUCK" if worker.stuck else ""
        rows.append(
            (
                worker.id,
                f"{worker.running} of {worker.concurrency}{stopping}{stuck}",
                display.clock(worker.started_at_ms, found.now_ms),
                display.roughly(worker.seen_at_ms, found.now_ms),
                str(worker.pid),
                worker.host or display.NOTHING,
            )
        )
    return output.table([title, "busy", "since", "heartbeat", "pid", "host"], rows, right=["pid"], times=(1, 2, 3))


def _running(found: Pulse, first: str, most: int) -> Table:
    jobs = [job for job in found.running[:most] if job.started_at_ms]
    rows = [[job.id, job.task or "(no task)", span(max(0, found.now_ms - job.started_at_ms))] for job in jobs]
    titles = [first, "task", "for"]
    if any(job.progress for job in jobs):
        titles.append("progress")
        for row, job in zip(rows, jobs, strict=True):
            row.append(display.bar(job.progress) if job.progress else "")
    for row, job in zip(rows, jobs, strict=True):
        row.append(job.worker)
    return output.table([*titles, "worker"], rows, times=range(2, len(titles)))


def queues(
    rows: Sequence[tuple[str, Stats | None, Throughput | None]], selected: int, *, first: int, total: int
) -> RenderableType:
    """Some of `total` queues, one per line; `first` is the number of those before them."""
    titles = ["", "queue", "pending", "delayed", "running", "failed", "done/s", "workers", "next due", ""]
    cells = [
        (">" if n == selected else " ", name, *_line(stats, rate)) for n, (name, stats, rate) in enumerate(rows, first)
    ]
    part = f", {first + 1:,} to {first + len(rows):,} of {total:,}" if len(rows) < total else ""
    return Group(output.heading(f"queues{part}"), output.table(titles, cells, whole=1, right=titles[2:8], times=(8,)))


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
    rows: list[tuple[str, ...]] = []
    for n, job in enumerate(records):
        instant = _instant(job)
        task = job.payload["task"] if is_task_call(job.payload) else ""
        what = (
            job.last_error.strip().partition("\n")[0]
            if job.status == "failed"
            else display.stored(job.fields, "payload").removeprefix(task)
        )
        if job.status == "processing" and job.progress:
            what = f"{display.bar(job.progress)}  {what}"
        took = span(instant - job.started_at_ms) if 0 < job.started_at_ms <= instant else display.NOTHING
        ago, mark = display.roughly(instant, now_ms), ">" if n == selected else " "
        rows.append((mark, job.id, ago, took, f"{job.attempts}", task or display.NOTHING, what))
    titles = [" ", "id", "", "took", "tries", "task", ""]
    if not any(job.status in FINISHED for job in records):
        titles, rows = titles[:3] + titles[4:], [row[:3] + row[4:] for row in rows]
    last = first + len(records)
    head = f"{title}: {first + 1:,} to {last:,} of {max(total, last):,}" if records else f"{title}: none"
    return Group(
        output.heading(head),
        output.table(titles, rows, whole=1, right=["tries"], times=(2, 3)),
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
        display.error_title(record): escaping.harmless_lines(record.last_error),
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
