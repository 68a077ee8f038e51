"""Keeps a queue's name on the list of queues."""

from __future__ import annotations

from typing import Final

from schedq.clocks import monotonic
from schedq.connection.address import Address
from schedq.operations import Round, upkeep
from schedq.settings import Settings

AGAIN_S: Final = 14.0
"""Seconds after which a request carries the name along again."""
CLUSTER_AGAIN_S: Final = 60.0
"""The same on a cluster, where the list is on another node: it takes a connection of its own."""


class Listing:
    """When the queue's name is to be written again.

    The greeting of a first connection writes it. Redis may lose it later without breaking a connection, as by FLUSHALL,
    and a process that only enqueues has no heartbeat that would notice.
    """

    def __init__(self, address: Address, queue: Settings) -> None:
        self._address = address
        self._queue = queue
        self._due_at = monotonic() + self._again_s()

    def along(self, operations: Round) -> Round:
        """The operations, and from time to time the name behind them."""
        now = monotonic()
        if now < self._due_at:
            return operations
        self._due_at = now + self._again_s()
        if not self._queue.listed:
            return operations
        if self._queue.tagged:
            self._address.enlist(self._queue.name, again=True)
            return operations
        return [*operations, upkeep.enlist(self._queue)]

    def _again_s(self) -> float:
        return CLUSTER_AGAIN_S if self._queue.tagged else AGAIN_S
