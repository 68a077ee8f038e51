"""`schedq tasks`: figures of the tasks of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import click
from rich.table import Table

from schedq.cli import offers, output
from schedq.cli.params import Checked, Offered, json_option, redis_option
from schedq.cli.queue_argument import QueueCommand, queue_argument
from schedq.cli.queues import must_be_known, only_queue, open_queue
from schedq.inspect import display
from schedq.inspect.plain import by_run_time, task_figures
from schedq.inspect.task_stats import CountedTime, TaskStats
from schedq.model.task_stats import Counts, Histogram
from schedq.model.times import parsed_duration
from schedq.transitions.pause import checked_task

_BAR: Final = 40
_NO_TASK: Final = "(no task)"
_HOUR: Final = timedelta(hours=1)


@click.command(
    cls=QueueCommand,
    epilog="""\b
Examples:
  schedq tasks emails
  schedq tasks emails --within 24h --task send_email""",
)
@queue_argument(takes_only=True)
@click.option(
    "--within",
    type=Checked("duration", parsed_duration),
    metavar="D",
    help="What was counted in the last D, 5m to 48h.  [default: 1h]",
)
@click.option("--ever", is_flag=True, help="What was counted since the queue began.")
@click.option(
    "--task",
    metavar="T",
    type=Offered("task", checked_task, offers.tasks),
    help="One task: its figures by time, and histograms.",
)
@redis_option
@json_option
def tasks(
    name: str | None, within: timedelta | None, ever: bool, task: str | None, redis_url: str | None, as_json: bool
) -> None:
    """Show how often the tasks of the queue NAME ran, failed and how long they took.

    Workers count their attempts and report them every 10 s, so the newest are missing. `errors` is the share of failed
    attempts, `late` the 99th percentile of the time from when a job could start to its start. Times in histograms and
    percentiles are at most 41 % off.
    """
    if ever and within:
        raise click.UsageError("--ever and --within exclude each other")
    name = name or only_queue(redis_url)
    with open_queue(name, redis_url) as queue:
        found = queue.inspector.task_stats()
        if not found.ever.tasks:
            must_be_known(queue, redis_url)
        label = queue.address.label
    period = found.ever if ever else found.within(within or _HOUR)
    if task is not None and task not in period.tasks:
        raise click.ClickException(f"nothing was counted of task {task} in this time{_known(period)}")
    if as_json:
        output.show_json(task_figures(name, period, task))
        return
    since = "" if ever else f" since {display.moment(period.since_ms, found.now_ms)}"
    title = f"queue {name} at {label}: {'tasks' if task is None else f'task {task}'}{since}"
    if not period.tasks:
        output.line(f"{title}: no task has run")
    elif task is None:
        output.show(output.heading(title), _table([(each or _NO_TASK, counts) for each, counts in by_run_time(period)]))
    else:
        _show_one(title, found, period, task, [] if ever else found.history(within or _HOUR))


def _known(period: CountedTime) -> str:
    names = [each for each, _ in by_run_time(period) if each]
    return f"; there are figures of {', '.join(names[:10])}" if names else ""


def _table(rows: Sequence[tuple[str, Counts]], first: str = "task") -> Table:
    titles = [first, "done", "failed", "retried", "errors", "p50", "p99", "max", "late"]
    cells = [
        (
            name,
            f"{counts.completed:,}",
            f"{counts.failed:,}",
            f"{counts.retried:,}",
            _share(counts.error_rate),
            *map(_time, (counts.run_quantile_ms(0.5), counts.run_quantile_ms(0.99))),
            _time(counts.longest_ms if counts.attempts else None),
            _time(counts.lateness_quantile_ms(0.99)),
        )
        for name, counts in rows
    ]
    return output.table(titles, cells, whole=-1, right=titles[1:], times=() if first == "task" else (0,))


def _share(rate: float | None) -> str:
    if rate is None:
        return display.NOTHING
    return "< 1 %" if 0 < rate < 0.01 else display.percent(rate)


def _time(ms: float | None) -> str:
    return display.NOTHING if ms is None else display.approximate(ms)


def _show_one(title: str, found: TaskStats, period: CountedTime, task: str, history: Sequence[CountedTime]) -> None:
    counts = period.tasks[task]
    parts = [part for part in reversed(history) if task in part.tasks]
    rows = [(display.clock(part.since_ms, found.now_ms), part.tasks[task]) for part in parts]
    output.show(output.heading(title), _table([("all of it", counts), *rows], "since"))
    for what, histogram in (("ran for", counts.run), ("started late by", counts.lateness)):
        output.show("", output.heading(what), _bars(histogram))


def _bars(histogram: Histogram) -> Table:
    """A line with a bar to scale for each bin that is not empty."""
    most = max(histogram.bins.values(), default=1)
    rows = [
        (f"< {display.approximate(histogram.edges(number)[1])}", f"{count:,}", "█" * -(-count * _BAR // most))
        for number, count in sorted(histogram.bins.items())
    ]
    return output.table(["", "attempts", ""], rows, right=["", "attempts"])
