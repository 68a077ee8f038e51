"""The dashboard's actions: which there are, to what each applies, and what it does, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schedq.model.groups import BatchProgress

SELECTED, MATCHING, JOB, ERROR, SCHEDULE, WORKER = "selected", "matching", "job", "error", "schedule", "worker"
TASK: Final = "task"
GATE: Final = "gate"
BATCH: Final = "batch"


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One kind of action.

    Attributes:
        label: text of its button.
        effect: what it does and does not do.
        past: past participle, as in "3 jobs requeued".
        scopes: what it can be applied to; '' is the queue.
        is_irreversible: it can't be undone.
    """

    label: str
    effect: str
    past: str
    scopes: tuple[str, ...] = (SELECTED, MATCHING, JOB, ERROR)
    is_irreversible: bool = False


ACTIONS: Final[Mapping[str, ActionSpec]] = {
    "requeue": ActionSpec("Requeue", "Each job becomes pending again, and its attempts count from 0.", "requeued"),
    "cancel": ActionSpec(
        "Cancel", "Waiting jobs will not run. Running jobs are asked to stop, and may still complete.", "cancelled"
    ),
    "run_now": ActionSpec("Run now", "The job becomes pending at once, regardless of when it was due.", "made pending"),
    "reschedule": ActionSpec("Reschedule", "The job becomes due after this delay, counted from now.", "rescheduled"),
    "delete": ActionSpec(
        "Delete",
        "Payload, result and history are permanently deleted. Running jobs are left alone.",
        "deleted",
        is_irreversible=True,
    ),
    "send_message": ActionSpec(
        "Send a message to", "The workflow takes it when it asks for this topic, now or later.", "sent", (JOB,)
    ),
    "pause": ActionSpec(
        "Pause", "Workers start no more jobs until you resume the queue; running jobs finish.", "paused", ("",)
    ),
    "resume": ActionSpec("Resume", "Workers start jobs again.", "resumed", ("",)),
    "purge": ActionSpec(
        "Purge",
        "All jobs are deleted: waiting, running and finished ones. Running jobs are not stopped, but their outcome is "
        "dropped. Schedules, totals and a pause stay.",
        "deleted",
        ("",),
        is_irreversible=True,
    ),
    "pause_task": ActionSpec(
        "Pause",
        "Workers start no more jobs of this task until you resume it; running jobs finish. Its waiting jobs stay "
        "pending, and jobs of other tasks pass them.",
        "paused",
        (TASK,),
    ),
    "resume_task": ActionSpec(
        "Resume", "Workers start jobs of this task again, in their old order.", "resumed", (TASK,)
    ),
    "cancel_task": ActionSpec(
        "Cancel all waiting jobs of",
        "No waiting job of this task will run, whether it is pending or delayed. Running jobs are left alone.",
        "cancelled",
        (TASK,),
    ),
    "trigger": ActionSpec(
        "Trigger", "The schedule enqueues one job now, regardless of its slots.", "triggered", (SCHEDULE,)
    ),
    "pause_schedule": ActionSpec("Pause", "The schedule has no slots until you resume it.", "paused", (SCHEDULE,)),
    "resume_schedule": ActionSpec(
        "Resume", "The schedule continues from now; slots missed during the pause are skipped.", "resumed", (SCHEDULE,)
    ),
    "stop_worker": ActionSpec(
        "Stop", "The worker takes no more jobs, lets running ones finish, and exits.", "asked to stop", (WORKER,)
    ),
    "pause_gate": ActionSpec(
        "Pause", "Nothing of it starts until you resume it; running jobs finish.", "paused", (GATE,)
    ),
    "hold_gate": ActionSpec(
        "Hold", "Nothing of it starts for this time; running jobs finish. A longer hold stays.", "held", (GATE,)
    ),
    "resume_gate": ActionSpec("Resume", "Its jobs start again, within its limits.", "resumed", (GATE,)),
    "set_gate": ActionSpec(
        "Set limits of",
        "They hold for all workers at once, whatever the code says, until they are reset. Empty fields change nothing; "
        "0 is no limit. Rates are written 10/s, 500/m or 1000/30s.",
        "set",
        (GATE,),
    ),
    "reset_gate": ActionSpec("Reset limits of", "The limits in the code hold again.", "reset", (GATE,)),
    "retry_batch": ActionSpec(
        "Retry",
        "The children that failed run again; a chain continues with the call that failed. Its end is then done again.",
        "retried",
        (BATCH,),
    ),
    "cancel_batch": ActionSpec(
        "Cancel",
        "No child begins any more: waiting ones are cancelled. Running ones are asked to stop, and may still complete.",
        "cancelled",
        (BATCH,),
    ),
    "delete_batch": ActionSpec(
        "Delete",
        "Its record and results are permanently deleted. Its jobs stay, but nothing is done at its end, and children "
        "that are not jobs yet never become jobs.",
        "deleted",
        (BATCH,),
        is_irreversible=True,
    ),
}


def actions_of_batch(batch: BatchProgress, fields: Mapping[str, str]) -> list[str]:
    """The actions that apply to a batch; none to one that stands for another, because they apply to that one."""
    if batch.stands_for:
        return []
    is_whole = fields.get("waiting") == "0" or "1" in (fields.get("chained"), fields.get("numbered"))
    applies = {
        "retry_batch": batch.has_ended and batch.completed < batch.total and is_whole,
        "cancel_batch": batch.status == "running",
        "delete_batch": True,
    }
    return [action for action, does_apply in applies.items() if does_apply]
