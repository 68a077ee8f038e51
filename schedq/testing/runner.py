"""Run the due jobs of a queue in the test's thread, as a worker does, and stand in for a worker's job."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from schedq.dependencies.lifespan import Resources
from schedq.dependencies.providers import Injection, Need, Values, call_within, enter, overrides
from schedq.errors import UsageError
from schedq.logs import log
from schedq.model import current_job, outcome
from schedq.model.headers import headers_of, stored_headers
from schedq.model.keys import checked_id
from schedq.model.progress import ProgressReport, Reporters
from schedq.model.records import ClaimedJob, Settlement
from schedq.model.runs import RunStopped
from schedq.model.times import monotonic, wall
from schedq.observer import AttemptFacts, attempt_facts
from schedq.queue import workflow
from schedq.queue.around import Entered
from schedq.queue.handler import Invocation
from schedq.queue.hooks import Ending, Hooks
from schedq.queue.middleware import Layers, Middleware
from schedq.queue.queue import Queue, QueueBase
from schedq.queue.registry import NoHandler
from schedq.schedules.fire import DefinitionCache, fire_due
from schedq.schedules.records import scan_schedules
from schedq.schedules.register import upsert_some
from schedq.testing.large_memos import large_memos
from schedq.testing.loops import Runner, beside_loop, with_runner
from schedq.transitions import gates, groups, renew, stand_ins
from schedq.workflows.attempt import WorkflowAttempt, check_code
from schedq.workflows.recorder import Suspended

_CLEANUP_S: Final = 60.0
_SAME_S: Final = 1.0
"""Seconds by which two clocks that show the same time may differ."""


def wall_clock() -> float:
    """Return `time.time()`, looked up at each call so that a replacement, such as freezegun's, takes effect."""
    return time.time()


def run_due(queue: QueueBase, *, limit: int = 10_000) -> int:
    """Run all due jobs in this thread, one after the other, until none is due or `limit` attempts were made.

    Like a worker, it first stores the schedules declared in the code and then fires those that are due; slots count
    from the first call.

    Async handlers run in one event loop, which uses real time whatever the test's clock shows. Retries that are due
    immediately run too; later ones wait for the clock. Timeouts of plain handlers are not enforced.

    Returns:
        How many attempts were made.

    Raises:
        UsageError: called in an event loop, which it would block; use `asyncio.to_thread` there. Or nothing was due
            although jobs are waiting, and the test replaced a clock that the queue does not use: it uses Redis's.
    """
    _check_no_loop()
    attempts = run_all([queue], limit)
    if not attempts:
        _look_at_the_clock(queue.blocking)
    return attempts


def run_all(queues: Sequence[QueueBase], limit: int, *, starts: bool = True) -> int:
    """Do the work of `run_due` for queues with the same name on the same server, which may have different tasks.

    Each job runs with the code of the first queue that has its task. `starts=False`: the schedules and gates of the
    code have been stored before.
    """
    known = [queue.blocking for queue in queues]
    for queue in known if starts else ():
        if queue.registry.schedules:
            queue._drive(upsert_some(queue.settings, queue.registry.schedules))
        for definition in gates.define(queue.settings):
            queue._ask(definition)
    return with_runner(partial(_run_all, known, limit))


def _run_all(known: Sequence[Queue], limit: int, runner: Runner) -> int:
    attempts, cache, offset, moved, first = 0, DefinitionCache(), 0, 0, known[0]
    has_advanced = False
    entered: dict[Queue, Resources] = {}
    with ExitStack() as stack:
        while attempts < limit:
            job = first.claim(timeout_ms=0)
            if job is not None:
                attempts, has_advanced = attempts + 1, False
                queue = next((queue for queue in known if _can_run(queue, job)), first)
                if queue not in entered:
                    entered[queue] = stack.enter_context(resources_of(queue, runner))
                LocalAttempt(queue, job, runner, entered[queue]).run()
                continue
            fired = first._drive(fire_due(first.settings, cache, offset=offset))
            offset, moved = fired.offset, moved + fired.moved
            if not fired.has_more:
                if not moved and has_advanced:
                    break
                if not moved:
                    first._drive(stand_ins.look_at_all(first.settings))
                    first._drive(groups.advance_all(first.settings))
                    has_advanced = True
                moved = 0
    return attempts


def _can_run(queue: Queue, job: ClaimedJob) -> bool:
    try:
        queue.registry.find(job.payload)
    except NoHandler:
        return False
    return True


@contextmanager
def as_job(
    job_id: str = "test", *, attempts: int = 1, headers: Mapping[str, str] | None = None
) -> Iterator[current_job.CurrentJob]:
    """Make `current_job()` work in this block, so that a task can be called like a plain function.

    Its `renew` returns True. Call `cancel()` on the yielded object to test what the function does when asked to stop.
    Its `last_progress` and `meta` have what the function reported.
    """

    async def arenew(_: ClaimedJob) -> bool:
        return True

    stored = headers_of(stored_headers(headers or {}))
    job = ClaimedJob(checked_id(job_id), None, attempts, "test.1", headers=stored)
    current = current_job.CurrentJob(job, deadline=None, renew=lambda _: True, arenew=arenew)
    token, here = current_job.context.set(current), current_job.isolated.set(current_job.run_here)
    try:
        yield current
    finally:
        current_job.isolated.reset(here)
        current_job.context.reset(token)


@contextmanager
def override(dependency: Callable[..., Any], replacement: Callable[..., Any]) -> Iterator[None]:
    """Replace a dependency or a lifespan in this block.

    This applies to all queues and workers of the process. The replacement may have its own dependencies.

    Raises:
        UsageError: one of the two is not callable.
    """
    for function in (dependency, replacement):
        if not callable(function):
            raise UsageError(f"override takes two functions, got {function!r:.200}")
    before = overrides.get(dependency)
    overrides[dependency] = replacement
    try:
        yield
    finally:
        if before is None:
            del overrides[dependency]
        else:
            overrides[dependency] = before


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("run_due would block this event loop; write: await asyncio.to_thread(run_due, queue)")


def _look_at_the_clock(queue: Queue) -> None:
    """Nothing was due: check that the test moved the clock that the queue uses.

    Raises:
        UsageError: it moved a different clock, and jobs are waiting.
    """
    if queue.settings.clock is not None or abs(time.time() - _kernels_time()) < _SAME_S:
        return
    now_s, seen = time.time(), queue._ask(scan_schedules(queue.settings, "due", 0, 1))
    delayed = queue.stats()["delayed_depth"]
    if abs(now_s - seen.now_ms / 1000) < _SAME_S or not (delayed or seen.found or seen.upcoming_ms):
        return
    jobs = f"{delayed} delayed job{'s' if delayed != 1 else ''}" if delayed else "its schedules"
    raise UsageError(
        f"nothing of queue {queue.name} is due, and {jobs} can't become due by this test's clock, which shows "
        f"{_utc(now_s)}: the queue uses Redis's clock, which shows {_utc(seen.now_ms / 1000)}; "
        f"create the queue with clock=schedq.testing.wall_clock"
    )


def _kernels_time() -> float:
    """Return Unix seconds from a clock that no test library replaces, not even one that patches `time.time` in C."""
    with tempfile.TemporaryFile() as file:
        return os.fstat(file.fileno()).st_mtime


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


class LocalAttempt:
    """One job, run and settled as a worker does."""

    def __init__(self, queue: Queue, job: ClaimedJob, runner: Runner, resources: Resources) -> None:
        self._queue, self._job = queue, job
        self._runner, self._resources = runner, resources
        self._policy = outcome.Policy.of(queue.settings, job)
        self._reporters = Reporters()
        self._invocation: Invocation | None = None
        self._foreseen: tuple[BaseException, BaseException, Settlement] | None = None

    def run(self) -> None:
        """Run it to its end."""
        settlement = self.settlement()
        if reports := self.reports():
            self._queue._ask(renew.renew(self._queue.settings, (), reports))
        if settlement.move == "complete" and self._invocation is not None and self._invocation.handler.workflow:
            record = self._queue.get_job(self._job.id)
            large_memos.keep(self._job.id, {} if record is None else record.fields)
        self._queue.settle(settlement)

    def reports(self) -> Sequence[ProgressReport]:
        """What it reported and is not stored yet."""
        return self._reporters.waiting()

    def settlement(self) -> Settlement:
        """Run the function; returns how the attempt is to end, and stores nothing."""
        job, settings = self._job, self._queue.settings
        try:
            self._invocation = invocation = self._queue.registry.find(job.payload)
            check_code(job, invocation.handler, self._queue.registry.runner)
            self._policy = invocation.handler.policy(settings, job)
            if (late := outcome.past_deadline(job, self._policy)) is not None:
                return late
            # In its own context, as in a worker, so that no variable leaks from one job to another or to the test.
            result = contextvars.copy_context().run(self._result, invocation)
            outcome.check_result(result)
            return outcome.succeeded(job, result, self._policy, invocation.encode_result)
        except KeyboardInterrupt:
            raise
        except Suspended as put_down:
            return outcome.suspended(job, put_down.waits)
        except NoHandler as missing:
            what = str(missing).removeprefix(self._queue.registry.runner)
            log.warning("job %s: this process%s; a test imports the module that defines it", job.id, what)
            return outcome.unknown(job, str(missing), settings)
        except BaseException as error:  # noqa: BLE001 - any exception of a handler fails its job
            return self._ending(error)[1]

    def _ending(self, error: BaseException) -> tuple[BaseException, Settlement]:
        """Return the cause and the outcome of this error, calculated once, so that a hook sees the stored outcome."""
        if self._foreseen is None or self._foreseen[0] is not error:
            call, cause = self._invocation, error
            if call is not None and isinstance(error, TypeError):
                cause = call.argument_error() or error
            if isinstance(error, RunStopped):
                cause = outcome.Discard("stopped on request")
            self._foreseen = (error, cause, outcome.failed(self._job, cause, self._policy))
        return self._foreseen[1:]

    def _result(self, invocation: Invocation) -> Any:
        queue, job, handler = self._queue, self._job, invocation.handler
        timeout_ms = job.timeout_ms or handler.timeout_ms
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        current = current_job.CurrentJob(
            job,
            deadline=None if timeout_s is None else (queue.settings.clock or wall)() + timeout_s,
            renew=queue.renew,
            arenew=queue.aio.renew,
            queue=queue.name,
            task=handler.name,
            reporters=self._reporters,
        )
        token, here = current_job.context.set(current), current_job.isolated.set(current_job.run_here)
        try:
            if handler.workflow is not None:
                run = WorkflowAttempt(queue, job, invocation, self._policy, beside_loop)
                invocation = self._runner.run(run.recall())
                workflow.runner.set(run.run)
            if handler.hooks is None and not queue.registry.middleware:
                return self._call(invocation, timeout_s)
            facts = attempt_facts(queue.name, "", handler.name, job)
            call = partial(self._call, invocation, timeout_s)
            middleware = list(queue.registry.middleware)
            return _Wrapped(self._runner, facts, middleware, call, handler.hooks, self._ending).result()
        finally:
            current_job.isolated.reset(here)
            current_job.context.reset(token)

    def _call(self, invocation: Invocation, timeout_s: float | None) -> Any:
        if invocation.handler.injection is not None:
            injection, resources = invocation.handler.injection, self._resources
            return _Injected(invocation, injection, self._runner, resources, timeout_s, self._entered).result()
        if invocation.handler.is_async:
            with self._entered():
                return _awaited(self._runner, invocation.bound()(), timeout_s)
        with self._entered():
            result = invocation.bound()()
        if not inspect.isawaitable(result):
            return result
        with self._entered():
            return _awaited(self._runner, result, timeout_s)

    def _entered(self) -> AbstractContextManager[object]:
        if not (around := self._queue.registry.around):
            return nullcontext()
        assert self._invocation is not None
        return Entered(around, attempt_facts(self._queue.name, "", self._invocation.handler.name, self._job))


class _Wrapped(Layers):
    """Middleware around a call, on the event loop. As without middleware, the loop does not run during the call."""

    def __init__(
        self,
        runner: Runner,
        facts: AttemptFacts,
        middleware: Sequence[Middleware],
        call: Callable[[], Any],
        hooks: Hooks | None,
        ending: Callable[[BaseException], tuple[BaseException, Settlement]],
    ) -> None:
        if hooks is not None:
            middleware = [partial(hooks.call, lambda error: Ending(*ending(error)), self._outside), *middleware]
        super().__init__(facts, middleware, partial(self._outside, call))
        self._runner = runner
        self._wanted: list[Callable[[], None]] = []
        self._is_wanted = asyncio.Event()

    def result(self) -> Any:
        """Return the result of the outermost middleware."""
        task = self._runner.run(self._begun(), context=contextvars.copy_context())
        while not task.done():
            self._runner.run(self._until_wanted(task))
            self._is_wanted.clear()
            while self._wanted:
                self._wanted.pop()()
        result, error = task.result()
        if error is not None:
            raise error
        return result

    async def _begun(self) -> asyncio.Task[tuple[Any, BaseException | None]]:
        return asyncio.create_task(_outcome(self.run(), None))

    async def _until_wanted(self, task: asyncio.Task[Any]) -> None:
        if self._wanted:
            return  # the task already ran, before this coroutine started
        wanted = asyncio.ensure_future(self._is_wanted.wait())
        await asyncio.wait([task, wanted], return_when=asyncio.FIRST_COMPLETED)
        wanted.cancel()

    async def _outside(self, function: Callable[[], Any]) -> Any:
        """Call a function outside of the event loop, in the test's thread."""
        called: asyncio.Future[tuple[Any, BaseException | None]] = asyncio.get_running_loop().create_future()
        context = contextvars.copy_context()

        def call() -> None:
            if called.done():
                return
            try:
                called.set_result((context.run(function), None))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - its caller sees it
                called.set_result((None, error))

        self._wanted.append(call)
        self._is_wanted.set()
        result, error = await called
        if error is not None:
            raise error
        return result


class _Injected:
    """A call of a function with dependencies. Plain dependencies and plain functions run in the test's thread."""

    def __init__(
        self,
        invocation: Invocation,
        injection: Injection,
        runner: Runner,
        resources: Resources,
        timeout_s: float | None,
        entered: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._entered = entered
        self._is_async = invocation.handler.is_async
        self._function = invocation.bound()
        self._needs = injection.needs
        self._order = injection.order(resources)
        self._resources = resources
        self._values = Values()
        self._await: Callable[[Awaitable[Any]], Any] = lambda work: _awaited(runner, work, timeout_s)

    def result(self) -> Any:
        """Call the function and clean up its dependencies."""
        if self._is_async:
            with self._entered():
                return self._await(self._async_result())
        stack = AsyncExitStack()
        self._await(self._make(self._order.on_loop, stack))
        try:
            with self._entered():
                found = call_within(self._order.in_thread, self._values, lambda _: self._call())
        except BaseException as error:
            self._await(stack.__aexit__(type(error), error, error.__traceback__))
            raise
        self._await(stack.aclose())
        return found

    async def _async_result(self) -> Any:
        raised: BaseException | None = None
        async with AsyncExitStack() as stack:
            await self._make(self._order.of_attempt, stack)
            try:
                return await self._call()
            except BaseException as error:
                raised = error
                raise
        raise raised  # a dependency has suppressed it

    async def _make(self, needs: Sequence[Need], stack: AsyncExitStack) -> None:
        for need in self._order.of_worker:
            self._values[need.key] = await self._resources.get(need, self._values)
        await enter(needs, self._values, stack, _inline)

    def _call(self) -> Any:
        return self._function(**self._values.arguments(self._needs))


async def _inline(function: Callable[[], Any]) -> Any:
    return function()


@contextmanager
def resources_of(queue: Queue, runner: Runner) -> Iterator[Resources]:
    """What the queue's lifespan and its worker-wide dependencies give to attempts in this block."""
    loop = runner.get_loop()
    loop.time = monotonic  # type: ignore[method-assign] # a replaced clock would also freeze the loop's timers
    resources = Resources([queue.lifespan] if queue.lifespan is not None else [], _inline)
    runner.run(resources.start())
    try:
        yield resources
    finally:
        runner.run(resources.close(_CLEANUP_S))
        vars(loop).pop("time", None)


def _awaited(runner: Runner, work: Awaitable[Any], timeout_s: float | None) -> Any:
    result, error = runner.run(_outcome(work, timeout_s), context=contextvars.copy_context())
    if error is not None:
        raise error
    return result


async def _outcome(work: Awaitable[Any], timeout_s: float | None) -> tuple[Any, BaseException | None]:
    """Return the result, or the exception as a value: an event loop would end at a SystemExit."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await work, None
    except TimeoutError as error:
        return None, TimeoutError(f"timed out after {timeout_s:g} s") if limit.expired() else error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # Ctrl-C
        return None, error
    except BaseException as error:  # noqa: BLE001
        return None, error
