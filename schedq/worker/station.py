"""All that serves one queue in a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from schedq.application import Application
from schedq.link import Link, Outage
from schedq.logger import log
from schedq.observer import Observers
from schedq.operations.upkeep import Part
from schedq.promoter import Promoter
from schedq.scheduler import Registrar
from schedq.worker.heartbeat import Heartbeat
from schedq.worker.job_log import JobLog
from schedq.worker.pump import Pump
from schedq.worker.renewal import Renewal
from schedq.worker.siblings import Siblings
from schedq.worker.slots import Slots
from schedq.worker.stuck import StuckSlots
from schedq.worker.threads import Threads

_GOODBYE_S: Final = 1.0


def _stay_out(_: Part) -> None:
    """A worker that does not promote takes no part in it."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the stations of one worker have in common.

    Attributes:
        worker_id: names the worker in Redis and in logs.
        slots: for jobs, of all queues.
        threads: for plain handlers.
        observers: told what happens.
        beside: the same, for what the background tells them.
        concurrency: jobs at a time.
        promotes: also do the promoter's part.
        stop: what to do when Redis asks the worker to stop; called in the background.
        stuck: slots whose handlers do not end.
        siblings: other processes of the same parent, if there are any.
        job_log: says what became of each attempt.
        answered: called in the background whenever the Redis of one of the queues has answered for the first time.
    """

    worker_id: str
    slots: Slots
    threads: Threads
    observers: Observers
    beside: Observers
    concurrency: int
    promotes: bool
    stop: Callable[[], object]
    stuck: StuckSlots
    siblings: Siblings | None
    job_log: JobLog
    answered: Callable[[], object]


class Station:
    """All that serves one queue in this worker: the pump on the worker's loop, the rest in its background.

    Attributes:
        link: the connection of the worker's loop.
        side_link: that of the background.
    """

    def __init__(self, queue: Application, outage: Outage, shared: Shared) -> None:
        self.queue = queue
        self.outage = outage
        self.link = Link(queue, outage)
        self.pump = Pump(
            queue,
            self.link,
            shared.slots,
            shared.threads,
            shared.worker_id,
            shared.observers,
            shared.stuck,
            shared.job_log,
            shared.siblings,
        )
        self.side_link = Link(queue, outage)
        self.promoter = (
            Promoter(queue, self.side_link, observers=shared.beside, hears=True) if shared.promotes else None
        )
        self.registrar = Registrar(queue, self.side_link)
        self.heartbeat = Heartbeat(
            queue,
            self.side_link,
            shared.worker_id,
            self.pump.held,
            shared.concurrency,
            shared.stop,
            shared.beside,
            self.registrar.again,
            self.pump.unknown,
            shared.stuck,
            self.promoter.step_in if self.promoter else _stay_out,
            shared.answered,
        )
        self.renewal = Renewal(queue, self.pump.held, asyncio.get_running_loop())
        self.pumping: asyncio.Task[None] | None = None

    @property
    def is_settled(self) -> bool:
        """Nothing is left to be sent, or nobody is left to send it."""
        return self.pump.is_settled or self.pumping is None or self.pumping.done()

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """What is done in the background."""
        work = [self.heartbeat.run(), self.registrar.run()]
        return work if self.promoter is None else [*work, self.promoter.run()]

    async def leave(self) -> None:
        """Say goodbye, in the background, when its duties have ended."""
        try:
            goodbye = self.heartbeat.leave(self.promoter.id if self.promoter else "")
            await asyncio.wait_for(goodbye, _GOODBYE_S)
        except Exception as error:  # noqa: BLE001 - it goes all the same; its sign of life fades
            log.debug("queue %s: could not say goodbye: %s", self.queue.name, error)
        finally:
            await self.side_link.aclose()
