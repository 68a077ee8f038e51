"""A worker: one event loop that runs the jobs of one or several queues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from schedq.application import Application
from schedq.clocks import monotonic
from schedq.errors import UsageError
from schedq.link import Link, Outage
from schedq.operations import views
from schedq.promoter import Promoter
from schedq.worker.heartbeat import Heartbeat, worker_id
from schedq.worker.pump import Pump
from schedq.worker.renewal import Renewal
from schedq.worker.slots import Slots
from schedq.worker.threads import Threads
from schedq.worker.waker import Waker

log: Final = logging.getLogger("schedq")
_UNWIND_S: Final = 2.0
"""Seconds that a cancelled handler may take to end before its job is given back all the same."""
_GOODBYE_S: Final = 5.0
"""Seconds that Redis may take to hear of the last ends; else the leases run out."""


class _Station:
    """All that serves one queue in this worker."""

    def __init__(self, queue: Application, outage: Outage, worker: Worker) -> None:
        self.queue = queue
        self.link = Link(queue, outage)
        self.pump = Pump(queue, self.link, worker.slots, worker.threads, worker.id)
        self.side_link = Link(queue, outage)
        self.promoter = Promoter(queue, self.side_link) if worker.promotes else None
        self.heartbeat = Heartbeat(queue, self.side_link, worker.id, self.pump.held, worker.concurrency, worker.stop)
        self.renewal = Renewal(queue, self.pump.held, asyncio.get_running_loop())


class Worker:
    """Runs jobs until told to stop.

    Args:
        queues: in strict order: a queue's jobs are taken when no queue before it has any.
        concurrency: jobs at a time; plain handlers run in as many threads.
        grace: seconds that running jobs get to end after `stop`.
        burst: leave when nothing is pending, delayed or running.
        promotes: also do the promoter's part.

    Attributes:
        id: names the worker in Redis and in logs.

    Raises:
        UsageError: no queue, a queue that can run nothing, or a number that makes no sense.
    """

    def __init__(
        self,
        queues: Sequence[Application],
        *,
        concurrency: int = 10,
        grace: float = 30,
        burst: bool = False,
        promotes: bool = True,
    ) -> None:
        if not queues:
            raise UsageError("a worker needs at least one queue")
        for queue in queues:
            if queue.registry.is_empty:
                raise UsageError(
                    f"queue {queue.name} has no task and no handler, so a worker could run none of its jobs"
                )
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= 10_000:
            raise UsageError(f"concurrency must be a whole number of 1 to 10,000, got {concurrency!r}")
        if not 0 <= grace <= 86_400:
            raise UsageError(f"grace must be 0 to 86,400 seconds, got {grace!r}")
        self.id = worker_id()
        self.concurrency = concurrency
        self.promotes = promotes
        self.slots = Slots(concurrency)
        self.threads = Threads(concurrency)
        self._queues = tuple(queues)
        self._grace = grace
        self._is_burst = burst
        self._stops = 0
        self._stop_asked: asyncio.Event | None = None
        self._stations: list[_Station] = []

    def stop(self) -> None:
        """Stop in order; called twice: give back what runs at once. From the worker's event loop only."""
        self._stops += 1
        if self._stop_asked is not None:
            self._stop_asked.set()

    async def run(self) -> None:
        """Work until stopped.

        Raises:
            UsageError: Redis refuses for a reason that does not pass by itself.
        """
        self._stop_asked = asyncio.Event()
        if self._stops:
            self._stop_asked.set()
        outages: dict[str, Outage] = {}
        for queue in self._queues:
            outage = outages.setdefault(queue.address.label, Outage(queue.address.label))
            self._stations.append(_Station(queue, outage, self))
        names = ", ".join(queue.name for queue in self._queues)
        log.info("worker %s: ready for %s, %d at a time", self.id, names, self.concurrency)
        pumps = [asyncio.create_task(station.pump.run()) for station in self._stations]
        others = [asyncio.create_task(work) for work in self._background(outages)]
        try:
            await self._until_stopped(pumps + others)
            await self._wind_down()
        finally:
            await self._close(pumps, others)

    def _background(self, outages: dict[str, Outage]) -> list[Coroutine[Any, Any, None]]:
        work: list[Coroutine[Any, Any, None]] = []
        for station in self._stations:
            station.renewal.start()
            work.append(station.heartbeat.run())
            if station.promoter is not None:
                work.append(station.promoter.run())
        for label, outage in outages.items():
            here = [station for station in self._stations if station.queue.address.label == label]
            pumps = {station.queue.settings.keys.wake: station.pump for station in here}
            work.append(Waker(here[0].queue, outage, self.slots, pumps).run())
        if self._is_burst:
            work.append(self._watch_for_the_end())
        return work

    async def _until_stopped(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait for a stop; a task that ends before is one that failed."""
        assert self._stop_asked is not None
        asked = asyncio.create_task(self._stop_asked.wait())
        done, _ = await asyncio.wait([asked, *tasks], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        for task in done:
            if task is not asked and task.exception() is not None:
                await task

    async def _wind_down(self) -> None:
        """Claim no more, wait for what runs, give back the rest."""
        assert self._stop_asked is not None
        for station in self._stations:
            station.pump.close()
        running = sum(len(station.pump.held) for station in self._stations)
        if running and self._stops:
            log.info("worker %s: stopping; %d jobs have %g s to end", self.id, running, self._grace)
        deadline = monotonic() + self._grace
        while not self._is_settled() and self._stops < 2 and monotonic() < deadline:  # noqa: ASYNC110 - it ends soon
            await asyncio.sleep(0.02)
        waiting = [task for station in self._stations for task in station.pump.release()]
        if waiting:
            log.warning("worker %s: gives back %d jobs that still run", self.id, len(waiting))
            await asyncio.wait(waiting, timeout=0 if self._stops > 1 else _UNWIND_S)
            await asyncio.sleep(0)
        for station in self._stations:
            station.pump.release_rest()
        deadline = monotonic() + _GOODBYE_S
        while not self._is_settled() and monotonic() < deadline:  # noqa: ASYNC110 - it ends soon
            await asyncio.sleep(0.01)

    def _is_settled(self) -> bool:
        return all(station.pump.is_settled for station in self._stations)

    async def _close(self, pumps: Sequence[asyncio.Task[None]], others: Sequence[asyncio.Task[None]]) -> None:
        for task in (*others, *pumps):
            task.cancel()
        for station in self._stations:
            station.pump.abandon()
        await asyncio.gather(*others, *pumps, return_exceptions=True)
        self.threads.close()
        for station in self._stations:
            station.renewal.stop()
            goodbye = station.heartbeat.leave(station.promoter.id if station.promoter else "")
            try:
                await asyncio.wait_for(goodbye, 1)
            except Exception as error:  # noqa: BLE001 - it goes all the same; its sign of life fades
                log.debug("worker %s: could not say goodbye: %s", self.id, error)
            await station.link.aclose()
            await station.side_link.aclose()
        log.info("worker %s: gone", self.id)

    async def _watch_for_the_end(self) -> None:
        """In a burst: stop when nothing is pending, delayed or running, here or elsewhere."""
        while True:
            await asyncio.sleep(0.1)
            if all(station.pump.is_idle for station in self._stations) and await self._is_empty():
                self.stop()
                return

    async def _is_empty(self) -> bool:
        for station in self._stations:
            stats = await station.side_link.ask(views.stats(station.queue.settings))
            if stats["pending_depth"] or stats["delayed_depth"] or stats["processing_depth"]:
                await asyncio.sleep(0.4)
                return False
        return True
