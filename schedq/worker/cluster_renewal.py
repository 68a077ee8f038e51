"""Renews the leases of several queues on a cluster, from one thread that has a connection to each node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from schedq.background.shared_connections import by_server, is_spread
from schedq.connection import redis_errors
from schedq.connection.address import Address
from schedq.connection.node_connections import ClusterConnections, QueueConnection
from schedq.connection.request import Request
from schedq.errors import SchedqError
from schedq.model.times import monotonic
from schedq.worker.renewal import SENT_AT_ONCE, Held, Renewal, RenewalBatch

_FRESH_SHARE: Final = 0.5
"""The share of the time between two renewals in which a lease needs no other one, while those of a lost node do."""


class ClusterRenewal(Renewal):
    """Renews the leases of queues that may be on several nodes; one that does not respond delays no others.

    The thread runs an event loop while it waits for replies, so that it can wait for all nodes at the same time.
    """

    def __init__(self, held: Sequence[Held], loop: asyncio.AbstractEventLoop, accepted: set[str] | None = None) -> None:
        super().__init__(held, loop, accepted)
        settings = [each.queue.settings for each in held]
        self._nodes = ClusterConnections(held[0].queue.address, *settings, accepted=accepted, reply_s=self._reply_s)
        self._lines: dict[str, QueueConnection] = {each.name: self._nodes.of(each) for each in settings}
        self._renewed: dict[str, float] = {}  # when all leases of a queue were renewed
        self._io: asyncio.AbstractEventLoop | None = None

    def _close(self) -> None:
        super()._close()
        if self._io is not None:
            self._io.run_until_complete(self._nodes.aclose())
            self._io.close()

    def _are_renewed(self, batches: Sequence[RenewalBatch], *, is_due: bool) -> bool:
        """The same for each queue by itself. Queues whose leases were all renewed lately are left out."""
        if self._io is None:
            self._io = asyncio.new_event_loop()  # in the thread that uses it
        by_queue: dict[str, list[RenewalBatch]] = {}
        for batch in batches:
            by_queue.setdefault(batch.held.queue.name, []).append(batch)
        fresh = monotonic() - self._interval_s * _FRESH_SHARE
        wanted = [
            some
            for name, some in by_queue.items()
            if self._renewed.get(name, 0.0) < fresh or any(batch.reports for batch in some)
        ]
        return self._io.run_until_complete(self._all_renewed(wanted, is_due=is_due))

    async def _all_renewed(self, queues: Sequence[Sequence[RenewalBatch]], *, is_due: bool) -> bool:
        tasks = {asyncio.create_task(self._is_renewed(batches, is_due=is_due)): batches for batches in queues}
        if not tasks:
            return True
        done, late = await asyncio.wait(tasks, timeout=self._reply_s)
        for task in late:
            task.cancel()
            self._failed(tasks[task][0], TimeoutError("no reply in time"))
        await asyncio.gather(*late, return_exceptions=True)
        return not late and all(task.result() for task in done)

    async def _is_renewed(self, batches: Sequence[RenewalBatch], *, is_due: bool) -> bool:
        """Renew the leases of one queue; return whether Redis renewed all of them."""
        name, began, refused = batches[0].held.queue.name, monotonic(), False
        for first in range(0, len(batches), SENT_AT_ONCE):
            some = batches[first : first + SENT_AT_ONCE]
            try:
                answers = await self._ask_node(some)
            except (SchedqError, *redis_errors.CONNECTION_LOST) as error:
                self._failed(some[0], error)
                return False
            for batch, answer in zip(some, answers, strict=True):
                if isinstance(answer, SchedqError):
                    refused = True
                    self._failed(batch, answer)
                else:
                    self._take(batch, answer)
        if refused:
            self._lines[name].close()  # the credential provider may have a new user or password for the next one
        elif is_due:  # otherwise only the attempts that reported were renewed
            self._renewed[name] = began
        return not refused

    def _last_at(self, batch: RenewalBatch) -> float:
        return max(self._renewed_at, self._renewed.get(batch.held.queue.name, 0.0))

    async def _ask_node(self, batches: Sequence[RenewalBatch]) -> list[list[str] | SchedqError]:
        """Send the scripts of some batches of a queue together; return what Redis replied to each."""
        queue = batches[0].held.queue
        request = Request([batch.operation for batch in batches], queue.address, queue.settings, 0)
        while request.left:
            request.on_replies(await self._lines[queue.name].ask(request.commands(), self._reply_s))
        return request.answers


def renewals(
    held: Sequence[Held], loop: asyncio.AbstractEventLoop, accepted: Mapping[Address, set[str]]
) -> list[Renewal]:
    """Return what renews the leases of a worker's queues, in as few threads as possible."""
    in_flight = dict(held)
    found: list[Renewal] = []
    for queues in by_server([*in_flight]):
        by_length: dict[float, list[Held]] = {}
        for queue in queues:
            by_length.setdefault(queue.settings.renewal_s, []).append(Held(queue, in_flight[queue]))
        for some in by_length.values():
            kind = ClusterRenewal if is_spread([each.queue for each in some]) else Renewal
            found.append(kind(some, loop, accepted[queues[0].address]))
    return found
