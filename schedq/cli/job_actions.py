"""`schedq requeue`, `cancel`, `reschedule`, `delete` and `purge`: actions on jobs selected by id or by a filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from datetime import datetime, timedelta
from operator import add
from typing import Any, Final, cast

import click

from schedq.cli import output
from schedq.cli.params import (
    JOB_ID,
    FilterOptions,
    ask,
    delay_option,
    filter_options,
    json_option,
    queue_of_id_option,
    redis_option,
    run_at_option,
    state_option,
    yes_option,
)
from schedq.cli.queue_argument import ExplicitQueueCommand, queue_argument
from schedq.cli.queues import must_be_known, open_queue, queue_of_job, warn_if_no_task
from schedq.inspect import display
from schedq.inspect.bulk import ACTIONS, Acted
from schedq.model.lifecycle import JOB_STATES
from schedq.queue.queue import Queue

_CANCELLED: Final = {"cancelled": "cancelled", "asked": "asked to stop", "no": None}
dry_run_option: Final = click.option("--dry-run", "is_dry", is_flag=True, help="Only count the jobs that match.")


@dataclass(frozen=True, slots=True)
class JobAction:
    """An action on all jobs that match.

    Attributes:
        name: as `Inspector.act_on` takes it.
        verb: in the imperative, such as "Requeue".
        done: past participle, such as "requeued".
        known_as: a second key for the number of jobs in --json.
        when: delay or run_at, for reschedule.
    """

    name: str
    verb: str
    done: str
    known_as: str = ""
    when: Mapping[str, Any] = field(default_factory=dict)


_RUN_NOW: Final = JobAction("run_now", "Run", "brought forward to now")


@click.command(
    epilog="""\b
Examples:
  schedq requeue 0d4s3…k8
  schedq requeue --failed --queue emails
  schedq requeue --task send_email --error timeout --newer 2h --dry-run""",
    no_args_is_help=True,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, type=JOB_ID)
@click.option(
    "--failed", "is_all", is_flag=True, help="All failed jobs of the queue, oldest first, after confirmation."
)
@state_option(("failed", "cancelled"), "failed or cancelled; repeatable. Default with a filter: failed.")
@filter_options
@dry_run_option
@queue_of_id_option
@yes_option
@redis_option
@json_option
def requeue(
    job_ids: tuple[str, ...],
    is_all: bool,
    states: tuple[str, ...],
    filters: FilterOptions,
    is_dry: bool,
    queue_name: str | None,
    is_sure: bool,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Move failed or cancelled jobs back to pending, and count their attempts from 0 again.

    Select jobs by id or by a filter. A job that fails again while the command runs is not requeued twice.
    """
    is_many = bool(is_all or states or filters)
    hint = "give ids, or --failed for all failed jobs, or a filter"
    _check_choice(job_ids, hint, is_many=is_many, is_dry=is_dry)
    with queue_of_job(queue_name, redis_url, job_ids) as queue:
        if is_many:
            action = JobAction("requeue", "Requeue", "requeued", known_as="requeued")
            states = ("failed", *states) if is_all or not states else states
            _act_on_matching(queue, action, states, filters, is_sure=is_sure, is_dry=is_dry, as_json=as_json)
        else:
            requirement = "only a failed or cancelled job can be requeued"
            _act_on_each(
                queue,
                job_ids,
                lambda job_id: "requeued" if queue.requeue(job_id) else None,
                requirement,
                as_json=as_json,
            )


@click.command(
    epilog="""\b
Example:
  schedq undo order-17 --queue orders""",
    no_args_is_help=True,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, type=JOB_ID, required=True)
@queue_of_id_option
@redis_option
@json_option
def undo(job_ids: tuple[str, ...], queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Undo the steps of failed workflows that left them as they were; they end as failed again.

    A workflow that waits or runs undoes its steps when it is cancelled.
    """
    with queue_of_job(queue_name, redis_url, job_ids) as queue:
        requirement = "only a failed or cancelled workflow with steps to undo can be undone"
        _act_on_each(
            queue, job_ids, lambda job_id: "undoing" if queue.undo(job_id) else None, requirement, as_json=as_json
        )


@click.command(
    epilog="""\b
Examples:
  schedq cancel 0d4s3…k8 --queue emails
  schedq cancel --state delayed --task send_email --older 1d""",
    no_args_is_help=True,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, type=JOB_ID)
@state_option(
    ("pending", "delayed", "processing"),
    "pending, delayed or processing; repeatable. Default with a filter: pending and delayed.",
)
@filter_options
@dry_run_option
@queue_of_id_option
@yes_option
@redis_option
@json_option
def cancel(
    job_ids: tuple[str, ...],
    states: tuple[str, ...],
    filters: FilterOptions,
    is_dry: bool,
    queue_name: str | None,
    is_sure: bool,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Cancel waiting jobs and ask running ones to stop. Asks for confirmation if there is more than one.

    Select jobs by id, or by a state or a filter. A running job is cancelled when its attempt ends without success; its
    handler may check is_cancelled.
    """
    is_many = bool(states or filters)
    _check_choice(job_ids, "give ids, or else a state or a filter", is_many=is_many, is_dry=is_dry)
    with queue_of_job(queue_name, redis_url, job_ids) as queue:
        if is_many:
            done = "cancelled or asked to stop" if "processing" in states else "cancelled"
            action, states = JobAction("cancel", "Cancel", done), states or ("pending", "delayed")
            _act_on_matching(queue, action, states, filters, is_sure=is_sure, is_dry=is_dry, as_json=as_json)
            return
        if len(job_ids) > 1:
            ask(f"Cancel {len(job_ids)} jobs of queue {queue.name}?", is_sure=is_sure)
        requirement = "only a waiting or running job can be cancelled"
        _act_on_each(queue, job_ids, lambda job_id: _CANCELLED[queue.cancel(job_id)], requirement, as_json=as_json)


@click.command(
    epilog="""\b
Examples:
  schedq reschedule 0d4s3…k8 --now
  schedq reschedule 0d4s3…k8 --run-at 2030-01-01T09:00
  schedq reschedule --task send_email --delay 1h --queue emails""",
    no_args_is_help=True,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, type=JOB_ID)
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="All delayed jobs of the queue, or all that match a filter, after confirmation.",
)
@filter_options
@dry_run_option
@delay_option
@run_at_option
@click.option("--now", "is_now", is_flag=True, help="Run them now, ahead of all other pending jobs.")
@queue_of_id_option
@yes_option
@redis_option
@json_option
def reschedule(
    job_ids: tuple[str, ...],
    is_all: bool,
    filters: FilterOptions,
    is_dry: bool,
    delay: timedelta | None,
    run_at: datetime | None,
    is_now: bool,
    queue_name: str | None,
    is_sure: bool,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Change when delayed jobs and waiting retries run. Select jobs by id or by a filter."""
    is_many = bool(is_all or filters)
    if (delay is not None) + (run_at is not None) + is_now != 1:
        raise click.UsageError("give one of --delay, --run-at and --now")
    _check_choice(job_ids, "give ids, or else --all or a filter", is_many=is_many, is_dry=is_dry)
    with queue_of_job(queue_name, redis_url, job_ids) as queue:
        if is_many:
            when = {"delay": delay, "run_at": run_at}
            action = _RUN_NOW if is_now else JobAction("reschedule", "Reschedule", "rescheduled", when=when)
            _act_on_matching(queue, action, ["delayed"], filters, is_sure=is_sure, is_dry=is_dry, as_json=as_json)
            return

        def act(job_id: str) -> str | None:
            moved = queue.run_now(job_id) if is_now else queue.reschedule(job_id, delay=delay, run_at=run_at)
            return _when_it_runs(queue, job_id) if moved else None

        _act_on_each(queue, job_ids, act, "only a delayed job can be rescheduled", as_json=as_json)


def _when_it_runs(queue: Queue, job_id: str) -> str:
    record = queue.get_job(job_id)
    if record is None or record.status != "delayed":
        return "runs now"
    return f"due {display.moment(record.run_at_ms, queue.stats()['now_ms'])}"


@click.command(
    epilog="""\b
Examples:
  schedq delete 0d4s3…k8
  schedq delete 0d4s3…k8 0d4s3…k9 --queue emails --yes""",
    no_args_is_help=True,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True, type=JOB_ID)
@queue_of_id_option
@yes_option
@redis_option
@json_option
def delete(
    job_ids: tuple[str, ...], queue_name: str | None, is_sure: bool, redis_url: str | None, as_json: bool
) -> None:
    """Delete the jobs ID with their payloads, results and histories, after confirmation.

    A running job is refused; cancel it first. `schedq purge` deletes the jobs that match a filter.
    """
    with queue_of_job(queue_name, redis_url, job_ids) as queue:
        several = len(set(job_ids)) > 1
        what = display.count(len(set(job_ids)), "job") if several else f"job {job_ids[0]}"
        ask(f"Delete {what} of queue {queue.name} at {queue.address.label}?", is_sure=is_sure)

        def act(job_id: str) -> str | None:
            return "deleted" if queue.inspector.act("delete", [job_id]).done else None

        requirement = "a running job can't be deleted before it has ended or was cancelled"
        _act_on_each(queue, job_ids, act, requirement, as_json=as_json)


@click.command(
    cls=ExplicitQueueCommand,
    epilog="""\b
Examples:
  schedq purge emails --yes
  schedq purge emails --state failed --older 7d --dry-run""",
    no_args_is_help=True,
)
@queue_argument(reads_variable=False)
@state_option(
    ACTIONS["delete"],
    f"Only jobs in this state: {', '.join(ACTIONS['delete'])}; repeatable. Default with a filter: all of these.",
)
@filter_options
@dry_run_option
@yes_option
@redis_option
@json_option
def purge(
    name: str,
    states: tuple[str, ...],
    filters: FilterOptions,
    is_dry: bool,
    is_sure: bool,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Delete all jobs of the queue NAME, waiting, running and finished ones, after confirmation.

    Running jobs are not stopped, but their outcome is dropped. Jobs enqueued during the purge stay, and so do
    schedules, totals and a pause. With a state or a filter, only matching jobs are deleted, and no running ones.
    """
    with open_queue(name, redis_url) as queue:
        if states or filters:
            must_be_known(queue, redis_url)
            action = JobAction("delete", "Delete", "deleted", known_as="purged")
            states = states or ACTIONS["delete"]
            _act_on_matching(queue, action, states, filters, is_sure=is_sure, is_dry=is_dry, as_json=as_json)
        else:
            _purge_all(queue, redis_url, is_sure=is_sure, is_dry=is_dry, as_json=as_json)


def _purge_all(queue: Queue, redis_url: str | None, *, is_sure: bool, is_dry: bool, as_json: bool) -> None:
    found = cast("dict[str, int]", queue.stats())
    there = {place: found[f"{place}_depth"] for place in JOB_STATES if found[f"{place}_depth"]}
    parts = ", ".join(f"{depth:,} {place}" for place, depth in there.items())
    total = display.count(sum(there.values()), "job")
    if not there:
        must_be_known(queue, redis_url)
    elif not is_dry:
        ask(f"Delete {total} of queue {queue.name} at {queue.address.label} ({parts})?", is_sure=is_sure)
    gone = queue.purge() if there and not is_dry else 0
    if as_json:
        dry = {"dry_run": True, "matched": sum(there.values())} if is_dry else {}
        output.show_json({"queue": queue.name, "purged": gone} | dry)
    elif not there:
        output.line(f"queue {queue.name} holds no jobs")
    elif is_dry:
        output.line(f"queue {queue.name}: {total} would be deleted ({parts})")
    else:
        output.line(f"queue {queue.name}: {display.count(gone, 'job')} deleted")


def _check_choice(job_ids: Sequence[str], hint: str, *, is_many: bool, is_dry: bool) -> None:
    """Refuse a command that selects jobs both by id and by a filter, or by neither."""
    if is_many == bool(job_ids):
        raise click.UsageError(hint + ("; not both" if is_many else ""))
    if is_dry and not is_many:
        raise click.UsageError("--dry-run needs a filter, not ids")


def _act_on_matching(
    queue: Queue,
    action: JobAction,
    states: Sequence[str],
    filters: FilterOptions,
    *,
    is_sure: bool,
    is_dry: bool,
    as_json: bool,
) -> None:
    """Count the jobs that match, ask for confirmation, act on them, and print the result.

    Args:
        queue: where the jobs are.
        action: what to do.
        states: of the jobs; repeated states count once.
        filters: which of these jobs.
        is_sure: skip the confirmation.
        is_dry: only count.
        as_json: print one JSON object.
    """
    states = list(dict.fromkeys(states))
    acted = Acted()
    if is_dry or not is_sure:
        acted = _act(queue, action, states, filters, dry_run=True)
        if acted.matched and not is_dry:
            sentence = f"{action.verb} {_count(acted.matched, states)}{filters.in_words()}"
            ask(f"{sentence} of queue {queue.name} at {queue.address.label}?", is_sure=False)
    if not is_dry and (is_sure or acted.matched):
        acted = _act(queue, action, states, filters, dry_run=False)
    if filters.task is not None and not acted.matched:
        warn_if_no_task(queue, [filters.task])
    _report(queue.name, action, states, filters, acted, is_dry=is_dry, as_json=as_json)


def _report(
    name: str,
    action: JobAction,
    states: Sequence[str],
    filters: FilterOptions,
    acted: Acted,
    *,
    is_dry: bool,
    as_json: bool,
) -> None:
    if as_json:
        about = {"queue": name, "action": action.name, "states": states, "dry_run": is_dry}
        output.show_json(about | ({action.known_as: acted.done} if action.known_as else {}) | asdict(acted))
    elif is_dry:
        found = f"{_count(acted.matched, states)} of {acted.looked:,}"
        output.line(f"queue {name}: {found} would be {action.done}{filters.in_words()}")
    else:
        moved_on = f"; {acted.refused:,} had changed state" if acted.refused else ""
        output.line(f"queue {name}: {display.count(acted.done, 'job')} {action.done}{moved_on}")


def _count(number: int, states: Sequence[str]) -> str:
    return display.count(number, f"{'/'.join(states)} job")


def _act(queue: Queue, action: JobAction, states: Sequence[str], filters: FilterOptions, *, dry_run: bool) -> Acted:
    """Act on the matching jobs state by state, or only count them, with a progress bar."""
    stats = cast("dict[str, int]", queue.stats())
    size = sum(stats[f"{state}_depth"] for state in states)
    total = Acted()
    with output.progress_bar(f"{action.verb}: counting" if dry_run else action.verb, size) as moved:
        for state in states:

            def progress(acted: Acted, before: int = total.looked) -> None:
                moved(before + acted.looked, size)

            acted = queue.inspector.act_on(
                action.name, state, **filters.given(), dry_run=dry_run, progress=progress, **action.when
            )
            total = Acted(*map(add, astuple(total), astuple(acted)))
    return total


def _act_on_each(
    queue: Queue, job_ids: Sequence[str], act: Callable[[str], str | None], requirement: str, *, as_json: bool
) -> None:
    """Act on each job and print the result; the exit code is 1 if one of them was refused.

    Args:
        queue: where the jobs are.
        job_ids: repeated ids count once.
        act: acts on a job; returns what was done, in words, or None if nothing was.
        requirement: what state a job must have, as in "only a failed job can be requeued".
        as_json: print one JSON object for all instead of one line for each.
    """

    def result(job_id: str) -> output.ActionResult:
        if done := act(job_id):
            return output.ActionResult(done)
        record = queue.get_job(job_id)
        if record is None:
            why = f"nothing is stored about job {job_id} in queue {queue.name}"
            return output.ActionResult(why, {"state": "gone"}, is_refusal=True)
        state = record.status or "without state"
        return output.ActionResult(f"job {job_id} is {state}; {requirement}", {"state": state}, is_refusal=True)

    output.show_results(queue.name, "jobs", job_ids, result, as_json=as_json)
