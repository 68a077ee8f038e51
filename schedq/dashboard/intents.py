"""What somebody means to do, read from a form, and in words before it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from schedq.cli.show import count, harmless
from schedq.dashboard.guard import Form, Refusal
from schedq.dashboard.pages.jobs import ACTIONS, FILTERS, MOST_TYPED, criteria, duration
from schedq.keys import checked_id, checked_schedule_id

MOST_IDS: Final = 1000
SELECTED, MATCHING, JOB, ERROR, SCHEDULE, WORKER = "selected", "matching", "job", "error", "schedule", "worker"


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that can be done.

    Attributes:
        label: on buttons.
        meaning: what it does, and what not.
        scopes: to what it can be done; '' is the queue.
        is_grave: it can't be undone.
        past: what was done, as in "3 jobs requeued".
    """

    label: str
    meaning: str
    past: str
    scopes: tuple[str, ...] = (SELECTED, MATCHING, JOB, ERROR)
    is_grave: bool = False


DEEDS: Final[Mapping[str, Deed]] = {
    "requeue": Deed("Requeue", "Each gets a new life: it becomes pending, its attempts count from 0.", "requeued"),
    "cancel": Deed(
        "Cancel", "What waits does not run any more. What runs is asked to stop, and may still complete.", "cancelled"
    ),
    "run_now": Deed("Run now", "It becomes pending at once, whenever it was due.", "made pending"),
    "reschedule": Deed("Reschedule", "It becomes due so long from now instead.", "rescheduled"),
    "delete": Deed(
        "Delete", "Payload, result and history are gone for good. What runs is left alone.", "deleted", is_grave=True
    ),
    "pause": Deed("Pause", "No job is started any more until you resume; what runs, runs on.", "paused", ("",)),
    "resume": Deed("Resume", "Jobs are started again.", "resumed", ("",)),
    "purge": Deed(
        "Purge",
        "Every job is deleted: waiting, running and finished ones. What runs is not stopped, but its outcome is "
        "dropped. Schedules, totals and a pause stay.",
        "deleted",
        ("",),
        is_grave=True,
    ),
    "trigger": Deed("Trigger", "It makes one job now, whatever its slots.", "triggered", (SCHEDULE,)),
    "pause_schedule": Deed("Pause", "It has no slots until you resume it.", "paused", (SCHEDULE,)),
    "resume_schedule": Deed("Resume", "It goes on from now; slots of the pause are skipped.", "resumed", (SCHEDULE,)),
    "stop_worker": Deed(
        "Stop", "It takes no more jobs, lets those that run end, and leaves.", "asked to stop", (WORKER,)
    ),
}


@dataclass(frozen=True, slots=True)
class Intent:
    """One act, checked; not yet done.

    Attributes:
        action: one of `DEEDS`.
        scope: to what.
        subject: the id of the job, schedule or worker, or the error that jobs have in common.
        ids: jobs that were ticked.
        state: of jobs that match.
        typed: the filter, as it was typed.
        delay: for reschedule, as it was typed.
        back: the page to go on to.
    """

    action: str
    scope: str
    subject: str
    ids: tuple[str, ...]
    state: str
    typed: Mapping[str, str] = field(default_factory=dict)
    delay: str = ""
    back: str = "/"

    @classmethod
    def of(cls, form: Form, queue: str) -> Intent:
        """Read a form.

        Raises:
            Refusal: it asks for nothing that can be done.
            UsageError: an id, or a duration, is none.
        """
        said = {name: values[0] for name, values in form.items()}
        action, _, rest = said.get("do", "").partition(" ")
        scope, _, subject = rest.partition(" ")
        deed, state = DEEDS.get(action), said.get("state", "")
        if deed is None or scope not in deed.scopes:
            raise Refusal(400, "This form asks for nothing that the dashboard can do.")
        ids = tuple(checked_id(job_id) for job_id in dict.fromkeys(form.get("ids", ())))
        if scope == SELECTED and not 0 < len(ids) <= MOST_IDS:
            raise Refusal(400, "No job was selected." if not ids else f"More than {MOST_IDS:,} jobs were selected.")
        if scope == MATCHING and action not in ACTIONS.get(state, ()):
            raise Refusal(400, f"{deed.label} is nothing that {harmless(state)[:40]} jobs can take.")
        if scope == JOB:
            checked_id(subject)
        if scope == SCHEDULE:
            checked_schedule_id(subject)
        typed = {name: said.get(name, "")[:MOST_TYPED] for name in FILTERS} if scope == MATCHING else {}
        if scope == ERROR:
            state, typed = "failed", {"error": subject}
        criteria(typed)
        back = said.get("back", "")
        is_here = back == f"/queues/{queue}" or back.startswith((f"/queues/{queue}/", f"/queues/{queue}?"))
        return cls(
            action,
            scope,
            subject,
            ids if scope == SELECTED else (subject,) if scope == JOB else (),
            state,
            typed,
            said.get("delay", "").strip()[:MOST_TYPED],
            back if is_here and back.isprintable() else f"/queues/{queue}",
        )

    @property
    def deed(self) -> Deed:
        """What is to be done."""
        return DEEDS[self.action]

    @property
    def is_of_many(self) -> bool:
        """Whether it is done to jobs that match."""
        return self.scope in (MATCHING, ERROR)

    @property
    def criteria(self) -> dict[str, Any]:
        """Which jobs match, as `find` takes it."""
        return criteria(self.typed)

    def wait(self) -> timedelta | None:
        """In how long jobs are to be due, if they are rescheduled.

        Raises:
            UsageError: what was typed is no duration.
        """
        return duration(self.delay) if self.action == "reschedule" else None

    def question(self, queue: str, matched: int | None, *, is_all: bool) -> str:
        """The question before it is done.

        Args:
            queue: where.
            matched: jobs that are meant, if it is done to jobs.
            is_all: all were counted; there may be more otherwise.
        """
        label = self.deed.label
        if self.scope == "":
            return f"{label} queue {queue}?" if matched is None else f"{label} queue {queue}: {count(matched, 'job')}?"
        if self.scope in (SCHEDULE, WORKER):
            return f"{label} {self.scope} {harmless(self.subject)}?"
        if self.scope == JOB:
            return f"{label} job {self.subject}?"
        state = f"{self.state} " if self.is_of_many else ""
        number = count(matched or 0, f"{state}job")
        alike = f" with “{harmless(self.subject)}” in the error" if self.scope == ERROR else ""
        return f"{label} {'' if is_all else 'at least '}{number} of queue {queue}{alike}?"

    def hidden(self) -> list[tuple[str, str]]:
        """The fields that ask for the same again."""
        fields = [("do", " ".join(filter(None, (self.action, self.scope, self.subject)))), ("back", self.back)]
        fields += [("ids", job_id) for job_id in self.ids]
        fields += [("state", self.state)] if self.scope == MATCHING else []
        return fields + ([(name, text) for name, text in self.typed.items() if text] if self.scope == MATCHING else [])
