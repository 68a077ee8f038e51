"""Runs one attempt: finds the function, calls it, and says how the attempt ends."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final
from weakref import WeakSet

from schedq import outcome, running
from schedq.application import Application
from schedq.clocks import monotonic, wall
from schedq.job import ClaimedJob, Settlement
from schedq.logger import log
from schedq.observer import AttemptEnd, AttemptFacts, Observers, Outcome
from schedq.operations.attempts import refusal
from schedq.registry import Call, NoHandler
from schedq.worker.held import Attempt
from schedq.worker.job_log import JobLog
from schedq.worker.stuck import Insistence, StuckSlot, StuckSlots
from schedq.worker.threads import Threads
from schedq.worker.unknown import UnknownTasks

Ended = Callable[[Attempt, Settlement | None], None]
Freed = Callable[[Attempt], None]
_THREAD_PATIENCE_S: Final = 2.0
"""Seconds that a plain handler may go on after its timeout before its slot counts as stuck."""
_OUTCOMES: Final[dict[str, Outcome]] = {
    "complete": "completed",
    "retry": "retry",
    "fail": "failed",
    "snooze": "snoozed",
    "release": "released",
}


class Runner:
    """Runs attempts of one queue, on the event loop that it is made on.

    Args:
        queue: the application's queue.
        threads: for plain handlers.
        ended: called once per attempt with its settlement, or with None if it was lost.
        freed: called once per attempt when its handler has really ended; later than `ended` for a plain handler
            that overran its timeout, which no one can stop.
        observers: told of each attempt.
        stuck: the worker's slots whose handlers do not end.
        job_log: says what became of each attempt.

    Attributes:
        unknown: what becomes of jobs for which this process has no function.
    """

    def __init__(
        self,
        queue: Application,
        threads: Threads,
        ended: Ended,
        freed: Freed,
        observers: Observers,
        stuck: StuckSlots,
        job_log: JobLog,
    ) -> None:
        self._queue = queue
        self._settings = queue.settings
        self._threads = threads
        self._ended = ended
        self._freed = freed
        self._observers = observers
        self.unknown = UnknownTasks(queue)
        self._stuck = stuck
        self._job_log = job_log
        self._live: set[Attempt] = set()
        self._interrupted_ones: dict[Attempt, Insistence] = {}
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()  # to ask for it costs a system call each time, before Python 3.12
        _runners.add(self)

    def start(self, attempt: Attempt) -> None:
        """Begin an attempt; returns at once.

        Each has a copy of the context that the worker was run in, so that no variable gets from one job to another.
        """
        self._live.add(attempt)
        attempt.task = self._loop.create_task(self._run(attempt), context=self._context.copy())

    @property
    def live(self) -> list[Attempt]:
        """The attempts whose handlers have yet to end, also those that nobody waits for any more."""
        return list(self._live)

    def interrupt(self, attempt: Attempt) -> None:
        """Tell a handler to end, and one that goes on again and again; in the end its slot counts as stuck."""
        attempt.interrupt()
        self._insist(attempt, self._stuck.patience)

    def _insist(self, attempt: Attempt, patience: float) -> None:
        if attempt in self._live and attempt not in self._interrupted_ones:
            self._interrupted_ones[attempt] = Insistence(attempt, self._loop, patience, self._give_up)

    def _give_up(self, attempt: Attempt) -> None:
        """A handler does not end. The job of an async one is settled without it; a plain one may still complete its."""
        if attempt.is_released:
            return  # the worker goes, and waits no longer either
        why = "lost its lease" if attempt.is_lost else "timed out" if attempt.is_timed_out else "cancelled"
        since = self._interrupted_ones[attempt].since
        self._stuck.add(attempt, StuckSlot(attempt.queue, attempt.name, attempt.job.id, why, since))
        if attempt.thread_id is None and not attempt.is_settled:
            call = self._queue.registry.find(attempt.job.payload)
            self._interrupted(attempt, _timed_out(attempt), self._policy(attempt.job, call))

    def abandon(self) -> list[asyncio.Task[None]]:
        """Wait for no handler any more; answers the tasks of those that have yet to end."""
        for attempt in self._live:
            attempt.is_settled = attempt.is_released = True
            attempt.interrupt()
        return [attempt.task for attempt in self._live if attempt.task is not None]

    def settle(self, attempt: Attempt, settlement: Settlement | None, raised: BaseException | None = None) -> None:
        """Decide how an attempt ends; the first decision counts. `raised` by the handler is told to observers."""
        if not attempt.is_settled:
            attempt.is_settled = True
            self._ended(attempt, None if attempt.is_lost else settlement)  # before anything that may raise
            if settlement is not None and not attempt.is_lost:
                self._job_log.ended(attempt, settlement)
            if attempt.facts is not None:
                self._tell_end(attempt, settlement, raised)

    def _tell_start(self, attempt: Attempt) -> None:
        """The attempt begins; `name` says what it runs, if anything here can."""
        attempt.began_at = monotonic()
        if self._observers.is_watched and attempt.facts is None:
            job = attempt.job
            due_at_ms = job.run_at_ms or job.enqueued_at_ms
            lateness_ms = max(0, job.claimed_at_ms - due_at_ms) if due_at_ms else None
            attempt.facts = AttemptFacts(attempt.queue, attempt.worker, attempt.name, job, lateness_ms)
            self._observers.attempt_started(attempt.facts)

    def _tell_end(self, attempt: Attempt, settlement: Settlement | None, raised: BaseException | None) -> None:
        assert attempt.facts is not None
        duration_s = monotonic() - attempt.began_at
        if settlement is None or attempt.is_lost:
            end = AttemptEnd("lost", duration_s)
            self._observers.lease_lost(self._settings.name, attempt.job.id)
        elif settlement.move == "complete":
            end = AttemptEnd("completed", duration_s)
        else:
            outcome: Outcome = "cancelled" if attempt.is_cancelled else _OUTCOMES[settlement.move]
            end = AttemptEnd(outcome, duration_s, settlement.note, settlement.delay_ms, raised)
        self._observers.attempt_ended(attempt.facts, end)

    async def _run(self, attempt: Attempt) -> None:
        """The attempt from its start to its end. Whatever is raised on the way, it is settled and its slot is freed."""
        attempt.has_begun = True
        call: Call | None = None
        try:
            try:
                if (call := self._begun(attempt)) is None:
                    return
                policy = self._policy(attempt.job, call)
                if attempt.job.crashes and (end := outcome.lost_too_often(attempt.job, policy)) is not None:
                    self._failed(attempt, end, policy)
                    return
                result = await self._call(attempt, call, policy)
                if result is not None:
                    outcome.check_result(result)
                self.settle(attempt, outcome.succeeded(attempt.job, result, policy))
            except NoHandler as missing:
                self._not_found(attempt, missing)
            except asyncio.CancelledError as error:
                self._interrupted(attempt, error, self._policy(attempt.job, call))
            except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its job's failure, not ours
                misfit = call.misfit() if call is not None and isinstance(error, TypeError) else None
                self._failed(attempt, misfit or error, self._policy(attempt.job, call))
        except BaseException as problem:  # noqa: BLE001 - what a handler raised may itself raise, when it is looked at
            self._unprocessed(attempt, call, problem)
        finally:
            self._live.discard(attempt)
            if self._interrupted_ones:
                self._calm(attempt)
            self._freed(attempt)

    def _calm(self, attempt: Attempt) -> None:
        """A handler has ended, whether it was told to or not."""
        insistence = self._interrupted_ones.pop(attempt, None)
        if insistence is not None:
            insistence.end()
            self._stuck.remove(attempt)

    def _begun(self, attempt: Attempt) -> Call | None:
        """Begin an attempt; answers what to call, or None if that settled it.

        Raises:
            NoHandler: nothing here can run the job.
        """
        job = attempt.job
        if attempt.is_lost or attempt.is_released or attempt.is_cancelled:
            self.settle(attempt, outcome.released(job))
            return None
        if job.problem:
            self._tell_start(attempt)
            text = "job %s: its payload can't be read (%s); failed"
            log.error(text, job.id, job.problem, extra=attempt.fields(job.problem))
            self.settle(attempt, refusal(job))
            return None
        call = self._queue.registry.find(job.payload)
        attempt.name = call.name
        self._tell_start(attempt)
        return call

    def _not_found(self, attempt: Attempt, missing: NoHandler) -> None:
        self._tell_start(attempt)
        self.settle(attempt, self.unknown.put_back(attempt, missing))

    def _unprocessed(self, attempt: Attempt, call: Call | None, problem: BaseException) -> None:
        """The end of an attempt raised; it is settled all the same, without code of the application."""
        job = attempt.job
        policy = outcome.Policy.of(self._settings, job, None if call is None else call.max_attempts)
        settlement = outcome.released(job) if attempt.is_released else outcome.unprocessed(job, problem, policy)
        is_told, fields = attempt.is_settled, attempt.fields(settlement.note)
        self.settle(attempt, settlement)
        if not is_told:
            text = "job %s: %s failed, attempt %d: %s"
            log.error(text, job.id, attempt.name, job.attempts, settlement.note, extra=fields, exc_info=problem)

    def _policy(self, job: ClaimedJob, call: Call | None) -> outcome.Policy:
        if call is None:
            return outcome.Policy.of(self._settings, job)
        return outcome.Policy.of(self._settings, job, call.max_attempts, call.backoff)

    async def _call(self, attempt: Attempt, call: Call, policy: outcome.Policy) -> Any:
        job = attempt.job
        timeout_ms = job.timeout_ms or call.timeout_ms
        attempt.timeout_s = timeout_s = None if timeout_ms is None else timeout_ms / 1000
        attempt.current = running.CurrentJob(
            job,
            deadline=None if timeout_s is None else wall() + timeout_s,
            renew=lambda: self._queue.blocking.renew(job),  # of the attempt itself it would be a cycle
            arenew=lambda: self._queue.aio.renew(job),
            queue=attempt.queue,
            task=attempt.name,
            worker=attempt.worker,
        )
        function: Callable[[], Any] = partial(call.function, *call.args, **call.kwargs)
        if call.is_async:
            return await self._on_the_loop(attempt, self._observed(attempt, function))
        if attempt.facts is not None:
            function = self._observers.wrapped(attempt.facts, function)
        result = await self._in_a_thread(attempt, function, policy)
        if result is not None and _is_awaitable(result):  # a plain function around an async one
            return await self._on_the_loop(attempt, self._observed(attempt, lambda: result))
        return result

    def _observed(self, attempt: Attempt, function: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        return function if attempt.facts is None else self._observers.awrapped(attempt.facts, function)

    async def _on_the_loop(self, attempt: Attempt, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call an async function, and interrupt it when its timeout strikes."""
        assert attempt.current is not None
        token = running.enter(attempt.current)
        timer = None if attempt.timeout_s is None else self._loop.call_later(attempt.timeout_s, self._overran, attempt)
        try:
            return await call()
        except asyncio.CancelledError as error:
            if attempt.is_timed_out:
                raise _timed_out(attempt).with_traceback(error.__traceback__) from None
            raise
        finally:
            running.leave(token)
            if timer is not None:
                timer.cancel()

    def _overran(self, attempt: Attempt) -> None:
        """The timeout of an async handler has struck. Not before an older reason to end: it was told to already."""
        if not (attempt.is_settled or attempt.is_lost or attempt.is_released):
            attempt.is_timed_out = True
            self.interrupt(attempt)

    async def _in_a_thread(self, attempt: Attempt, function: Callable[[], Any], policy: outcome.Policy) -> Any:
        """Call a plain function. Nobody can stop a thread, so this ends when the thread does, whatever interrupts."""
        current = attempt.current
        assert current is not None
        context = contextvars.copy_context()  # the task's own can't be entered while the task is looked after
        future = self._threads.run(self._loop, partial(context.run, _called, attempt, current, function))
        deadline = None if attempt.timeout_s is None else monotonic() + attempt.timeout_s
        while not future.done():
            try:
                await _ended(self._loop, future, deadline)
            except asyncio.CancelledError as error:
                if attempt.is_released and attempt.is_settled:
                    raise  # the worker has gone
                self._interrupted(attempt, error, policy, is_over=False)
            else:
                if not future.done():
                    deadline = None
                    attempt.is_timed_out = True
                    self._failed(attempt, _timed_out(attempt), policy)
                    text = "job %s: %s overran its timeout and still holds its thread"
                    log.warning(text, attempt.job.id, attempt.name, extra=attempt.fields())
                    current.cancel()
                    self._insist(attempt, min(_THREAD_PATIENCE_S, self._stuck.patience))
        return None if attempt.is_settled else future.result()

    def _interrupted(
        self, attempt: Attempt, error: BaseException, policy: outcome.Policy, *, is_over: bool = True
    ) -> None:
        """The attempt was interrupted: by a lost lease, by the worker's end, by a request to stop, or by itself.

        A plain handler (`is_over` is False) can't be; but the job is no longer its own when the lease is lost.
        """
        if attempt.is_settled:
            return
        job = attempt.job
        if attempt.is_lost:
            text = "job %s: %s lost its lease; what it does is dropped"
            log.warning(text, job.id, attempt.name, extra=attempt.fields())
            self.settle(attempt, None)
        elif attempt.is_released or attempt.is_cancelled:
            if is_over:
                self._failed(attempt, "stopped on request", policy)
        else:
            self._failed(attempt, error, policy)

    def _failed(self, attempt: Attempt, error: BaseException | str, policy: outcome.Policy) -> None:
        if attempt.is_settled:
            return
        job = attempt.job
        if attempt.is_released and not isinstance(error, (outcome.Retry, outcome.Discard, outcome.Snooze)):
            # It was told to end before it was done, and that is what came of it.
            self.settle(attempt, outcome.released(job))
            return
        settlement = outcome.failed(job, error, policy)
        raised = error if isinstance(error, BaseException) else None
        self.settle(attempt, settlement, raised)
        if not (attempt.is_lost or attempt.is_cancelled):
            is_ours = type(raised) is outcome.Discard and raised.__traceback__ is None  # nobody raised it
            _say(attempt, settlement, None if is_ours else raised)


def _say(attempt: Attempt, settlement: Settlement, raised: BaseException | None) -> None:
    """Log a failure: the last one with its traceback, others in a line, to which level debug adds the traceback."""
    job, text = attempt.job, settlement.note
    fields = attempt.fields(text)
    if settlement.move == "retry":
        said = "job %s: %s failed, attempt %d: %s; again in %.1f s"
        shown = raised if log.isEnabledFor(logging.DEBUG) else None
        below = "" if shown is None else outcome.log_traceback(shown)
        wait = settlement.delay_ms / 1000
        log.warning(said, job.id, attempt.name, job.attempts, text, wait, extra=fields, exc_info=shown, below=below)
    elif settlement.move == "fail":
        said = "job %s: %s failed for good, attempt %d: %s"
        below = "" if raised is None else outcome.log_traceback(raised)
        log.error(said, job.id, attempt.name, job.attempts, text, extra=fields, exc_info=raised, below=below)


def _is_awaitable(result: object) -> bool:
    try:
        return inspect.isawaitable(result)
    except BaseException:  # noqa: BLE001 - a user's object may do anything, also while it is looked at
        return False


def _timed_out(attempt: Attempt) -> TimeoutError:
    return TimeoutError(f"timed out after {attempt.timeout_s or 0:g} s")


async def _ended(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], deadline: float | None) -> None:
    """Wait for a future, until `deadline` at most. Who is cancelled meanwhile leaves it as it is."""
    if deadline is not None:
        await asyncio.wait([future], timeout=max(0.0, deadline - monotonic()))
        return
    waiter: asyncio.Future[None] = loop.create_future()

    def tell(_: asyncio.Future[Any]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(tell)
    await waiter  # as `asyncio.wait` does it, at a fraction of the cost


def _called(attempt: Attempt, current: running.CurrentJob, function: Callable[[], Any]) -> Any:
    attempt.thread_id = threading.get_ident()
    running.enter(current)
    try:
        return function()
    finally:
        attempt.thread_id = None


_runners: Final[WeakSet[Runner]] = WeakSet()


def under_way() -> list[Attempt]:
    """All attempts of this process whose handlers have yet to end. Any thread may ask."""
    return [attempt for runner in list(_runners) for attempt in runner.live]
