"""`schedq stats`: depths and totals, of one queue or of all."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, cast

import click
from rich.table import Table

from schedq.cli import show
from schedq.cli.options import json_option, redis_option
from schedq.cli.queues import all_names, must_be_known, visited
from schedq.cli.typed import QUEUE_NAME
from schedq.errors import Conflict
from schedq.lifecycle import PLACES
from schedq.operations.directory import WorkerRecord
from schedq.operations.views import Stats
from schedq.queue import Queue

_MOST_JOBS = 5


@click.command(
    short_help="Depths, totals and live workers; of all queues, or of one.",
    epilog="""\b
Examples:
  schedq stats
  schedq stats emails --json""",
)
@click.argument("name", required=False, type=QUEUE_NAME)
@click.option("--scan", is_flag=True, help="Also find queues that only other programs use: looks through all keys.")
@redis_option
@json_option
def stats(name: str | None, scan: bool, redis_url: str | None, as_json: bool) -> None:  # noqa: FBT001 - click's way
    """Depths, totals and live workers of the queue NAME at this instant; without NAME a line for every queue."""
    if name is None:
        _show_all(redis_url, scan=scan, as_json=as_json)
        return
    if scan:
        raise click.UsageError("--scan looks for queues; leave NAME out")
    with visited(name, redis_url) as queue:
        found, workers = queue.stats(), queue.list_workers()
        if not (found["enqueued_total"] or workers or any(_depths(found).values())):
            must_be_known(queue, redis_url)
        if as_json:
            facts: dict[str, Any] = {"queue": name, **found, "live_workers": [asdict(worker) for worker in workers]}
            show.out_json(facts)
        else:
            _show(queue, found, workers)


def _depths(found: Stats) -> dict[str, int]:
    values = cast("dict[str, Any]", found)
    return {place: values[f"{place}_depth"] for place in PLACES}


def _show(queue: Queue, found: Stats, workers: list[WorkerRecord]) -> None:
    now, depths = found["now_ms"], _depths(found)
    facts = [
        ("paused", "no" if found["paused_since_ms"] is None else f"since {show.moment(found['paused_since_ms'], now)}"),
        ("next due", show.moment(found["next_due_ms"] or 0, now)),
        ("visibility", show.span(found["visibility_ms"])),
        ("workers", f"{found['workers']:,}"),
    ]
    if found["leases_depth"] != found["processing_depth"]:
        facts.append(("leases", f"{found['leases_depth']:,} for {found['processing_depth']:,} running jobs"))
    totals = [(what[:-6], value) for what, value in cast("dict[str, int]", found).items() if what.endswith("_total")]
    half = (len(totals) + 1) // 2
    blocks = [("now", list(depths.items())), ("so far", totals[:half]), ("", totals[half:])]
    grid = Table.grid(padding=(0, 6, 0, 0))
    grid.add_row(*(_numbers(title, numbers) for title, numbers in blocks))
    show.out(show.heading(f"queue {queue.name} at {queue.address.label}"), show.facts(facts), "", grid)
    if workers:
        show.out("", show.heading("live workers, as they said in the last 10 seconds"), _crew(workers, now))


def _numbers(title: str, numbers: list[tuple[str, int]]) -> Table:
    return show.table([title, " "], [(what, f"{value:,}") for what, value in numbers], right=[" "])


def _crew(workers: list[WorkerRecord], now_ms: int) -> Any:
    rows = []
    for worker in workers:
        jobs = [f"{job.get('id', '?')} {job.get('task', '')}" for job in worker.jobs[:_MOST_JOBS]]
        if worker.running > len(jobs):
            jobs.append(f"and {worker.running - len(jobs)} more")
        since = f"{show.clock(worker.started_at_ms, now_ms)}, {show.roughly(worker.started_at_ms, now_ms)}"
        busy = f"{worker.running} of {worker.concurrency}" + (", stopping" if worker.is_stopping else "")
        busy += f", {worker.stuck} stuck" if worker.stuck else ""
        first = (worker.host, str(worker.pid), since, busy)
        rows += [(*(first if n == 0 else ("",) * 4), job) for n, job in enumerate(jobs or [show.NOTHING])]
    return show.table(["host", "pid", "since", "busy", "runs"], rows, whole=4, times=(2,))


def _show_all(redis_url: str | None, *, scan: bool, as_json: bool) -> None:
    names = all_names(redis_url, scan=scan)
    found: dict[str, Stats] = {}
    damaged: list[str] = []
    for name in names:
        with visited(name, redis_url) as queue:
            try:
                found[name] = queue.stats()
            except Conflict as error:  # one queue's damage must not hide the others
                damaged.append(f"queue {name}: {error}")
    if as_json:
        show.out_json({"queues": [{"queue": name, **stats} for name, stats in found.items()]})
    elif not names:
        show.out("no queue here" + ("" if scan else "; --scan looks for those that only other programs use"))
    else:
        show.out(_overview(found))
    if damaged:
        raise click.ClickException("; ".join(damaged))


def _overview(found: dict[str, Stats]) -> Any:
    depths = ("pending", "delayed", "processing", "failed")
    rows = []
    for name, stats in found.items():
        now, paused = stats["now_ms"], stats["paused_since_ms"]
        numbers = [f"{_depths(stats)[place]:,}" for place in depths]
        due = show.roughly(stats["next_due_ms"] or 0, now)
        rows.append((name, *numbers, str(stats["workers"]), due, "" if paused is None else show.roughly(paused, now)))
    titles = ["queue", "pending", "delayed", "running", "failed", "workers", "next due", "paused"]
    return show.table(titles, rows, right=titles[1:6], times=(6, 7))
