"""What serves the queues of one worker, and the connections and threads that the queues share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from schedq.background.promoter import Promoter
from schedq.background.reconnecting_client import Availability
from schedq.background.registrar import Registrar
from schedq.background.shared_connections import (
    SharedConnections,
    availability_of,
    by_server,
    is_spread,
    shared_connections,
)
from schedq.connection.address import Address
from schedq.logs import log
from schedq.model.times import monotonic
from schedq.observer import QueueHealth
from schedq.queue.queue import QueueBase
from schedq.worker.capacity import Capacity
from schedq.worker.cluster_renewal import renewals
from schedq.worker.fetcher import Fetcher
from schedq.worker.heartbeat import Heartbeat
from schedq.worker.marker_check import MarkerCheck
from schedq.worker.renewal import Held, Renewal
from schedq.worker.wake_listener import WakeListener
from schedq.worker.worker_context import Only, WorkerContext

_DEREGISTER_S: Final = 1.0
_ANSWERED_S: Final = 1.0


class QueueWorker:
    """Everything that serves one queue in this worker: the fetcher on the worker's loop, the rest in the background.

    Attributes:
        client: the connection for the worker's loop.
        background_client: the connection for the background loop.
        only: the tasks whose jobs the worker takes.
    """

    def __init__(self, queue: QueueBase, shared: WorkerConnections, context: WorkerContext, only: Only) -> None:
        self.queue = queue
        self.only = only
        self.availability = shared.background.availability_of(queue)
        self.client = shared.foreground.client(queue)
        self.fetcher = Fetcher(queue, self.client, context, only)
        self.background_client = shared.background.client(queue)
        self.promoter = (
            Promoter(
                queue,
                self.background_client,
                observers=context.background_observers,
                hears=True,
                due=shared.background.due(queue),
                rest_s=shared.background.rest_s,
            )
            if context.promotes
            else None
        )
        self.registrar = Registrar(queue, self.background_client)
        self.heartbeat = Heartbeat(
            queue,
            self.background_client,
            context,
            self.fetcher.in_flight,
            unknown=self.fetcher.dispatcher.unknown,
            counts=self.fetcher.dispatcher.counts,
            on_other_data=self.registrar.again,
            on_vacancy=self.promoter.step_in if self.promoter else lambda _: None,
            only=only,
            here=shared.background.watched_by(queue),
        )
        self.fetching: asyncio.Task[None] | None = None

    @property
    def is_settled(self) -> bool:
        """There is nothing left to send, and no job may come; or the fetcher has ended and can't send anything."""
        # A claim behind a wait that was lost with its server has hardly got a job.
        may_get_a_job = self.fetcher.later_claims > 0 and not self.availability.lost_for_s
        return (self.fetcher.is_settled and not may_get_a_job) or self.fetching is None or self.fetching.done()

    def health(self) -> QueueHealth:
        """Return how the queue is being served."""
        return QueueHealth(self.queue.name, len(self.fetcher.in_flight), self.availability.lost_for_s)

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines to run in the background."""
        work = [self.heartbeat.run(), self.registrar.run()]
        return work if self.promoter is None else [*work, self.promoter.run()]

    async def leave(self) -> None:
        """Deregister from the queue, in the background, when its duties have ended."""
        try:
            async with asyncio.timeout(_DEREGISTER_S):
                await self.heartbeat.leave(self.promoter.id if self.promoter else "")
        except Exception as error:  # noqa: BLE001 - it exits anyway; its heartbeat expires
            log.debug("queue %s: could not deregister: %s", self.queue.name, error)
        finally:
            await self.background_client.aclose()


class WorkerConnections(NamedTuple):
    """What the queues of a worker at one server share: connections of the worker's loop and of the background loop."""

    foreground: SharedConnections
    background: SharedConnections

    @classmethod
    def to(cls, queues: Sequence[QueueBase], availability: Availability) -> WorkerConnections:
        """Those of some queues; nothing connects yet."""
        return cls(shared_connections(queues, availability), shared_connections(queues, availability))


class ServedQueues:
    """The queues of one worker and what serves them.

    Attributes:
        queues: an entry for each, in the worker's order; none before `begin`.
        connections: what the queues of each server share.
        renewals: the threads that renew their leases.
    """

    def __init__(self) -> None:
        self.queues: list[QueueWorker] = []
        self.connections: list[WorkerConnections] = []
        self.renewals: list[Renewal] = []
        self._unshare: list[Callable[[], None]] = []

    def begin(
        self,
        queues: Mapping[QueueBase, tuple[WorkerContext, Only]],
        claimed: Callable[[], object],
    ) -> None:
        """Make what serves these queues, on the worker's loop. `claimed` is called at the first claim at a server."""
        shared: dict[QueueBase, WorkerConnections] = {}
        accepted: dict[Address, set[str]] = {}
        for here in by_server([*queues]):
            availability = availability_of(here, claimed)
            self.connections.append(WorkerConnections.to(here, availability))
            self._share(here)
            shared |= dict.fromkeys(here, self.connections[-1])
            accepted[here[0].address] = availability.accepted
        self.queues += [QueueWorker(queue, shared[queue], *given) for queue, given in queues.items()]
        held = [Held(each.queue, each.fetcher.in_flight) for each in self.queues]
        self.renewals += renewals(held, asyncio.get_running_loop(), accepted)
        for renewal in self.renewals:
            renewal.start()

    def _share(self, queues: Sequence[QueueBase]) -> None:
        """Send what handlers and workflows await on the connection of the worker's loop, if that has several queues."""
        for queue in queues if len(queues) > 1 else ():
            self._unshare.append(queue.aio._client.share(self.connections[-1].foreground.connection(queue)))

    def stop_renewals(self) -> None:
        """Let the leases of jobs that are still running end."""
        for renewal in self.renewals:
            renewal.stop()

    async def close_background(self) -> None:
        """Close the connections of the background loop, on that loop."""
        await asyncio.gather(*(each.background.aclose() for each in self.connections))

    async def aclose(self) -> None:
        """Close the connections of the worker's loop, and wait a moment for the threads.

        Requests of the application may be in progress on them.
        """
        for unshare in self._unshare:
            unshare()
        await asyncio.gather(*(each.foreground.until_answered(_ANSWERED_S) for each in self.connections))
        await asyncio.gather(*(each.client.aclose() for each in self.queues))
        await asyncio.gather(*(each.foreground.aclose() for each in self.connections))
        deadline = monotonic() + 1
        while any(each.is_alive() for each in self.renewals) and monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def marker_duties(queue_workers: Sequence[QueueWorker], capacity: Capacity) -> list[Coroutine[Any, Any, None]]:
    """Return the coroutines that wait and look for the wake markers of these queues, with few requests."""
    by_queue = {each.queue: each for each in queue_workers}
    duties: list[Coroutine[Any, Any, None]] = []
    places: list[Mapping[str, Fetcher]] = []
    for queues in _of_one_command([*by_queue]):
        here = [by_queue[queue] for queue in queues]
        fetchers = {key: each.fetcher for each in here for key in each.fetcher.wake_keys}
        is_only = len(queue_workers) == 1
        duties.append(WakeListener(queues[0], here[0].availability, capacity, fetchers, is_only=is_only).run())
        places.append(fetchers)
    check = MarkerCheck(places)
    capacity.on_check = check.ask
    return [*duties, check.run()]


def _of_one_command(queues: Sequence[QueueBase]) -> Iterator[Sequence[QueueBase]]:
    """The queues whose wake markers one command can wait for."""
    for here in by_server(queues):
        if is_spread(here):
            yield from ([queue] for queue in here)
        else:
            yield here
