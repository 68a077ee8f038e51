"""`schedq workers`: the live workers and what each runs; and asking one to stop."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import click

from schedq.cli import show
from schedq.cli.options import ask, json_option, redis_option, yes_option
from schedq.cli.queues import all_names, must_be_known, visited
from schedq.cli.typed import QUEUE_NAME
from schedq.job import whole
from schedq.operations.directory import WorkerRecord

_MOST_JOBS = 20


@dataclass(frozen=True)
class _Crew:
    """The live workers of one queue, and the time there."""

    queue: str
    workers: list[WorkerRecord]
    now_ms: int


@click.command(
    short_help="The live workers and what each runs; ask one to stop.",
    epilog="""\b
Examples:
  schedq workers
  schedq workers emails --json
  schedq workers --stop web-1-4711-k3x9ab""",
)
@click.argument("name", required=False, type=QUEUE_NAME)
@click.option(
    "--stop",
    "stops",
    metavar="WORKER_ID",
    multiple=True,
    help="Ask this worker to stop, as SIGTERM does: within 10 s it takes no more jobs of any of its queues, and leaves "
    "when those under way have ended. A child of --processes is not replaced. May be given several times.",
)
@yes_option
@redis_option
@json_option
def workers(
    name: str | None,
    stops: tuple[str, ...],
    is_sure: bool,  # noqa: FBT001 - click passes flags by name
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """The live workers of the queue NAME, else of all queues: where they run, since when, and what they run.

    Workers tell every 10 s; who has not for 30 s does not count.
    """
    names = all_names(redis_url) if name is None else [name]
    if stops:
        _stop(names, tuple(dict.fromkeys(stops)), redis_url, is_sure=is_sure, as_json=as_json)
        return
    crews = [_crew(queue, redis_url) for queue in names]
    if as_json:
        found = [{"queue": crew.queue, "workers": [asdict(worker) for worker in crew.workers]} for crew in crews]
        show.out_json(found[0] if name is not None else {"queues": found})
        _check(name, crews, redis_url)
        return
    for crew in crews:
        if crew.workers:
            _show(crew)
    idle = [crew.queue for crew in crews if not crew.workers]
    if idle:
        show.line(f"no live worker: {', '.join(idle)}")
    elif not crews:
        show.line("no queue here")
    _check(name, crews, redis_url)


def _check(name: str | None, crews: list[_Crew], redis_url: str | None) -> None:
    """A queue without workers that was named must be there."""
    if name is not None and not any(crew.workers for crew in crews):
        with visited(name, redis_url) as queue:
            must_be_known(queue, redis_url)


def _crew(name: str, redis_url: str | None) -> _Crew:
    with visited(name, redis_url) as queue:
        return _Crew(name, queue.list_workers(), queue.stats()["now_ms"])


def _show(crew: _Crew) -> None:
    show.out(show.heading(f"queue {crew.queue}"))
    for worker in crew.workers:
        show.line(f"{worker.id}  {told(worker, crew.now_ms)}")
        if worker.jobs:
            show.out(_jobs(worker, crew.now_ms))
        if worker.stuck_jobs:
            show.out(_stuck(worker, crew.now_ms))
        if worker.running > len(worker.jobs[:_MOST_JOBS]):
            show.line(f"  and {worker.running - len(worker.jobs[:_MOST_JOBS]):,} more")
    show.line("")


def told(worker: WorkerRecord, now_ms: int) -> str:
    """Where a worker is and how busy it is, in a line."""
    facts = [
        f"{worker.running} of {worker.concurrency} busy",
        f"since {show.clock(worker.started_at_ms, now_ms)}",
        f"told {show.roughly(worker.seen_at_ms, now_ms)}",
        f"host {worker.host or show.NOTHING}, pid {worker.pid}",
    ]
    if worker.stuck:
        facts.insert(1, f"{worker.stuck} STUCK")
    if worker.version:
        facts.append(f"schedq {worker.version}")
    return ", ".join([*(["STOPPING"] if worker.is_stopping else []), *facts])


def _jobs(worker: WorkerRecord, now_ms: int) -> Any:
    rows = []
    for job in worker.jobs[:_MOST_JOBS]:
        started = whole(job.get("started_at_ms"))
        since = show.span(max(0, now_ms - started)) if started else show.NOTHING
        task, attempts = str(job.get("task") or show.NOTHING), str(job.get("attempts", show.NOTHING))
        rows.append((f"  {job.get('id', '?')}", task, attempts, since))
    return show.table(["  runs", "task", "attempt", "for"], rows, right=["attempt"], times=(3,))


def _stuck(worker: WorkerRecord, now_ms: int) -> Any:
    """The jobs whose handlers hold a slot though they were told to end."""
    rows = []
    for job in worker.stuck_jobs[:_MOST_JOBS]:
        since = whole(job.get("since_ms"))
        for_long = show.span(max(0, now_ms - since)) if since else show.NOTHING
        rows.append(
            (f"  {job.get('id', '?')}", str(job.get("task") or show.NOTHING), str(job.get("why", "")), for_long)
        )
    return show.table(["  stuck", "task", "why", "for"], rows, times=(3,))


def _stop(names: list[str], ids: tuple[str, ...], redis_url: str | None, *, is_sure: bool, as_json: bool) -> None:
    if len(ids) > 1:
        ask(f"Ask {len(ids)} workers to stop?", is_sure=is_sure)
    asked: dict[str, str] = {}
    for name in names:
        with visited(name, redis_url) as queue:
            for worker_id in ids:
                # One request reaches it, whichever of its queues it comes through.
                if worker_id not in asked and queue.inspector.stop_worker(worker_id):
                    asked[worker_id] = name
    unknown = [worker_id for worker_id in ids if worker_id not in asked]
    if as_json:
        show.out_json({"asked": list(asked), "unknown": unknown})
    else:
        for worker_id in asked:
            show.line(f"worker {worker_id}: asked to stop; it hears of it within 10 s")
    if unknown:
        where = f"queue {names[0]}" if len(names) == 1 else "any queue"
        raise click.ClickException(f"no live worker of {where} has the id {', '.join(unknown)}")
