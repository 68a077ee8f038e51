"""Looks how the jobs of other queues stand for which runs of this queue wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from schedq.background.reconnecting_client import LogThrottle, ReconnectingClient
from schedq.connection.async_connection import cancelled
from schedq.errors import SchedqError
from schedq.model.settings import Settings
from schedq.queue.requests import Connections
from schedq.transitions import stand_ins, unwrap
from schedq.transitions.stand_ins import StandIn

_AT_ONCE = 100


class OtherQueues:
    """The looks of one queue's promoter at the groups of other queues; see `transitions/stand_ins.py`.

    Each other queue is asked in a task of its own. So neither the promoter nor the rest waits for a queue whose server
    does not reply.

    Args:
        client: for requests to the promoter's own queue.
        connections: of that queue, which lead to others.
    """

    def __init__(self, client: ReconnectingClient, connections: Connections) -> None:
        self._client, self._connections = client, connections
        self._throttle = LogThrottle()
        self._left: dict[str, dict[str, StandIn]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def look(self, home: Settings, found: Sequence[StandIn]) -> None:
        """Look soon how the groups stand for which these stand."""
        for queue, some in stand_ins.by_queue(found).items():
            self._left.setdefault(queue, {}).update((it.name, it) for it in some)
            if queue not in self._tasks:
                self._tasks[queue] = asyncio.create_task(self._look(home, queue), name=f"schedq-{home.name}-{queue}")

    async def _look(self, home: Settings, queue: str) -> None:
        try:
            other = self._connections.of_queue(queue)  # a damaged record may name none
            while left := list(self._left.pop(queue, {}).values()):
                for at in range(0, len(left), _AT_ONCE):
                    operations = await other.aio.drive(stand_ins.look(home, other.settings, left[at : at + _AT_ONCE]))
                    for reply in await self._client.execute(operations) if operations else ():
                        unwrap(reply)
        except SchedqError as error:  # the stand-ins are still there, and looked at again
            self._throttle.log(f"queue {home.name}: jobs of queue {queue} for which runs wait", error)
        finally:
            del self._tasks[queue]

    async def aclose(self) -> None:
        """End all looks."""
        for task in [*self._tasks.values()]:
            await cancelled(task)
