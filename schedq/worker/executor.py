"""Runs one attempt: finds the function, calls it, and decides how the attempt ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from schedq.logs import log
from schedq.model import outcome
from schedq.model.payload import clean_text
from schedq.model.progress import Reporters
from schedq.model.records import ClaimedJob, Settlement
from schedq.model.runs import RunLost, RunStopped
from schedq.model.settings import Settings
from schedq.model.times import monotonic
from schedq.queue.handler import Invocation
from schedq.queue.hooks import Ending
from schedq.queue.queue import QueueBase
from schedq.queue.registry import NoHandler
from schedq.transitions.heartbeat import WorkerRecord
from schedq.transitions.settle import refusal
from schedq.worker.attempt import (
    CLAIMED,
    FINISHED,
    LOST,
    OPEN,
    RELEASED,
    RUNNING,
    SETTLED,
    TIMED_OUT,
    Attempt,
)
from schedq.worker.caller import Caller
from schedq.worker.stuck import RepeatedInterrupt, StuckSlot
from schedq.worker.worker_context import WorkerContext
from schedq.workflows.attempt import check_code
from schedq.workflows.recorder import Suspended


class Executor:
    """Runs attempts of one queue, on the event loop that it is made on.

    Args:
        queue: the application's queue.
        context: the objects that the worker's queues share.
        reporters: collects what handlers report.
        finished: called once per attempt, when its outcome is decided. The settlement is None if it was lost. The
            handler may still be running: a plain one that overran its timeout can't be stopped.
        stopped: called once per attempt, when its handler has really ended.

    Attributes:
        unknown: decides what happens to jobs for which this process has no function.
        is_releasing: the worker no longer waits for handlers, so none of them counts as stuck.
    """

    def __init__(
        self,
        queue: QueueBase,
        context: WorkerContext,
        reporters: Reporters,
        finished: Callable[[Attempt], None],
        stopped: Callable[[Attempt], None],
    ) -> None:
        self.unknown = UnknownTasks(queue)
        self.is_releasing = False
        self._queue = queue
        self._settings = queue.settings
        self._stuck = context.stuck
        self._report = context.report
        self._finished = finished
        self._stopped = stopped
        self._unkept_at: dict[str, float] = {}
        self._interrupts: dict[Attempt, RepeatedInterrupt] = {}
        self._ends: dict[Attempt, Callable[[], None]] = {}
        self._loop = asyncio.get_running_loop()  # asking for it each time costs a system call before Python 3.12
        self._caller = Caller(queue, context, reporters, self)

    async def run(self, attempt: Attempt) -> None:
        """Run an attempt from its start to its end. It gets an outcome whatever is raised on the way."""
        job, call = attempt.job, None
        try:
            try:
                if attempt.state is not CLAIMED or attempt.is_stop_requested:
                    return self.finish(attempt, outcome.released(job))
                attempt.become(RUNNING)
                if job.problem:
                    return self._refuse(attempt)
                call = self._queue.registry.find(job.payload)
                if job.run:
                    check_code(job, call.handler, self._queue.registry.runner)
                attempt.name = call.handler.name
                self._report.started(attempt)
                policy = call.handler.policy(self._settings, job)
                if job.crashes and (end := outcome.lost_too_often(job, policy)) is not None:
                    return self.fail(attempt, end, policy)
                if job.run and (late := outcome.past_deadline(job, policy)) is not None:
                    return self.ended(attempt, late, None)
                result = await self._caller.call(attempt, call, policy)
                if result is not None:
                    outcome.check_result(result)
                settlement = outcome.succeeded(job, result, policy, call.encode_result)
                self.finish(attempt, settlement)
                if settlement.note:
                    self._log_unkept(attempt, settlement)
            except NoHandler as missing:
                self._report.started(attempt)
                self.finish(attempt, self.unknown.put_back(attempt, missing))
            except BaseException as error:  # noqa: BLE001 - whatever a handler raises must fail its job, not the worker
                self.raised(attempt, call, error, _policy(self._settings, job, call))
        except BaseException as problem:  # noqa: BLE001 - an exception of a handler may itself raise when inspected
            self._unprocessed(attempt, call, problem)
        finally:
            if self._interrupts:
                self._end_interrupts(attempt)
            self._stopped(attempt)

    def finish(self, attempt: Attempt, settlement: Settlement, raised: BaseException | None = None) -> None:
        """Set the outcome of an attempt; the first one counts. Observers receive `raised`, the handler's exception."""
        if attempt.state not in OPEN:
            return
        if attempt.state is LOST:
            attempt.become(SETTLED)
        else:
            attempt.become(FINISHED)
            attempt.settlement = settlement
        self._finished(attempt)  # before anything that may raise
        self._report.finished(attempt, raised)

    def _log_unkept(self, attempt: Attempt, settlement: Settlement) -> None:
        """Log that a result is stored as text, at most once a minute per task."""
        now, problem = monotonic(), settlement.note
        if attempt.settlement is not settlement or now - self._unkept_at.get(attempt.name, -_QUIET_S) < _QUIET_S:
            return
        self._unkept_at[attempt.name] = now  # names of functions, so they are few
        text = "job %s: %s completed, but its result is stored as text: %s"
        log.warning(text, attempt.job.id, attempt.name, clean_text(problem, 500), extra=attempt.fields(problem))

    def time_out(self, attempt: Attempt) -> None:
        """Interrupt an async handler whose timeout has expired. An earlier reason to end takes precedence."""
        if attempt.state is RUNNING:
            attempt.become(TIMED_OUT)
            self.interrupt(attempt)

    def interrupt(self, attempt: Attempt) -> None:
        """Ask a handler to end, repeatedly if it keeps running. If it never ends, its slot counts as stuck."""
        attempt.interrupt()
        self._interrupt_again(attempt, self._stuck.patience)

    def leave_thread(self, attempt: Attempt) -> None:
        """Stop waiting for the thread of an attempt. If the thread does not end soon, its slot counts as stuck."""
        self._interrupt_again(attempt, min(_THREAD_PATIENCE_S, self._stuck.patience))

    def stop_interrupting(self, attempt: Attempt) -> None:
        """Let the code around a handler continue, because the handler has ended after its timeout."""
        if attempt.state in (RUNNING, TIMED_OUT) and not attempt.is_stop_requested:
            self._end_interrupts(attempt)

    def _end_interrupts(self, attempt: Attempt) -> None:
        if (repeated := self._interrupts.pop(attempt, None)) is not None:
            repeated.end()
            self._stuck.remove(attempt)

    def _interrupt_again(self, attempt: Attempt, patience: float) -> None:
        if attempt.task is None or attempt.task.done():
            return
        why = {TIMED_OUT: "timed out", LOST: "lost its lease"}.get(attempt.state, "cancelled")
        if (repeated := self._interrupts.get(attempt)) is not None:
            repeated.why = why
        else:
            self._interrupts[attempt] = RepeatedInterrupt(attempt, self._loop, why, patience, self._give_up)

    def _give_up(self, attempt: Attempt) -> None:
        """Treat the slot of a handler that does not end as stuck.

        The job of an async handler is settled now. A plain handler may still complete its job.
        """
        if self.is_releasing:
            return
        if (end := self._ends.get(attempt)) is not None:
            end()
            return
        repeated = self._interrupts[attempt]
        slot = StuckSlot(attempt.queue, attempt.name, attempt.job.id, repeated.why, repeated.since)
        self._stuck.add(attempt, slot)
        if attempt.can_be_cancelled:
            call = self._queue.registry.find(attempt.job.payload)
            has_timed_out = attempt.state is TIMED_OUT
            error = attempt.timeout_error() if has_timed_out else RuntimeError("it was asked to end and did not")
            self.interrupted(attempt, error, _policy(self._settings, attempt.job, call))

    def _refuse(self, attempt: Attempt) -> None:
        job = attempt.job
        self._report.started(attempt)
        text = "job %s: its payload can't be read (%s); failed"
        log.error(text, job.id, job.problem, extra=attempt.fields(job.problem))
        self.finish(attempt, refusal(job))

    def interrupted(self, attempt: Attempt, error: BaseException, policy: outcome.Policy) -> None:
        """Set the outcome of an attempt that was interrupted.

        The reason is a lost lease, a worker that is stopping, a request to stop, or the handler itself.
        """
        if attempt.state is LOST:
            text = "job %s: %s lost its lease; its outcome is dropped"
            log.warning(text, attempt.job.id, attempt.name, extra=attempt.fields())
            self.finish(attempt, outcome.released(attempt.job))
        elif attempt.state is RELEASED or attempt.is_stop_requested:
            self.fail(attempt, "stopped on request", policy)
        else:
            self.fail(attempt, error, policy)

    def raised(self, attempt: Attempt, call: Invocation | None, error: BaseException, policy: outcome.Policy) -> None:
        """Set the outcome of an attempt that raised this error."""
        if isinstance(error, asyncio.CancelledError):
            self.interrupted(attempt, error, policy)
        elif isinstance(error, (Suspended, RunLost, RunStopped)):
            _put_down(self, attempt, error, policy)
        elif attempt.foreseen is not None and attempt.foreseen[0] is error:
            self.fail(attempt, attempt.foreseen[1], policy)
        else:
            self.fail(attempt, _cause(call, error), policy)

    def returned(self, attempt: Attempt, call: Invocation, result: Any, policy: outcome.Policy) -> None:
        """Set the outcome of an attempt that returned this result."""
        try:
            outcome.check_result(result)
            settlement = outcome.succeeded(attempt.job, result, policy, call.encode_result)
            self.finish(attempt, settlement)
            if settlement.note:
                self._log_unkept(attempt, settlement)
        except BaseException as error:  # noqa: BLE001 - a result may raise when it is inspected
            self.raised(attempt, call, error, policy)

    def foresee(self, attempt: Attempt, call: Invocation, error: BaseException, policy: outcome.Policy) -> Ending:
        """Return the outcome that this error leads to, unless the attempt loses its lease or is asked to end first."""
        is_ended_by_worker = attempt.state is TIMED_OUT and attempt.timeout_s is None  # and this is its child process
        is_ended_by_worker = is_ended_by_worker or isinstance(error, (Suspended, RunLost, RunStopped))
        if attempt.state not in (RUNNING, TIMED_OUT) or attempt.is_stop_requested or is_ended_by_worker:
            return Ending(error, None)
        cause = _cause(call, error)
        settlement = outcome.failed(attempt.job, cause, policy)
        attempt.foreseen = (error, cause, settlement)
        return Ending(cause, settlement)

    def fail(self, attempt: Attempt, error: BaseException | str, policy: outcome.Policy) -> None:
        """Set the outcome of an attempt that has failed."""
        if attempt.state not in OPEN:
            return
        job, is_lost = attempt.job, attempt.state is LOST
        if attempt.state is RELEASED and not isinstance(error, outcome.Decision):
            # The worker asked it to end too early, so an error is a consequence of that and no failure of the job.
            self.finish(attempt, outcome.released(job))
            return
        foreseen = attempt.foreseen
        is_foreseen = foreseen is not None and foreseen[1] is error
        settlement = foreseen[2] if foreseen is not None and is_foreseen else outcome.failed(job, error, policy)
        raised = error if isinstance(error, BaseException) else None
        self.finish(attempt, settlement, raised)
        if not (is_lost or attempt.is_stop_requested):
            is_ours = type(raised) is outcome.Discard and raised.__traceback__ is None  # it was never raised
            self._report.failed(attempt, settlement, None if is_ours else raised)

    def ended(self, attempt: Attempt, settlement: Settlement, raised: BaseException | None) -> None:
        """Set an outcome that a child process decided, or that its end leads to."""
        if attempt.state not in OPEN:
            return
        is_lost = attempt.state is LOST
        self.finish(attempt, settlement, raised)
        if settlement.move in ("retry", "fail", "undo") and not (is_lost or attempt.is_stop_requested):
            self._report.failed(attempt, settlement, raised)

    def ended_by(self, attempt: Attempt, end: Callable[[], None] | None) -> None:
        """Call `end`, instead of treating its slot as stuck, if the attempt does not end when it is asked to."""
        if end is None:
            self._ends.pop(attempt, None)
        else:
            self._ends[attempt] = end

    def _unprocessed(self, attempt: Attempt, call: Invocation | None, problem: BaseException) -> None:
        """Set the outcome after its usual calculation raised an error. No code of the application is called here."""
        job = attempt.job
        policy = outcome.Policy.of(self._settings, job, None if call is None else call.handler.max_attempts)
        is_released = attempt.state is RELEASED
        settlement = outcome.released(job) if is_released else outcome.unprocessed(job, problem, policy)
        is_told, fields = attempt.state not in OPEN, attempt.fields(settlement.note)
        self.finish(attempt, settlement)
        if not is_told:
            text = "job %s: %s failed, attempt %d: %s"
            log.error(text, job.id, attempt.name, job.attempts, settlement.note, extra=fields, exc_info=problem)


def _policy(settings: Settings, job: ClaimedJob, call: Invocation | None) -> outcome.Policy:
    return outcome.Policy.of(settings, job) if call is None else call.handler.policy(settings, job)


def _put_down(
    endings: Executor, attempt: Attempt, reason: Suspended | RunLost | RunStopped, policy: outcome.Policy
) -> None:
    """Set the outcome of an attempt at a workflow that ends before its function does."""
    if isinstance(reason, Suspended):
        return endings.finish(attempt, outcome.suspended(attempt.job, reason.waits))
    if isinstance(reason, RunStopped):
        attempt.is_stop_requested = True
        if attempt.state is not LOST:
            return endings.fail(attempt, outcome.Discard("stopped on request"), policy)
    elif attempt.state in (RUNNING, TIMED_OUT, RELEASED):
        attempt.become(LOST)
    endings.interrupted(attempt, reason, policy)
    return None


def _cause(call: Invocation | None, error: BaseException) -> BaseException:
    """Return why an attempt failed. A TypeError may mean that no attempt can call the function with these arguments."""
    wrong_call = call.argument_error() if call is not None and isinstance(error, TypeError) else None
    return wrong_call or error


_THREAD_PATIENCE_S: Final = 2.0
"""Seconds that a plain handler may keep running after its timeout before its slot counts as stuck."""
_QUIET_S: Final = 60.0
"""Seconds between two log lines about the same task."""
_MOST_REMEMBERED: Final = 1000
_MOST_NAMED: Final = 20


class UnknownTasks:
    """Jobs of one queue whose tasks this process does not have, perhaps because a deployment is in progress."""

    def __init__(self, queue: QueueBase) -> None:
        self._queue = queue
        self._said_at: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}
        self._elsewhere: frozenset[str] = frozenset()
        self._met_at = -_QUIET_S

    @property
    def is_curious(self) -> bool:
        """Whether such a job was claimed in the last minute, so that it matters which tasks other workers have.

        Any thread may read this.
        """
        return monotonic() - self._met_at < _QUIET_S

    def learn(self, me: str, crew: Sequence[WorkerRecord]) -> None:
        """Store which tasks the other live workers have. Any thread may call it."""
        others = [worker for worker in crew if worker.id != me and not worker.is_stopping]
        names = {task for worker in others for task in worker.tasks}
        self._elsewhere = frozenset(names | {""} if any(worker.has_handler for worker in others) else names)

    def put_back(self, attempt: Attempt, missing: NoHandler) -> Settlement:
        """Return the outcome of such an attempt, and log it at most once a minute per task."""
        if not self.is_curious:
            self._elsewhere = frozenset()  # it may be outdated, as nothing was learned meanwhile
        self._met_at = monotonic()
        is_elsewhere = missing.task in self._elsewhere
        job, settings = attempt.job, self._queue.settings
        settlement = outcome.unknown(job, str(missing), settings, is_known_elsewhere=is_elsewhere)
        if settlement.move == "fail":
            log.error("job %s: %s; failed", job.id, settlement.note, extra=attempt.fields(settlement.note))
        else:
            self._say(attempt, missing, is_elsewhere=is_elsewhere)
        return settlement

    def _say(self, attempt: Attempt, missing: NoHandler, *, is_elsewhere: bool) -> None:
        now, name = monotonic(), missing.task
        if now - self._said_at.get(name, -_QUIET_S) < _QUIET_S:
            self._unsaid[name] = self._unsaid.get(name, 0) + 1
            return
        if len(self._said_at) >= _MOST_REMEMBERED:
            self._said_at = {task: at for task, at in self._said_at.items() if now - at < _QUIET_S}
            self._unsaid = {task: count for task, count in self._unsaid.items() if task in self._said_at}
            if len(self._said_at) >= _MOST_REMEMBERED:
                return  # so many names can't be tasks: they must not fill the memory or the log
        self._said_at[name] = now
        more = self._unsaid.pop(name, 0)
        log.warning(
            "job %s: %s%s; put back for up to %g s without using up attempts (%s); this worker's tasks: %s",
            attempt.job.id,
            clean_text(str(missing), 500),
            f" ({more:,} more such jobs since the last warning)" if more else "",
            self._queue.settings.unknown_for,
            "another live worker has it" if is_elsewhere else "is a deployment in progress?",
            self._own(),
            extra=attempt.fields(clean_text(str(missing), 500)),
        )

    def _own(self) -> str:
        """Return the names of this worker's tasks, as text."""
        names = sorted(self._queue.registry.names)
        rest = len(names) - _MOST_NAMED
        shown = ", ".join(names[:_MOST_NAMED]) or "none"
        return f"{shown} and {rest} more" if rest > 0 else shown
