"""The connections that the queues of one process share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from schedq.background.reconnecting_client import Availability, ReconnectingClient
from schedq.connection.async_connection import AsyncConnection
from schedq.connection.node_connections import ClusterConnections
from schedq.connection.node_pubsub import NodePubSub
from schedq.connection.pubsub import Callback, PubSub, Subscriber
from schedq.model.settings import Settings
from schedq.queue.queue import QueueBase

_LOOKS_PER_S: Final = 30
"""How many unused queues a process looks at per second; those that are used are looked at every second."""
_LONGEST_REST_S: Final = 20.0
"""After a rest that a process did not survive, another one takes over at its end."""


class SharedConnections:
    """The connections of one event loop to a server, for all queues of the process that are there.

    Attributes:
        queues: the queues.
        availability: whether the server is available.
        rest_s: seconds for which the promoter of an unused queue rests.
    """

    def __init__(self, queues: Sequence[QueueBase], availability: Availability) -> None:
        self.queues = queues
        self.availability = availability
        self.rest_s = min(_LONGEST_REST_S, len(queues) / _LOOKS_PER_S)
        self._open()

    def _open(self) -> None:
        address, settings = self.queues[0].address, [queue.settings for queue in self.queues]
        self._requests = AsyncConnection(address, *settings, accepted=self.availability.accepted)
        self._due = PubSub(address, settings[0], "-due")

    def availability_of(self, _queue: QueueBase) -> Availability:
        """Whether the server of one of the queues is available."""
        return self.availability

    def client(self, queue: QueueBase) -> ReconnectingClient:
        """A client of one of the queues. It does not close the connection."""
        return ReconnectingClient(queue, self.availability_of(queue), self.connection(queue))

    def connection(self, _queue: QueueBase) -> AsyncConnection:
        """The connection for the requests of one of the queues."""
        return self._requests

    def due(self, _queue: QueueBase) -> Subscriber:
        """What listens to the `due` channel of one of the queues."""
        return self._due

    def watched_by(self, queue: QueueBase) -> list[Settings]:
        """The settings of the queues for whose server the heartbeats of this one do what one is enough for."""
        return [each.settings for each in self.queues] if queue is self.queues[0] else []

    async def until_answered(self, within_s: float) -> None:
        """Wait until the requests in progress have their replies, for this long at most."""
        await self._requests.until_answered(within_s)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._due.aclose()
        await self._requests.aclose()


class SharedNodes(SharedConnections):
    """The same for queues on a cluster: a connection for requests and one for `due` channels to each of their nodes.

    A node that does not respond stops only the queues there.
    """

    def _open(self) -> None:
        address, settings = self.queues[0].address, [queue.settings for queue in self.queues]
        self._nodes = ClusterConnections(address, *settings, accepted=self.availability.accepted)
        self._channels = NodePubSub(address, settings[0], "-due")

    def availability_of(self, queue: QueueBase) -> Availability:
        """Whether the node of one of the queues is available."""
        return self.availability.of_queue(queue.name)

    def connection(self, queue: QueueBase) -> AsyncConnection:
        """The connection for the requests of one of the queues."""
        return self._nodes.of(queue.settings)

    def due(self, queue: QueueBase) -> Subscriber:
        """What listens to the `due` channel of one of the queues."""
        return _DueChannel(self._channels, self.availability_of(queue))

    def watched_by(self, queue: QueueBase) -> list[Settings]:
        """The settings of the queue, because others may be on another node."""
        return [queue.settings]

    async def until_answered(self, within_s: float) -> None:
        """As `SharedConnections.until_answered`."""
        await self._nodes.until_answered(within_s)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._channels.aclose()
        await self._nodes.aclose()


class _DueChannel:
    """What listens to the `due` channel of one queue, on a connection that other queues use, too."""

    def __init__(self, nodes: NodePubSub, availability: Availability) -> None:
        self._nodes = nodes
        self._availability = availability
        self._losses, self._since = 0, 0.0
        self.is_used = True  # the connections are closed with those of the other queues

    async def subscribe(self, channel: str, callback: Callback) -> None:
        """As `PubSub.subscribe`."""
        await self._nodes.subscribe(channel, callback, self._since)

    async def unsubscribe(self, channel: str, callback: Callback) -> None:
        """As `PubSub.unsubscribe`."""
        await self._nodes.unsubscribe(channel, callback)

    def renew(self, losses: int) -> None:
        """If more outages of the node are known now, subscribe on a connection that was opened later."""
        if losses != self._losses:
            self._losses, self._since = losses, self._availability.lost_at

    async def aclose(self) -> None:
        """Do nothing; see `is_used`."""


def by_server(queues: Sequence[QueueBase]) -> list[list[QueueBase]]:
    """Return the queues that can share connections: those of a server, or of a cluster."""
    places: dict[object, list[QueueBase]] = {}
    for queue in queues:
        places.setdefault(queue.address, []).append(queue)
    return [*places.values()]


def is_spread(queues: Sequence[QueueBase]) -> bool:
    """Whether queues with the same address may be on several nodes.

    A slot of a cluster may move to another node at any time, and one command can't name keys of two slots.
    """
    return len(queues) > 1 and queues[0].address.is_cluster


def availability_of(queues: Sequence[QueueBase], claimed: Callable[[], object] = lambda: None) -> Availability:
    """The availability of the server of queues with the same address."""
    label = queues[0].address.label
    return Availability(f"a node of {label}" if is_spread(queues) else label, claimed)


def shared_connections(queues: Sequence[QueueBase], availability: Availability) -> SharedConnections:
    """The connections that queues with the same address share on the event loop that uses them."""
    return (SharedNodes if is_spread(queues) else SharedConnections)(queues, availability)
