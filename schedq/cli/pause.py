"""`schedq pause` and `resume`: stop and allow claims, of a queue or of some of its tasks."""

from __future__ import annotations

from typing import Final

import click

from schedq.cli import offers, output
from schedq.cli.params import JOB_ID, Offered, json_option, redis_option
from schedq.cli.queue_argument import QueueCommand, queue_argument
from schedq.cli.queues import must_be_known, must_not_be_mistyped, open_or_create, open_queue, warn_if_no_task
from schedq.inspect import display
from schedq.queue.queue import Queue
from schedq.transitions.pause import checked_task

_task_option: Final = click.option(
    "--task",
    "tasks",
    metavar="T",
    multiple=True,
    type=Offered("task", checked_task, offers.tasks),
    help="Only the task with this name, not the whole queue; repeatable.",
)


_flow_option = click.option("--flow", metavar="ID", type=JOB_ID, help="Only the flow whose job this is, not the queue.")


@click.command(
    cls=QueueCommand,
    epilog="""\b
Examples:
  schedq pause emails
  schedq pause emails --task send_email
  schedq pause etl --flow etl-2027-03-01""",
    no_args_is_help=True,
)
@queue_argument()
@_task_option
@_flow_option
@click.option(
    "--force", is_flag=True, help="Pause a queue even if nothing is stored about it and its name resembles another's."
)
@redis_option
@json_option
def pause(
    name: str, tasks: tuple[str, ...], flow: str | None, force: bool, redis_url: str | None, as_json: bool
) -> None:
    """Stop workers from taking jobs of the queue NAME, until `resume`. Running jobs finish; new jobs are accepted.

    With --task, only jobs of that task are not taken. They stay pending, in their order, and jobs of other tasks pass
    them. With --flow, a flow starts no new nodes; jobs that it has enqueued still run.

    A queue may be paused before its first job. If nothing is stored about NAME but another queue has a similar name,
    the command refuses, because NAME may be mistyped; --force pauses it anyway.
    """
    if flow is not None:
        _pause_flow(name, tasks, flow, redis_url, is_paused=True, as_json=as_json)
        return
    with open_or_create(name, redis_url) as queue:
        is_new = not force and must_not_be_mistyped(queue, redis_url, f"(--force pauses {name} anyway)")
        new = " (it is new: nothing else is stored about it)" if is_new else ""
        if tasks:
            _pause_tasks(queue, tasks, new, as_json=as_json)
            return
        before = queue.stats()["paused_since_ms"]
        queue.pause()
        found = queue.stats()
    if as_json:
        output.show_json({"queue": name, "was_paused": before is not None, "paused_since_ms": found["paused_since_ms"]})
        return
    since = "" if before is None else f", and has been since {display.moment(before, found['now_ms'])}"
    depths = f"{found['processing_depth']:,} running, {found['pending_depth']:,} waiting"
    output.line(f"queue {name} is paused{since}{new}; {depths}")


def _pause_flow(
    name: str, tasks: tuple[str, ...], flow: str, redis_url: str | None, *, is_paused: bool, as_json: bool
) -> None:
    if tasks:
        raise click.UsageError("give --flow or --task, not both")
    with open_queue(name, redis_url) as queue:
        must_be_known(queue, redis_url)
        job = queue.job(flow)
        if not (job.pause() if is_paused else job.resume()):
            raise click.ClickException(f"flow {flow} of queue {name} has ended, or does not exist")
    if as_json:
        output.show_json({"queue": name, "flow": flow, "is_paused": is_paused})
        return
    done = "is paused: it starts no new nodes" if is_paused else "continues"
    output.line(f"flow {flow} of queue {name} {done}")


def _pause_tasks(queue: Queue, tasks: tuple[str, ...], new: str, *, as_json: bool) -> None:
    before = queue.list_paused_tasks()
    for task in tasks:
        queue.pause(task=task)
    after, now_ms = queue.list_paused_tasks(), queue.stats()["now_ms"]
    warn_if_no_task(queue, tasks)
    if as_json:
        found = {task: {"was_paused": task in before, "paused_since_ms": after.get(task)} for task in tasks}
        output.show_json({"queue": queue.name, "tasks": found})
        return
    for task in dict.fromkeys(tasks):
        since = f", and has been since {display.moment(before[task], now_ms)}" if task in before else ""
        output.line(f"task {task} of queue {queue.name} is paused{since}{new}")


@click.command(
    cls=QueueCommand,
    epilog="""\b
Examples:
  schedq resume emails
  schedq resume emails --task send_email
  schedq resume etl --flow etl-2027-03-01""",
    no_args_is_help=True,
)
@queue_argument()
@_task_option
@_flow_option
@redis_option
@json_option
def resume(name: str, tasks: tuple[str, ...], flow: str | None, redis_url: str | None, as_json: bool) -> None:
    """Let workers take jobs of the queue NAME again, or of some of its tasks, or let a flow continue.

    A queue and its tasks are paused independently: resuming the queue leaves its paused tasks paused.
    """
    if flow is not None:
        _pause_flow(name, tasks, flow, redis_url, is_paused=False, as_json=as_json)
        return
    with open_queue(name, redis_url) as queue:
        must_be_known(queue, redis_url)
        if tasks:
            _resume_tasks(queue, tasks, as_json=as_json)
            return
        was_paused = queue.resume()
        waiting, still = queue.stats()["pending_depth"], queue.list_paused_tasks()
    if as_json:
        output.show_json({"queue": name, "was_paused": was_paused})
        return
    rest = f"; still paused: {', '.join(f'task {task}' for task in still)}" if still else ""
    output.line(f"queue {name} {'is resumed' if was_paused else 'was not paused'}; {waiting:,} waiting{rest}")


def _resume_tasks(queue: Queue, tasks: tuple[str, ...], *, as_json: bool) -> None:
    was_paused = {task: queue.resume(task=task) for task in dict.fromkeys(tasks)}
    if as_json:
        output.show_json(
            {"queue": queue.name, "tasks": {task: {"was_paused": was} for task, was in was_paused.items()}}
        )
        return
    for task, was in was_paused.items():
        output.line(f"task {task} of queue {queue.name} {'is resumed' if was else 'was not paused'}")
