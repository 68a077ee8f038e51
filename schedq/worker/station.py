"""All that serves one queue in a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from schedq.application import Application
from schedq.link import Link, Outage
from schedq.observer import Observers
from schedq.promoter import Promoter
from schedq.scheduler import Registrar
from schedq.worker.heartbeat import Heartbeat
from schedq.worker.pump import Pump
from schedq.worker.renewal import Renewal
from schedq.worker.slots import Slots
from schedq.worker.threads import Threads


@dataclass(frozen=True, slots=True)
class Shared:
    """What the stations of one worker have in common.

    Attributes:
        worker_id: names the worker in Redis and in logs.
        slots: for jobs, of all queues.
        threads: for plain handlers.
        observers: told what happens.
        concurrency: jobs at a time.
        promotes: also do the promoter's part.
        stop: what to do when Redis asks the worker to stop.
    """

    worker_id: str
    slots: Slots
    threads: Threads
    observers: Observers
    concurrency: int
    promotes: bool
    stop: Callable[[], None]


class Station:
    """All that serves one queue in this worker."""

    def __init__(self, queue: Application, outage: Outage, shared: Shared) -> None:
        self.queue = queue
        self.outage = outage
        self.link = Link(queue, outage)
        self.pump = Pump(queue, self.link, shared.slots, shared.threads, shared.worker_id, shared.observers)
        self.side_link = Link(queue, outage)
        self.promoter = Promoter(queue, self.side_link, observers=shared.observers) if shared.promotes else None
        self.registrar = Registrar(queue, self.side_link)
        self.heartbeat = Heartbeat(
            queue,
            self.side_link,
            shared.worker_id,
            self.pump.held,
            shared.concurrency,
            shared.stop,
            shared.observers,
            self.registrar.again,
        )
        self.renewal = Renewal(queue, self.pump.held, asyncio.get_running_loop())
        self.pumping: asyncio.Task[None] | None = None

    @property
    def is_settled(self) -> bool:
        """Nothing is left to be sent, or nobody is left to send it."""
        return self.pump.is_settled or self.pumping is None or self.pumping.done()
