"""A worker: one event loop that runs the jobs of one or several queues, and one beside it that serves the queues."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final

from schedq.application import Application
from schedq.clocks import monotonic
from schedq.connection.address import Address
from schedq.errors import UsageError
from schedq.link import Outage, steadily
from schedq.logger import log
from schedq.logs import AttemptLog
from schedq.observer import Observer, Observers, OnLoop, Vital, everywhere
from schedq.operations import views
from schedq.worker import forks
from schedq.worker.background import Background
from schedq.worker.heartbeat import version, worker_id
from schedq.worker.job_log import JobLog
from schedq.worker.order import order_of
from schedq.worker.siblings import Siblings
from schedq.worker.slots import Slots
from schedq.worker.station import Shared, Station
from schedq.worker.stuck import StuckSlot, StuckSlots
from schedq.worker.threads import Threads
from schedq.worker.waker import Waker
from schedq.worker.watchdog import Watchdog

_UNWIND_S: Final = 2.0
"""Seconds that a cancelled handler may take to end before its job is given back all the same."""
_LAST_S: Final = 0.1
"""The same when its job has been given back, or can't be."""
_GOODBYE_S: Final = 5.0
"""Seconds that Redis may take to hear of the last ends; else the leases run out."""
_LEAVE_S: Final = 3.0
_MOST_NAMED: Final = 20
"""Tasks of one queue that the first line of the log names."""
_LEAST_PATIENCE_S: Final = 1.0
"""Seconds that a handler which was told to end may take, whatever the grace."""


class Worker:
    """Runs jobs until told to stop.

    Args:
        queues: what it works for.
        order: "strict": a queue's jobs are taken when no queue before it has any, the heavier being before; or
            "weighted": in proportion to the weights.
        weights: per queue, 1 to 1000; all 1 if not given.
        concurrency: jobs at a time; plain handlers run in as many threads.
        grace: seconds that running jobs get to end after `stop`, and that an async handler which swallows its
            cancellation gets before its slot counts as stuck.
        burst: leave when nothing is pending, delayed or running.
        promotes: also do the promoter's part.
        observers: told what happens; see `Observer`.
        watchdog: seconds without a turn of the event loop that are logged, with its stack; 0: none.
        slow: seconds after which a handler that still runs is logged, with its stack; 0: never.

    Attributes:
        id: names the worker in Redis and in logs.
        queues: as given.
        served: called once, when each of its servers has answered a claim: none refuses it by mistake.

    Raises:
        UsageError: no queue, one twice, one that can run nothing, or a number that makes no sense.
    """

    def __init__(
        self,
        queues: Sequence[Application],
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
    ) -> None:
        queues = _workable(queues)
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= 10_000:
            raise UsageError(f"concurrency must be a whole number of 1 to 10,000, got {concurrency!r}")
        weights = [1] * len(queues) if weights is None else list(weights)
        if len(weights) != len(queues):
            raise UsageError(f"a weight per queue: got {len(weights)} for {len(queues)} queues")
        if not 0 <= grace <= 86_400:
            raise UsageError(f"grace must be 0 to 86,400 seconds, got {grace!r}")
        self.id = worker_id()
        self.concurrency = concurrency
        self._promotes = promotes
        self.observers = Observers([*observers, *everywhere])
        self.slots = Slots(concurrency, order_of(order, weights))
        self.threads = Threads(concurrency)
        self.queues = queues
        self._watchdog = Watchdog(self.id, still=watchdog, slow=slow)
        self.served: Callable[[], object] = lambda: None
        self._grace = grace
        self._is_burst = burst
        self._stops = 0
        self._stop_asked: asyncio.Event | None = None
        self._stations: list[Station] = []
        self._background = Background()
        self._siblings: Siblings | None = None
        self._unanswered = 0
        self._finished = JobLog(self.id, is_on=False)
        self._stuck = StuckSlots(self.id, concurrency, max(grace, _LEAST_PATIENCE_S), self._tell_of_stuck)

    def stop(self) -> None:
        """Stop in order; called twice: give back what runs at once. From the worker's event loop only."""
        self._stops += 1
        if self._stop_asked is not None:
            self._stop_asked.set()

    def stir(self) -> None:
        """Let every pump go round once, which costs Redis nothing. From the worker's event loop only."""
        for station in self._stations:
            station.pump.stir()

    @property
    def stuck(self) -> list[StuckSlot]:
        """Its slots that are held by handlers which do not end when they are told to. Any thread may ask."""
        return self._stuck.found

    def vitals(self) -> list[Vital]:
        """How each queue is served now; nothing before it has begun. Any thread may ask."""
        return [Vital(each.queue.name, len(each.pump.held), each.outage.lost_for_s) for each in self._stations]

    async def run(self) -> None:
        """Work until stopped, once. Cancelled, it gives back what runs at once.

        Raises:
            UsageError: Redis refuses for a reason that does not pass by itself.
        """
        if self._stop_asked is not None:
            raise UsageError("a worker runs once; make another")
        self._stop_asked = asyncio.Event()
        if self._stops:
            self._stop_asked.set()
        loop = asyncio.get_running_loop()
        siblings = self._siblings = Siblings.of_this_process(self.concurrency)
        beside = OnLoop(self.observers, loop)
        stop = partial(loop.call_soon_threadsafe, self.stop)
        shared = Shared(
            self.id,
            self.slots,
            self.threads,
            self.observers,
            beside,
            self.concurrency,
            self._promotes,
            stop,
            self._stuck,
            siblings,
            self._job_log(),
            partial(loop.call_soon_threadsafe, self._redis_answered),
        )
        outages: dict[Address, Outage] = {}
        for queue in self.queues:
            outage = outages.setdefault(queue.address, Outage(queue.address.label, self._look_whether_served))
            self._stations.append(Station(queue, outage, shared))
        self._unanswered = len(self._stations)
        self.observers.worker_started(self.id, [queue.name for queue in self.queues])
        self._watchdog.watch([station.pump.held for station in self._stations])
        self._background.start()
        tasks: list[asyncio.Future[None]] = [asyncio.create_task(work) for work in self._beside_the_pumps()]
        tasks += [self._background.run(work) for station in self._stations for work in station.duties()]
        for station in self._stations:
            station.renewal.start()
            station.pumping = asyncio.create_task(station.pump.run())
            tasks.append(station.pumping)
        with forks.guarded():
            await self._serve(tasks)

    async def _serve(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        """Work until stopped, and leave in order."""
        try:
            await self._until_stopped(tasks)
            await self._wind_down()
        except BaseException:
            self._stops = 2
            await self._wind_down()
            raise
        finally:
            await self._close(tasks)

    def _job_log(self) -> JobLog:
        has_lines = log.isEnabledFor(logging.DEBUG) and self.observers.has(AttemptLog)
        self._finished = JobLog(self.id, is_on=not has_lines)
        return self._finished

    def _redis_answered(self) -> None:
        """The Redis of one more queue has answered. When all have, the worker is ready, and not before."""
        self._unanswered -= 1
        if self._unanswered:
            return
        by_place: dict[str, list[str]] = {}
        for queue in self.queues:
            by_place.setdefault(queue.address.label, []).append(_with_tasks(queue))
        where = "; ".join(f"{', '.join(names)} at {place}" for place, names in by_place.items())
        log.info("worker %s: ready for %s, %d at a time, schedq %s", self.id, where, self.concurrency, version() or "?")

    def _tell_of_stuck(self) -> None:
        """Slots are stuck, or free again: let Redis know soon."""
        for station in self._stations:
            self._background.run(station.heartbeat.hurry())

    def _look_whether_served(self) -> None:
        if all(station.outage.has_let("claim") for station in self._stations):
            self.served()

    def _beside_the_pumps(self) -> list[Coroutine[Any, Any, None]]:
        """What else is done on the worker's loop."""
        work: list[Coroutine[Any, Any, None]] = []
        for here in self._neighbours():
            pumps = {station.queue.settings.keys.wake: station.pump for station in here}
            work.append(Waker(here[0].queue, here[0].outage, self.slots, pumps).run())
        if self._is_burst:
            work.append(self._watch_for_the_end())
        return work

    def _neighbours(self) -> list[list[Station]]:
        """The stations by where their queues are: one connection can wait for those of one place.

        On a cluster each is alone: one command can't name keys of two slots, not even of one node.
        """
        found: dict[object, list[Station]] = {}
        for station in self._stations:
            address = station.queue.address
            found.setdefault(station if address.is_cluster else address, []).append(station)
        return list(found.values())

    async def _until_stopped(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        """Wait for a stop; a task that ends before is one that failed."""
        assert self._stop_asked is not None
        asked = asyncio.create_task(self._stop_asked.wait())
        try:
            ends: list[asyncio.Future[Any]] = [asked, *tasks]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task is not asked and task.exception() is not None:
                    await task
        finally:
            self.observers.worker_stopping(self.id)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def _wind_down(self) -> None:
        """Claim no more, wait for what runs, give back the rest."""
        if self._siblings is not None:
            self._siblings.leave()
        for station in self._stations:
            station.pump.close()
        running = sum(len(station.pump.held) for station in self._stations)
        if running and self._stops == 1:
            log.info("worker %s: stopping; %d jobs have %g s to end", self.id, running, self._grace)
        deadline = monotonic() + self._grace
        while self._holds_jobs() and self._stops < 2 and monotonic() < deadline:  # noqa: ASYNC110 - it ends soon
            await asyncio.sleep(0.02)
        waiting = [task for station in self._stations for task in station.pump.release()]
        if waiting:
            log.warning("worker %s: gives back %d jobs that still run", self.id, len(waiting))
            await self._unwind(waiting)
        for station in self._stations:
            station.pump.release_rest()
        deadline = monotonic() + _GOODBYE_S
        while not self._is_settled() and monotonic() < deadline:  # noqa: ASYNC110 - it ends soon
            await asyncio.sleep(0.01)

    async def _unwind(self, handlers: Iterable[asyncio.Task[None]]) -> None:
        """Wait for handlers that were told to end: a while, or no more than a moment after a second stop."""
        deadline = monotonic() + _UNWIND_S
        is_over = False
        while handlers and not is_over:
            is_over = self._stops > 1 or monotonic() >= deadline
            _, handlers = await asyncio.wait(handlers, timeout=0 if is_over else 0.02)

    def _holds_jobs(self) -> bool:
        return any(station.pump.held and not station.is_settled for station in self._stations)

    def _is_settled(self) -> bool:
        return all(station.is_settled for station in self._stations)

    async def _close(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        for task in tasks:
            task.cancel()
        self._stuck.close()  # handlers that are left behind have not ended
        handlers = [task for station in self._stations for task in station.pump.abandon()]
        await asyncio.gather(*tasks, return_exceptions=True)
        if handlers:
            await asyncio.wait(handlers, timeout=_LAST_S)
        if stuck := sum(not task.done() for task in handlers):
            log.warning("worker %s: leaves without %d handlers that do not end", self.id, stuck)
        self.threads.close()
        self._watchdog.stop()
        self._finished.close()
        await self._leave()
        self.observers.worker_stopped(self.id)
        log.info("worker %s: gone", self.id)

    async def _leave(self) -> None:
        """Say goodbye to every queue, close what is open, end the threads."""
        for station in self._stations:
            station.renewal.stop()
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._background.cancel()
                await asyncio.gather(*(self._background.run(station.leave()) for station in self._stations))
        except (TimeoutError, RuntimeError):  # the latter: its thread has ended
            log.warning("worker %s: its background does not end; left behind", self.id)
        await self._background.aclose()
        await asyncio.gather(*(station.link.aclose() for station in self._stations))
        deadline = monotonic() + 1
        while any(each.renewal.is_alive() for each in self._stations) and monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async def _watch_for_the_end(self) -> None:
        """In a burst: stop when nothing is pending, delayed or running, here or elsewhere."""
        await steadily(f"worker {self.id}: burst", self._look_for_the_end)

    async def _look_for_the_end(self) -> float:
        if not self._is_idle():
            return 0.1
        # A job may have added one to a queue that was looked at before: only two equal looks are one instant.
        once, twice = await self._totals(), await self._totals()
        if once is None or once != twice or not self._is_idle():
            return 0.5
        self.stop()
        return math.inf

    def _is_idle(self) -> bool:
        return all(station.pump.is_idle for station in self._stations)

    async def _totals(self) -> list[int] | None:
        """How many jobs each queue ever got; None if one of them has work."""
        totals = []
        for station in self._stations:
            stats = await station.link.ask(views.stats(station.queue.settings))
            if stats["pending_depth"] or stats["delayed_depth"] or stats["processing_depth"]:
                return None
            totals.append(stats["enqueued_total"])
        return totals


def _workable(queues: object) -> tuple[Application, ...]:
    """The queues of a worker.

    Raises:
        UsageError: there is none, one twice, something else, or one that can run nothing.
    """
    if isinstance(queues, Application):
        raise UsageError(f"a worker takes a list of queues, got queue {queues.name} alone; write Worker([queue])")
    found = tuple(queues) if isinstance(queues, Iterable) and not isinstance(queues, str) else (queues,)
    if not found:
        raise UsageError("a worker needs at least one queue")
    for queue in found:
        if not isinstance(queue, Application):
            raise UsageError(f"a worker takes objects of Queue or AsyncQueue, got {queue!r:.100}")
        if queue.registry.is_empty:
            raise UsageError(f"queue {queue.name} has no task and no handler, so a worker could run none of its jobs")
    if len({(queue.name, queue.address.label) for queue in found}) < len(found):
        raise UsageError(f"a worker takes each queue once, got {', '.join(queue.name for queue in found)}")
    return found


def _with_tasks(queue: Application) -> str:
    """A queue and what is run of it, in a few words."""
    registry = queue.registry
    names = [*registry.names[:_MOST_NAMED], *(["a handler"] if registry.has_handler else [])]
    more = len(registry.names) - _MOST_NAMED
    return f"{queue.name} ({', '.join([*names, *([f'{more} more tasks'] if more > 0 else [])])})"
