"""`schedq stats`, `workers` and `health` show queues and workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

import click
from rich.table import Table

from schedq.cli import offers, output
from schedq.cli.params import Offered, ask, json_option, redis_option, yes_option
from schedq.cli.queue_argument import ExplicitQueueCommand, queue_argument
from schedq.cli.queues import all_names, must_be_known, open_queue, read_each, read_stats
from schedq.errors import Conflict
from schedq.inspect import display, gate_words
from schedq.inspect.gates import GateStatus
from schedq.inspect.stats import Stats
from schedq.inspect.stats import stats as queue_stats
from schedq.model.lifecycle import JOB_STATES
from schedq.model.records import whole
from schedq.model.settings import Settings
from schedq.model.times import span
from schedq.queue.queue import Queue
from schedq.transitions import RoundTrips, unwrap
from schedq.transitions.heartbeat import WorkerRecord
from schedq.transitions.heartbeat import workers as live_workers

T = TypeVar("T")
_MOST_BRIEF: Final = 5
"""Maximum number of jobs per worker that `stats` shows."""
_MOST_GATES: Final = 10
"""Maximum number of gates that `stats` shows; `schedq gates ls` has all."""
_MOST_JOBS: Final = 20
"""Maximum number of jobs per worker that `workers` shows."""


@click.command(
    cls=ExplicitQueueCommand,
    epilog="""\b
Examples:
  schedq stats
  schedq stats emails --json""",
)
@queue_argument(required=False)
@click.option("--scan", is_flag=True, help="Also find queues that only other programs use: scans all keys.")
@redis_option
@json_option
def stats(name: str | None, scan: bool, redis_url: str | None, as_json: bool) -> None:
    """Show depths, totals and live workers of the queue NAME; without NAME, one line per queue."""
    if name is None:
        _show_all(redis_url, scan=scan, as_json=as_json)
        return
    if scan:
        raise click.UsageError("--scan looks for queues; leave NAME out")
    with open_queue(name, redis_url) as queue:
        found, workers = queue.stats(), queue.list_workers()
        if not (found["enqueued_total"] or workers or any(_depths(found).values())):
            must_be_known(queue, redis_url)
        if as_json:
            live = [asdict(worker) for worker in workers]
            tasks = {"tasks_paused_since_ms": queue.list_paused_tasks()}
            output.show_json({"queue": name, **cast("dict[str, Any]", found), **tasks, "live_workers": live})
        else:
            _show(queue, found, workers)


def _depths(found: Stats) -> dict[str, int]:
    values = cast("dict[str, Any]", found)
    return {place: values[f"{place}_depth"] for place in JOB_STATES}


def _show(queue: Queue, found: Stats, workers: list[WorkerRecord]) -> None:
    now, paused = found["now_ms"], found["paused_since_ms"]
    facts = [
        ("paused", "no" if paused is None else f"since {display.moment(paused, now)}"),
        *(
            ("paused task", f"{task}, since {display.moment(since, now)}")
            for task, since in (queue.list_paused_tasks() if found["paused_tasks"] else {}).items()
        ),
        ("next due", display.moment(found["next_due_ms"] or 0, now)),
        ("visibility", span(found["visibility_ms"])),
        ("workers", f"{found['workers']:,}"),
    ]
    facts += [(gate_words.named(gate.name), _gate(gate)) for gate in queue.gates.list()[:_MOST_GATES]]
    if found["held_depth"]:
        facts.append(("held", f"{found['held_depth']:,} of {found['pending_depth']:,} pending jobs"))
    if found["outbox_at_ms"] is not None:
        oldest, held = found["outbox_oldest_ms"], found["outbox_held"]
        since = f", the oldest since {display.moment(oldest, now)}" if oldest else ""
        facts.append(("outbox", f"{found['outbox_unsent']:,} unsent{since}" + (f"; {held:,} held" if held else "")))
    if found["leases_depth"] != found["processing_depth"]:
        facts.append(("leases", f"{found['leases_depth']:,} for {found['processing_depth']:,} running jobs"))
    totals = [(what[:-6], value) for what, value in cast("dict[str, int]", found).items() if what.endswith("_total")]
    half = (len(totals) + 1) // 2
    grid = Table.grid(padding=(0, 6, 0, 0))
    grid.add_row(
        _numbers("now", _depths(found).items()), _numbers("so far", totals[:half]), _numbers("", totals[half:])
    )
    output.show(output.heading(f"queue {queue.name} at {queue.address.label}"), output.facts(facts), "", grid)
    if workers:
        title = output.heading("live workers, as of their last heartbeat (every 10 s)")
        output.show("", title, _live_workers(workers, now))


def _gate(gate: GateStatus) -> str:
    waiting = f"{gate_words.waiting(gate)} waiting, " if gate.name else ""
    return f"{gate_words.state(gate, gate.now_ms)}; {waiting}{gate_words.running(gate)} running"


def _numbers(title: str, numbers: Iterable[tuple[str, int]]) -> Table:
    return output.table([title, " "], [(what, f"{value:,}") for what, value in numbers], right=[" "])


def _live_workers(workers: list[WorkerRecord], now_ms: int) -> Table:
    rows = []
    for worker in workers:
        jobs = [f"{job.get('id', '?')} {job.get('task', '')}" for job in worker.jobs[:_MOST_BRIEF]]
        if worker.running > len(jobs):
            jobs.append(f"and {worker.running - len(jobs)} more")
        since = f"{display.clock(worker.started_at_ms, now_ms)}, {display.roughly(worker.started_at_ms, now_ms)}"
        busy = f"{worker.running} of {worker.concurrency}" + (", stopping" if worker.is_stopping else "")
        busy += f", {worker.stuck} stuck" if worker.stuck else ""
        first = (worker.host, str(worker.pid), since, busy)
        rows += [(*(first if n == 0 else ("",) * 4), job) for n, job in enumerate(jobs or [display.NOTHING])]
    return output.table(["host", "pid", "since", "busy", "runs"], rows, whole=4, times=(2,))


def _show_all(redis_url: str | None, *, scan: bool, as_json: bool) -> None:
    with output.progress_bar("reading queues", 1, after_s=output.QUICK_S) as moved:
        names = all_names(redis_url, scan=scan)
        found, damaged = _separated(dict(read_stats(names, redis_url, moved)))
    if as_json:
        output.show_json({"queues": [{"queue": name, **stats} for name, stats in found.items()]})
    elif not names:
        output.show("no queue here" + ("" if scan else "; --scan also finds queues that only other programs use"))
    else:
        _show_overview(found)
    if damaged:
        raise click.ClickException("; ".join(damaged))


def _show_overview(found: dict[str, Stats]) -> None:
    rows = []
    for name, stats in found.items():
        now, paused = stats["now_ms"], stats["paused_since_ms"]
        numbers = [f"{_depths(stats)[place]:,}" for place in ("pending", "delayed", "processing", "failed")]
        due = display.roughly(stats["next_due_ms"] or 0, now)
        tasks = display.count(stats["paused_tasks"], "task") if stats["paused_tasks"] else ""
        since = tasks if paused is None else display.roughly(paused, now)
        rows.append((name, *numbers, str(stats["workers"]), due, since))
    titles = ["queue", "pending", "delayed", "running", "failed", "workers", "next due", "paused"]
    output.show_table(titles, rows, right=titles[1:6], times=(6, 7))


@click.command(
    cls=ExplicitQueueCommand,
    epilog="""\b
Examples:
  schedq workers
  schedq workers emails --json
  schedq workers --stop web-1-4711-k3x9ab""",
)
@queue_argument(required=False)
@click.option(
    "--stop",
    "stops",
    metavar="WORKER_ID",
    type=Offered("worker", str, offers.workers),
    multiple=True,
    help="Ask this worker to stop, as SIGTERM does: within 10 s it stops taking jobs from all its queues, and it exits "
    "when its running jobs have ended. A child of --processes is not replaced. Repeatable.",
)
@yes_option
@redis_option
@json_option
def workers(name: str | None, stops: tuple[str, ...], is_sure: bool, redis_url: str | None, as_json: bool) -> None:
    """List the live workers of the queue NAME, or of all queues: where they run, since when, and what they run.

    Workers send a heartbeat every 10 s; a worker without one for 30 s is not listed.
    """
    names = all_names(redis_url) if name is None else [name]
    if stops:
        _stop(names, list(dict.fromkeys(stops)), redis_url, is_sure=is_sure, as_json=as_json)
        return
    with output.progress_bar("reading queues", 1, after_s=output.QUICK_S) as moved:
        found, damaged = _separated(dict(read_each(names, redis_url, _live, moved)))
    if as_json:
        plain = [{"queue": one, "workers": [asdict(worker) for worker in there]} for one, (there, _) in found.items()]
        output.show_json({"queues": plain} if name is None else plain[0] if plain else {})
    else:
        for one, (there, now_ms) in found.items():
            if there:
                _show_workers(one, there, now_ms)
        idle = [one for one, (there, _) in found.items() if not there]
        if idle or not names:
            output.line(f"no live worker: {', '.join(idle)}" if idle else "no queue here")
    if damaged:
        raise click.ClickException("; ".join(damaged))
    if name is not None and not found[name][0]:
        with open_queue(name, redis_url) as queue:
            must_be_known(queue, redis_url)


def _live(queue: Settings) -> RoundTrips[tuple[list[WorkerRecord], int]]:
    """The live workers of a queue, and Redis's clock if there is one, else 0."""
    found = yield from live_workers(queue)
    if not found:
        return found, 0
    (facts,) = yield [queue_stats(queue)]
    return found, unwrap(facts)["now_ms"]


def _separated(replies: Mapping[str, T | Conflict]) -> tuple[dict[str, T], list[str]]:
    """What was found of queues by name, and why others can't be read: one queue's damage must not hide the others."""
    found = {name: reply for name, reply in replies.items() if not isinstance(reply, Conflict)}
    return found, [f"queue {name}: {reply}" for name, reply in replies.items() if isinstance(reply, Conflict)]


def _show_workers(queue: str, workers: list[WorkerRecord], now_ms: int) -> None:
    output.show(output.heading(f"queue {queue}, as of each worker's last heartbeat (every 10 s)"))
    for worker in workers:
        output.line(f"{worker.id}  {summary(worker, now_ms)}")
        if worker.jobs:
            output.show(_jobs(worker.jobs, ("runs", "attempt"), ("attempts", "started_at_ms"), now_ms))
        if worker.stuck_jobs:
            output.show(_jobs(worker.stuck_jobs, ("stuck", "why"), ("why", "since_ms"), now_ms))
        if worker.running > len(worker.jobs[:_MOST_JOBS]):
            output.line(f"  and {worker.running - len(worker.jobs[:_MOST_JOBS]):,} more")
    output.line("")


def summary(worker: WorkerRecord, now_ms: int) -> str:
    """A worker's load, start time, last heartbeat and process, on one line."""
    facts = (
        "STOPPING" if worker.is_stopping else "",
        f"{worker.running} of {worker.concurrency} busy",
        f"{worker.stuck} STUCK" if worker.stuck else "",
        f"since {display.clock(worker.started_at_ms, now_ms)}",
        f"heartbeat {display.roughly(worker.seen_at_ms, now_ms)}",
        f"host {worker.host or display.NOTHING}, pid {worker.pid}",
        f"schedq {worker.version}" if worker.version else "",
    )
    return ", ".join(filter(None, facts))


def _jobs(jobs: Sequence[Mapping[str, Any]], titles: tuple[str, str], fields: tuple[str, str], now_ms: int) -> Table:
    """A row for each job: its id and task, the first field, and the time since the second one."""
    rows = []
    for job in jobs[:_MOST_JOBS]:
        since = whole(job.get(fields[1]))
        duration = span(max(0, now_ms - since)) if since else display.NOTHING
        what = str(job.get(fields[0], display.NOTHING))
        rows.append((f"  {job.get('id', '?')}", str(job.get("task") or display.NOTHING), what, duration))
    return output.table([f"  {titles[0]}", "task", titles[1], "for"], rows, right=["attempt"], times=(3,))


def _stop(names: list[str], ids: list[str], redis_url: str | None, *, is_sure: bool, as_json: bool) -> None:
    if len(ids) > 1:
        ask(f"Ask {len(ids)} workers to stop?", is_sure=is_sure)
    asked: list[str] = []
    for name in names:
        with open_queue(name, redis_url) as queue:
            for worker_id in ids:
                # One request through any of its queues is enough.
                if worker_id not in asked and queue.inspector.stop_worker(worker_id):
                    asked.append(worker_id)
    unknown = [worker_id for worker_id in ids if worker_id not in asked]
    if as_json:
        output.show_json({"asked": asked, "unknown": unknown})
    else:
        for worker_id in asked:
            output.line(f"worker {worker_id}: asked to stop; it receives the request within 10 s")
    if unknown:
        where = f"queue {names[0]}" if len(names) == 1 else "any queue"
        raise click.ClickException(f"no live worker of {where} has the id {', '.join(unknown)}")


@click.command(
    epilog="Example:  schedq health --port 8081 --live",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    required=True,
    help="The worker's --health-port or --metrics-port.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address the worker listens on.")
@click.option("--live", is_flag=True, help="Check only what a restart would fix, so not whether Redis can be reached.")
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 600),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the reply.",
)
@json_option
def health(port: int, host: str, live: bool, timeout: float, as_json: bool) -> None:
    """Check a worker that runs with --health-port. Exit code 0: healthy; 1: unhealthy, with the reasons.

    A worker is healthy while its event loop responds, its fetch loops run, and Redis replies.
    """
    from schedq.metrics.health import fetch  # imported late: it loads an HTTP client

    reply = fetch(host, port, "/livez" if live else "/healthz", timeout)
    found = _parsed_health(reply.code, reply.text)
    if as_json:
        output.show_json(found)
    elif found["status"] == "ok":
        output.line("ok")
    if found["status"] != "ok":
        raise click.exceptions.Exit(1) if as_json else click.ClickException("; ".join(found["reasons"]))


def _parsed_health(code: int, text: str) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(text)
        is_health = code in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE)
        if is_health and isinstance(found, dict) and "status" in found:
            return found
    reason = f"no reply: {text}" if code == 0 else f"the server there is not a worker's health port (HTTP {code})"
    return {"status": "failing", "reasons": [reason]}
