"""The connections that the queues of one process share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schedq.background.reconnecting_client import Availability, ReconnectingClient
from schedq.connection.async_connection import AsyncConnection
from schedq.connection.pubsub import PubSub
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
        due: listens to the `due` channels.
        rest_s: seconds for which the promoter of an unused queue rests.
    """

    def __init__(self, queues: Sequence[QueueBase], availability: Availability) -> None:
        self.queues = queues
        self.availability = availability
        address, settings = queues[0].address, [queue.settings for queue in queues]
        self._requests = AsyncConnection(address, *settings, accepted=availability.accepted)
        self.due = PubSub(address, settings[0], "-due")
        self.rest_s = min(_LONGEST_REST_S, len(queues) / _LOOKS_PER_S)

    def client(self, queue: QueueBase) -> ReconnectingClient:
        """A client of one of the queues. It does not close the connection."""
        return ReconnectingClient(queue, self.availability, self._requests)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.due.aclose()
        await self._requests.aclose()


def by_server(queues: Sequence[QueueBase]) -> list[list[QueueBase]]:
    """Return the queues that can share connections: those of a server. On a cluster each queue is alone.

    A slot of a cluster may move to another node at any time, and one blocking command can't name keys of two slots.
    """
    places: dict[object, list[QueueBase]] = {}
    for queue in queues:
        places.setdefault(queue if queue.address.is_cluster else queue.address, []).append(queue)
    return [*places.values()]
