"""A worker: one event loop runs the jobs of one or several queues, a second one does the background work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final

from schedq.aliases import WorkerAliases
from schedq.background.observers import LoopObservers, Observers, WorkerObservers
from schedq.connection.resolver import in_thread
from schedq.dependencies.lifespan import Resources
from schedq.errors import UsageError
from schedq.inspect.display import count
from schedq.isolation.settings import IsolationSettings
from schedq.logs import log
from schedq.model.times import monotonic
from schedq.observer import Observer, QueueHealth, everywhere
from schedq.queue.middleware import Middleware
from schedq.queue.queue import QueueBase
from schedq.worker import forks
from schedq.worker.arguments import Selection, check_limits, described, one_per_queue, usable, workable
from schedq.worker.attempt import OPEN
from schedq.worker.attempt_report import AttemptReport, JobLines
from schedq.worker.burst import stop_when_done
from schedq.worker.capacity import Capacity, make_order
from schedq.worker.heartbeat import version, worker_id
from schedq.worker.isolated_call import run_isolated
from schedq.worker.isolation_options import Isolation
from schedq.worker.served import ServedQueues, marker_duties
from schedq.worker.siblings import Siblings
from schedq.worker.stacks import Watchdog
from schedq.worker.stuck import StuckSlot, StuckSlots
from schedq.worker.threads import LoopThread, ThreadPool
from schedq.worker.worker_context import WorkerContext

_LAST_S: Final = 0.1
"""Seconds that a cancelled handler may take to end after its job was released, or if it can't be released."""
_LEAST_PATIENCE_S: Final = 1.0
"""The minimum seconds that a handler which was asked to end may take, however short the grace period is."""
_UNWIND_S: Final = 2.0
"""Seconds that a cancelled handler may take to end before its job is released without it."""
_GOODBYE_S: Final = 5.0
"""Seconds allowed for writing the last results to Redis; after that, the leases expire."""
_LEAVE_S: Final = 3.0


class Shutdown:
    """Shuts one worker down.

    Args:
        worker_id: names the worker in the log.
        served: the worker's queues.
        grace: seconds that running jobs may take to finish after the first stop.
        stops: returns how often the worker was asked to stop.
    """

    def __init__(self, worker_id: str, served: ServedQueues, grace: float, stops: Callable[[], int]) -> None:
        self._worker_id = worker_id
        self._served = served
        self._queue_workers = served.queues
        self._grace = grace
        self._stops = stops

    async def wind_down(self, siblings: Siblings | None) -> None:
        """Stop claiming, wait for running jobs within the grace period, and release the rest."""
        if siblings is not None:
            siblings.leave()
        for each in self._queue_workers:
            each.fetcher.close()
        attempts = [attempt for each in self._queue_workers for attempt in each.fetcher.in_flight.all()]
        running = sum(attempt.state in OPEN for attempt in attempts)  # the others only wait to be settled
        if running and self._stops() == 1:
            log.info(
                "worker %s: stopping; %s %g s to finish",
                self._worker_id,
                count(running, "job has=jobs have"),
                self._grace,
            )
        deadline = monotonic() + self._grace
        while self._stops() < 2 and monotonic() < deadline:
            if not any(each.fetcher.in_flight and not each.is_settled for each in self._queue_workers):
                break
            await asyncio.sleep(0.02)
        waiting = [task for each in self._queue_workers for task in each.fetcher.dispatcher.release()]
        if waiting:
            log.warning(
                "worker %s: releases %s",
                self._worker_id,
                count(len(waiting), "job that is still running=jobs that are still running"),
            )
            await self._unwind(waiting)
        for each in self._queue_workers:
            each.fetcher.dispatcher.release_rest()
        deadline = monotonic() + _GOODBYE_S
        while not all(each.is_settled for each in self._queue_workers) and monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def leave(self, background: LoopThread) -> None:
        """Deregister from every queue, close all connections, and stop the threads."""
        self._served.stop_renewals()
        try:
            async with asyncio.timeout(_LEAVE_S):
                await background.cancel()
                await asyncio.gather(*(background.run(each.leave()) for each in self._queue_workers))
                await background.run(self._served.close_background())
        except (TimeoutError, RuntimeError):  # RuntimeError: its thread has ended
            log.warning("worker %s: its background thread does not end; abandoned", self._worker_id)
        await background.aclose()
        await self._served.aclose()

    async def _unwind(self, handlers: Iterable[asyncio.Task[None]]) -> None:
        """Wait a while for handlers that were asked to end; after a second stop, only for a moment."""
        deadline = monotonic() + _UNWIND_S
        is_over = False
        while handlers and not is_over:
            is_over = self._stops() > 1 or monotonic() >= deadline
            _, handlers = await asyncio.wait(handlers, timeout=0 if is_over else 0.02)


class Worker(WorkerAliases):
    """A worker, which runs the jobs of its queues until it is stopped.

    Args:
        queues: the queues to serve.
        order: "strict": a queue's jobs are taken only when no earlier queue has any (heavier queues
            first, then as listed); or "weighted": in proportion to the weights.
        weights: per queue, 1 to 1000; all 1 if not given.
        concurrency: jobs at a time; plain handlers run in as many threads.
        grace: seconds that running jobs get to end after `stop`, and that an async handler which swallows its
            cancellation gets before its slot counts as stuck.
        burst: exit when nothing is pending, delayed or running.
        promotes: also run the promoter.
        observers: notified of events; see `Observer`.
        watchdog: log the stack when the event loop is blocked for this many seconds; 0: never.
        slow: log the stack of a handler that runs longer than this many seconds; 0: never.
        max_jobs: exit when this many attempts have been started and have ended; None: never.
        max_time: claim nothing more after this many seconds, and exit when the last running job has ended; None: never.
        max_stuck: stop gracefully when this many handlers do not end although they were asked to; None: never.
        only: names of the tasks to run; the worker leaves all other jobs to other workers. Empty: all tasks.
        exclude: names of tasks not to run, instead of `only`.
        middleware: async functions (attempt, call_next) that run around each attempt, the first outermost. The
            middleware of a queue runs inside them.
        pool: "thread": plain functions run in threads of this process, except those of isolated tasks; "process": in
            child processes, except those of tasks with isolate=False.
        isolation: how child processes are ended and replaced.

    Attributes:
        id: names the worker in Redis and in logs.
        queues: as given.
        served: called once, when every Redis server has accepted a claim.

    Raises:
        UsageError: no queue, a duplicate queue, a queue without tasks or handler, an unknown task, a wrong number.
    """

    def __init__(
        self,
        queues: Sequence[QueueBase],
        *,
        order: str = "strict",
        weights: Sequence[int] | None = None,
        concurrency: int = 10,
        grace: float = 30,
        burst: bool = False,
        promotes: bool = True,
        observers: Sequence[Observer] = (),
        watchdog: float = 1,
        slow: float = 0,
        max_jobs: int | None = None,
        max_time: float | None = None,
        max_stuck: int | None = None,
        only: Iterable[str] = (),
        exclude: Iterable[str] = (),
        middleware: Sequence[Middleware] = (),
        pool: str = "thread",
        isolation: IsolationSettings | None = None,
    ) -> None:
        self.queues, self._middleware = workable(queues), usable(middleware)
        check_limits(concurrency, grace, max_jobs, max_time, max_stuck)
        self._selection = Selection(only, exclude, self.queues)
        self.id, self.concurrency = worker_id(), concurrency
        self._isolation = Isolation(self.id, self.queues, self._middleware, concurrency, pool, isolation)
        self.observers = Observers([*observers, *everywhere])
        self.capacity = Capacity(concurrency, make_order(order, one_per_queue(weights, self.queues)), max_jobs)
        self.capacity.on_used_up = self._retire
        self.threads, self._watchdog = ThreadPool(concurrency), Watchdog(self.id, still=watchdog, slow=slow)
        self.served: Callable[[], object] = lambda: None
        self._is_burst, self._grace, self._promotes, self._max_time = burst, grace, promotes, max_time
        self._resources: Resources | None = None
        self._stops, self._stop_asked = 0, asyncio.Event()
        self._served = ServedQueues()
        self._queue_workers = self._served.queues
        self._background: LoopThread
        self._shutdown = Shutdown(self.id, self._served, grace, lambda: self._stops)
        self._stuck = StuckSlots(self.id, concurrency, max(grace, _LEAST_PATIENCE_S), self._stuck_changed, max_stuck)

    def stop(self) -> None:
        """Stop gracefully; a second call releases running jobs immediately. Call on the worker's event loop only."""
        self._stops += 1
        self._stop_asked.set()

    def wake(self) -> None:
        """Let every fetcher check once for work, at no cost to Redis. Call on the worker's event loop only."""
        for queue_worker in self._queue_workers:
            queue_worker.fetcher.notify()

    @property
    def is_retired(self) -> bool:
        """Whether the worker has reached `max_jobs`, `max_time` or `max_stuck`."""
        return self._stuck.have_been_too_many or self.capacity.is_used_up

    @property
    def stuck(self) -> list[StuckSlot]:
        """The slots whose handlers ignore the request to end. Thread-safe."""
        return self._stuck.found

    @property
    def is_stuck(self) -> bool:
        """Whether all its slots are stuck, so that it can take no job. Thread-safe."""
        return self._stuck.are_all

    def health(self) -> list[QueueHealth]:
        """Return how each queue is being served; empty before the worker starts. Thread-safe."""
        return [each.health() for each in self._queue_workers]

    async def run(self) -> None:
        """Run jobs until the worker is stopped. Call it once. Cancelling it releases running jobs immediately.

        Raises:
            UsageError: Redis rejects a request for a permanent reason, or this is a child that imports the program.
        """
        forks.refuse_import_of_main()
        if self._queue_workers or self._resources is not None:
            raise UsageError("a worker runs only once; create another one")
        for queue in self.queues:
            queue.registry.start()
        lifespans = [queue.lifespan for queue in self.queues if queue.lifespan is not None]
        self._resources = Resources(lifespans, in_thread)
        try:
            if not lifespans or await self._resources.start_unless(self._stop_asked):
                await self._work(self._resources)
        finally:
            await self._resources.close(max(self._grace, _LEAST_PATIENCE_S))
            log.info("worker %s: stopped", self.id)

    async def _work(self, resources: Resources) -> None:
        """Serve the queues until stopped."""
        context = self._make_context(resources)
        self._observed = WorkerObservers(self.observers, [(it.name, it.registry.observers) for it in self.queues])
        queues = zip(self.queues, self._observed.by_queue, strict=True)
        given = {queue: (context.observed_by(some), self._selection.of(queue)) for queue, some in queues}
        self._served.begin(given, self._look_whether_served)
        self._unanswered = len(self._queue_workers)
        self._observed.started(self.id)
        self._watchdog.watch([queue_worker.fetcher.in_flight for queue_worker in self._queue_workers])
        self._background = LoopThread()
        self._background.start()
        tasks: list[asyncio.Future[None]] = [asyncio.create_task(work) for work in self._loop_duties()]
        tasks += [self._background.run(work) for queue_worker in self._queue_workers for work in queue_worker.duties()]
        for queue_worker in self._queue_workers:
            queue_worker.fetching = asyncio.create_task(queue_worker.fetcher.run())
            tasks.append(queue_worker.fetching)
        with forks.guarded():
            await self._serve(tasks, context)

    def _make_context(self, resources: Resources) -> WorkerContext:
        loop, lines = asyncio.get_running_loop(), JobLines(self.id)
        return WorkerContext(
            worker_id=self.id,
            capacity=self.capacity,
            threads=self.threads,
            observers=self.observers,
            background_observers=LoopObservers(self.observers, loop),
            promotes=self._promotes,
            stop=partial(loop.call_soon_threadsafe, self.stop),
            answered=partial(loop.call_soon_threadsafe, self._redis_answered),
            stuck=self._stuck,
            siblings=Siblings.of_this_process(self.concurrency),
            lines=lines,
            report=AttemptReport(lines, self.observers),
            resources=resources,
            middleware=self._middleware,
            processes=self._isolation.open(),
            isolates_all=self._isolation.isolates_all,
            isolated=partial(run_isolated, loop, self._isolation.pool),
        )

    async def _serve(self, tasks: Sequence[asyncio.Future[None]], context: WorkerContext) -> None:
        """Work until stopped, then exit gracefully."""
        try:
            await self._until_stopped(tasks)
            await self._shutdown.wind_down(context.siblings)
        except BaseException:
            self._stops = 2
            await self._shutdown.wind_down(context.siblings)
            raise
        finally:
            await self._close(tasks, context)

    def _redis_answered(self) -> None:
        """Count the queues whose Redis has replied. When all have, and not before, log that the worker is ready."""
        self._unanswered -= 1
        if self._unanswered:
            return
        where = described(self.queues, self._selection)
        log.info("worker %s: ready for %s, %d at a time, schedq %s", self.id, where, self.concurrency, version() or "?")

    def _stuck_changed(self) -> None:
        """Serve slots in place of those of stuck threads, and report to Redis soon that slots became stuck or free."""
        self.threads.resize(self.concurrency + self._stuck.lent)
        self.capacity.lend(self._stuck.lent)
        if self._stuck.have_been_too_many and not self._stops:
            self.stop()
        for queue_worker in self._queue_workers:
            self._background.run(queue_worker.heartbeat.beat_soon())

    def _look_whether_served(self) -> None:
        if all(queue_worker.availability.has_let("claim") for queue_worker in self._queue_workers):
            self.served()

    def _loop_duties(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines to run on the worker's loop, besides the fetchers."""
        work = marker_duties(self._queue_workers, self.capacity)
        if self._is_burst:
            work.append(stop_when_done(self.id, self._queue_workers, self.stop))
        if self._max_time is not None:
            work.append(retire_after(self._max_time, self.id, self.capacity))
        return work

    def _retire(self) -> None:
        """Stop after the last job that this worker may run."""
        if not self._stops:
            log.info("worker %s: has reached its limit of jobs or time; stopping", self.id)
            self.stop()

    async def _until_stopped(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        """Wait for a stop. A task that ends earlier has failed, and its error is raised."""
        asked = asyncio.create_task(self._stop_asked.wait())
        try:
            ends: list[asyncio.Future[Any]] = [asked, *tasks]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            self._observed.notify(Observer.worker_stopping, self.id)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def _close(self, tasks: Sequence[asyncio.Future[None]], context: WorkerContext) -> None:
        for task in tasks:
            task.cancel()
        self._stuck.close()  # first: abandoned handlers have not ended, so their slots must not be logged as free
        handlers = [task for queue_worker in self._queue_workers for task in queue_worker.fetcher.in_flight.abandon()]
        await asyncio.gather(*tasks, return_exceptions=True)
        if handlers:
            await asyncio.wait(handlers, timeout=_LAST_S)
        await self._isolation.close()
        if stuck := sum(not task.done() for task in handlers):
            log.warning("worker %s: exits without waiting for %d handlers that do not end", self.id, stuck)
        self.threads.close()
        self._watchdog.stop()
        context.lines.close()
        await self._shutdown.leave(self._background)
        self._observed.notify(Observer.worker_stopped, self.id)


async def retire_after(seconds: float, worker_id: str, capacity: Capacity) -> None:
    """Allow no more jobs to be started after this many seconds."""
    await asyncio.sleep(seconds)
    log.info("worker %s: %g s have passed; it claims no more jobs", worker_id, seconds)
    capacity.retire()
    await asyncio.Event().wait()  # if this coroutine returned, the worker would stop
