"""The dashboard's actions: the form that requests one, and how one runs and is logged."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from starlette.requests import Request

from schedq.dashboard import gates, runs
from schedq.dashboard.action_table import (
    ACTIONS,
    BATCH,
    ERROR,
    GATE,
    JOB,
    MATCHING,
    SCHEDULE,
    SELECTED,
    TASK,
    WORKER,
    ActionSpec,
)
from schedq.dashboard.pages import ACTIONS_OF, FILTERS, MOST_TYPED, criteria
from schedq.dashboard.queue_pool import QueuePool
from schedq.dashboard.rendering import PageData
from schedq.dashboard.security import Form, Refusal, form_fields, who
from schedq.errors import SchedqError
from schedq.inspect.bulk import Acted
from schedq.inspect.display import count
from schedq.inspect.stats import Stats
from schedq.model.escaping import harmless
from schedq.model.groups import checked_group_id
from schedq.model.keys import checked_id, checked_schedule_id
from schedq.model.lifecycle import DELAYED, JOB_STATES, PENDING
from schedq.model.times import parsed_duration
from schedq.queue.queue import AsyncQueue
from schedq.transitions.pause import checked_task

MOST_IDS: Final = 1000
WAIT_S: Final = 2.0  # for an action on jobs, before the browser is sent to the progress page
_COUNTING_S: Final = 0.5  # for counting the jobs that match, before confirmation
MOST_RUNNING: Final = 4
_MOST_KEPT: Final = 100
_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    JOB: checked_id,
    SCHEDULE: checked_schedule_id,
    TASK: checked_task,
    GATE: gates.split,
    BATCH: checked_group_id,
}
"""What raises a UsageError if the subject of such a scope is invalid."""


@dataclass(frozen=True, slots=True)
class ActionForm:
    """A submitted form, validated: which action on what.

    Attributes:
        action: one of `ACTIONS`.
        scope: what kind of thing it is applied to.
        subject: id of the job, schedule, batch or worker, or the error that jobs share.
        ids: the selected jobs.
        state: state of the matching jobs.
        typed: the filter, as typed.
        delay: for reschedule and hold_gate, as typed.
        limits: for set_gate, as typed.
        message: for send_message, as typed.
        back: the page to return to.
    """

    action: str
    scope: str
    subject: str
    ids: tuple[str, ...]
    state: str
    typed: Mapping[str, str] = field(default_factory=dict)
    delay: str = ""
    back: str = "/"
    limits: Mapping[str, str] = field(default_factory=dict)
    message: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, form: Form, queue: str) -> ActionForm:
        """Read a form.

        Raises:
            Refusal: it asks for no valid action.
            UsageError: an id or a duration is invalid.
        """
        fields = {name: values[0] for name, values in form.items()}
        action, _, rest = fields.get("do", "").partition(" ")
        scope, _, subject = rest.partition(" ")
        spec, state = ACTIONS.get(action), fields.get("state", "")
        if spec is None or scope not in spec.scopes:
            raise Refusal(400, "This form requests an action that the dashboard does not have.")
        ids = tuple(checked_id(job_id) for job_id in dict.fromkeys(form.get("ids", ())))
        if scope == SELECTED and not 0 < len(ids) <= MOST_IDS:
            raise Refusal(400, f"More than {MOST_IDS:,} jobs were selected." if ids else "No job was selected.")
        if scope == MATCHING and action not in ACTIONS_OF.get(state, ()):
            raise Refusal(400, f"{spec.label} does not apply to {harmless(state)[:40]} jobs.")
        if scope in _CHECKS:
            _CHECKS[scope](subject)
        typed = {name: fields.get(name, "")[:MOST_TYPED] for name in FILTERS} if scope == MATCHING else {}
        if scope == ERROR:
            state, typed = "failed", {"error": subject}
        criteria(typed)
        back = fields.get("back", "")
        is_here = back == f"/queues/{queue}" or back.startswith((f"/queues/{queue}/", f"/queues/{queue}?"))
        return cls(
            action,
            scope,
            subject,
            ids if scope == SELECTED else (subject,) if scope == JOB else (),
            state,
            typed,
            fields.get("delay", "").strip()[:MOST_TYPED],
            back if is_here and back.isprintable() else f"/queues/{queue}",
            {name: fields.get(name, "")[:MOST_TYPED] for name in gates.LIMIT_FIELDS} if action == "set_gate" else {},
            {name: fields.get(name, "")[: runs.MOST_VALUE] for name in runs.MESSAGE_FIELDS},
        )

    @property
    def spec(self) -> ActionSpec:
        return ACTIONS[self.action]

    @property
    def is_bulk(self) -> bool:
        """Whether the action applies to all matching jobs."""
        return self.scope in (MATCHING, ERROR)

    @property
    def criteria(self) -> dict[str, Any]:
        """Arguments of `find` for the matching jobs."""
        return criteria(self.typed)

    def parsed_delay(self) -> timedelta | None:
        """The delay of rescheduled jobs; None for other actions.

        Raises:
            UsageError: the text is not a duration.
        """
        return parsed_duration(self.delay) if self.action == "reschedule" else None

    def question(self, queue: str, matched: int | None, *, is_all: bool) -> str:
        """The question that asks for confirmation.

        Args:
            queue: name of the queue.
            matched: number of jobs, if it is about jobs.
            is_all: all were counted; otherwise there may be more.
        """
        label = self.spec.label
        if self.scope == "":
            return f"{label} queue {queue}?" if matched is None else f"{label} queue {queue}: {count(matched, 'job')}?"
        if self.scope == GATE:
            return f"{label} {gates.called(self.subject)}?"
        if self.scope in (SCHEDULE, WORKER, TASK, BATCH):
            return f"{label} {self.scope} {harmless(self.subject)}?"
        if self.scope == JOB:
            return f"{label} job {self.subject}?"
        state = f"{self.state} " if self.is_bulk else ""
        number = count(matched or 0, f"{state}job")
        alike = f" with “{harmless(self.subject)}” in the error" if self.scope == ERROR else ""
        return f"{label} {'' if is_all else 'at least '}{number} of queue {queue}{alike}?"

    def hidden(self) -> list[tuple[str, str]]:
        """Hidden fields that repeat the form."""
        asked = " ".join(filter(None, (self.action, self.scope, self.subject)))
        fields = [("do", asked), ("back", self.back), *(("ids", job_id) for job_id in self.ids)]
        if self.scope != MATCHING:
            return fields
        return [*fields, ("state", self.state), *((name, text) for name, text in self.typed.items() if text)]


# -- actions on many jobs: they run in small batches in this process, while a page shows their progress

Work = Callable[["BackgroundAction"], Awaitable[Acted]]


class BackgroundAction:
    """One action, running or finished.

    Attributes:
        id: part of the URL of its page.
        title: what it does.
        back: the page to return to.
        total: roughly how many jobs it will look at; 0 if unknown.
        state: "running", "done", "failed" or "stopped".
        problem: why it failed, or ''.
        acted: counts so far.
    """

    def __init__(self, title: str, back: str, total: int) -> None:
        self.id: Final = secrets.token_urlsafe(9)
        self.title, self.back, self.total = title, back, total
        self.state, self.problem = "running", ""
        self.acted = Acted()

    @property
    def is_over(self) -> bool:
        return self.state != "running"

    def update(self, acted: Acted) -> None:
        """Store the counts so far."""
        self.acted = acted


class BackgroundActions:
    """All actions of this process."""

    def __init__(self) -> None:
        self._all: OrderedDict[str, BackgroundAction] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def find(self, action_id: str) -> BackgroundAction:
        """The action with this id.

        Raises:
            Refusal: there is none, perhaps because this process has restarted.
        """
        if action_id not in self._all:
            raise Refusal(404, "This action is unknown here. Its effects are in the log of its queue.")
        return self._all[action_id]

    async def run(self, action: BackgroundAction, work: Work, wait_s: float) -> None:
        """Start the action; return when it ends, or after `wait_s` seconds while it continues.

        Raises:
            Refusal: too many actions are running.
        """
        if len(self._tasks) >= MOST_RUNNING:
            raise Refusal(429, f"{MOST_RUNNING} actions on many jobs are already running; wait for one to end.")
        self._all[action.id] = action
        if len(self._all) > _MOST_KEPT:
            oldest = next(action_id for action_id, kept in self._all.items() if kept.is_over)
            del self._all[oldest]
        task = asyncio.get_running_loop().create_task(self._run(action, work), name="schedq dashboard action")
        self._tasks[action.id] = task
        await asyncio.wait({task}, timeout=wait_s)

    def stop(self, action_id: str) -> None:
        """Cancel an action; what it has already done is not undone."""
        if action_id in self._tasks:
            self._tasks[action_id].cancel()

    async def aclose(self) -> None:
        """Cancel all running actions."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, action: BackgroundAction, work: Work) -> None:
        try:
            action.acted = await work(action)
            action.state = "done"
        except SchedqError as error:
            action.state, action.problem = "failed", str(error)
        except asyncio.CancelledError:
            action.state = "stopped"
        finally:
            if not action.is_over:
                action.state, action.problem = "failed", "it ended with an internal error of the dashboard"
            del self._tasks[action.id]


# -- the routes


class _TimeIsUp(Exception):  # noqa: N818 - the time for counting is up
    pass


class ActionRoutes:
    """Runs actions on all queues of one Redis."""

    def __init__(self, pool: QueuePool) -> None:
        self.background: Final = BackgroundActions()
        self._pool = pool

    async def progress(self, request: Request, _: QueuePool) -> PageData:
        """The progress page of an action on many jobs."""
        return PageData("progress.html", {"action": self.background.find(request.path_params["id"])})

    async def confirm(self, request: Request, _: QueuePool) -> PageData:
        """The page that asks for confirmation; it changes nothing."""
        name = request.path_params["name"]
        form = ActionForm.of(form_fields(request), name)
        async with self._pool.open(name) as queue:
            matched, is_all = await _count(queue, form)
            gate = await queue.gates.get(form.subject) if form.action == "set_gate" else None
            topic = await runs.topic_of(queue, form.subject) if form.action == "send_message" else None
        context = {
            "queue": name,
            "section": "",
            "question": form.question(name, matched, is_all=is_all),
            "effect": form.spec.effect,
            "names": form.ids,
            "hidden": form.hidden(),
            "label": form.spec.label,
            "is_irreversible": form.spec.is_irreversible,
            "asks_delay": {"reschedule": "Delay", "hold_gate": "For"}.get(form.action, ""),
            "topic": topic,
            "inputs": gates.inputs(gate, form.subject) if form.action == "set_gate" else [],
            "back": form.back,
        }
        return PageData("confirm.html", context)

    async def act(self, request: Request) -> tuple[str, str]:
        """Run the action; return the path to redirect to, and the notice to show there."""
        name = request.path_params["name"]
        form = ActionForm.of(form_fields(request), name)
        by = who(request) or "dashboard"
        if (form.ids and form.action != "send_message") or form.is_bulk or form.action in ("purge", "cancel_task"):
            return await self._act_on_jobs(name, form, by)
        async with self._pool.open(name) as queue:
            if form.scope == GATE:
                notice, done = await gates.act(queue, form.action, form.subject, form.delay, form.limits)
            elif form.scope == BATCH:
                notice, done = await _act_on_batch(queue, form.action, form.subject)
            elif form.action == "send_message":
                notice, done = await runs.send(queue, form.subject, form.message)
            else:
                notice, done = await _act(queue, form.action, form.subject)
            await queue.inspector.note(form.action, notice, count=done, who=by)
        back = f"/queues/{name}/batches" if form.action == "delete_batch" and done else form.back
        return back, f"{notice[:1].upper()}{notice[1:]}."

    async def _act_on_jobs(self, name: str, form: ActionForm, by: str) -> tuple[str, str]:
        delay = form.parsed_delay()
        async with self._pool.open(name) as queue:
            total = len(form.ids) or _depth(await queue.stats(), form)

        async def work(action: BackgroundAction) -> Acted:
            async with self._pool.open(name) as queue:
                if form.action == "purge":
                    gone = await queue.inspector.purge(who=by)
                    return Acted(gone, gone, gone)
                if form.action == "cancel_task":
                    done = await queue.inspector.cancel_task(form.subject, who=by)
                    return Acted(done, done, done)
                if form.ids:
                    return await queue.inspector.act(form.action, form.ids, who=by, delay=delay)
                return await queue.inspector.act_on(
                    form.action, form.state, **form.criteria, delay=delay, who=by, progress=action.update
                )

        title = f"{form.spec.label}: {count(total, 'job')} of queue {name} to check"
        action = BackgroundAction(title, form.back, total)
        await self.background.run(action, work, WAIT_S)
        if action.state != "done":
            return f"/errands/{action.id}", ""
        refused = f"; {action.acted.refused:,} refused: gone, or in another state." if action.acted.refused else "."
        return form.back, f"{count(action.acted.done, 'job')} {form.spec.past}{refused}"


def _depth(stats: Stats, form: ActionForm) -> int:
    """The number of jobs from which the form selects."""
    states = {"purge": JOB_STATES, "cancel_task": (DELAYED, PENDING)}.get(form.action, (form.state,))
    return sum(stats[f"{state}_depth"] for state in states)


async def _count(queue: AsyncQueue, form: ActionForm) -> tuple[int | None, bool]:
    """The number of jobs that the form selects, None if it is not about jobs; and whether all were counted."""
    if form.ids:
        return len(form.ids), True
    if not form.is_bulk and form.action != "purge":
        return None, True
    if not any(form.typed.values()):
        return _depth(await queue.stats(), form), True
    ends_at, found = time.monotonic() + _COUNTING_S, Acted()

    def note(acted: Acted) -> None:
        nonlocal found
        found = acted
        if time.monotonic() > ends_at:
            raise _TimeIsUp

    delay = 0 if form.action == "reschedule" else None
    try:
        await queue.inspector.act_on(form.action, form.state, **form.criteria, delay=delay, dry_run=True, progress=note)
    except _TimeIsUp:
        return found.matched, False
    return found.matched, True


async def _act(queue: AsyncQueue, action: str, subject: str) -> tuple[str, int]:
    """Act on a queue, a task, a schedule or a worker; return what was done in words, and how many things changed."""
    match action:
        case "pause":
            await queue.pause()
            return f"queue {queue.name} is paused", 1
        case "resume":
            done = await queue.resume()
            return f"queue {queue.name} {'is resumed' if done else 'was not paused'}", int(done)
        case "pause_task":
            await queue.pause(task=subject)
            return f"{TASK} {subject} is paused", 1
        case "resume_task":
            done = await queue.resume(task=subject)
            return f"{TASK} {subject} {'is resumed' if done else 'was not paused'}", int(done)
        case "trigger":
            job_id = await queue.schedules.trigger(subject)
            if job_id is None:
                return f"there is no schedule {subject}", 0
            return f"{SCHEDULE} {subject} enqueued job {job_id}", 1
        case "pause_schedule":
            done = await queue.schedules.pause(subject)
            return f"{SCHEDULE} {subject} {'is paused' if done else 'does not exist, or was already paused'}", int(done)
        case "resume_schedule":
            done = await queue.schedules.resume(subject)
            return f"{SCHEDULE} {subject} {'is resumed' if done else 'was not paused'}", int(done)
        case _:
            done = await queue.inspector.stop_worker(subject)
            return f"{WORKER} {subject} {'was asked to stop' if done else 'is not running'}", int(done)


async def _act_on_batch(queue: AsyncQueue, action: str, name: str) -> tuple[str, int]:
    """Act on a batch; return what was done in words, and how many things changed.

    Raises:
        UsageError, Conflict: it can't be retried now.
    """
    batch, which = queue.batch(name), f"batch {name}"
    if action == "retry_batch":
        retried = await batch.retry()
        said = f": {count(retried, 'child runs again=children run again')}"
        return which + (said if retried else " does not exist, or nothing of it failed"), retried
    if action == "cancel_batch":
        done = await batch.cancel()
        return f"{which} {'is being cancelled' if done else 'does not exist, or has ended'}", int(done)
    done = await batch.delete()
    kept = "stands for jobs of another queue; it is deleted when its run is over"
    return f"{which} {'is deleted' if done else kept}", int(done)
