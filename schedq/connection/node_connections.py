"""The connections of one event loop to the nodes of a cluster, which the queues there share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from redis import exceptions

from schedq.connection import redis_errors
from schedq.connection.address import Address
from schedq.connection.async_connection import AsyncConnection, cancelled, connected
from schedq.connection.endpoint import REPLY_S, Endpoint
from schedq.model.durability import Wait
from schedq.model.settings import Settings
from schedq.transitions import Argument


class NodeConnection(AsyncConnection):
    """A connection to one node, for the requests of all queues that are there.

    It stays open when the slot of a queue has moved, because other queues have requests in progress on it.

    Args:
        address: the cluster.
        endpoint: the node.
        queues: those that may use the connection, for its name.
        connect_s: seconds that connecting may take.

    Attributes:
        endpoint: as given.
        users: the queues that are on this node now.
    """

    def __init__(self, address: Address, endpoint: Endpoint, queues: Sequence[Settings], connect_s: float) -> None:
        super().__init__(address, *queues)
        self.endpoint = endpoint
        self.users: set[QueueConnection] = set()
        self._connect_s = connect_s

    @property
    def is_unused(self) -> bool:
        """Whether no queue is on this node, and no request is in progress."""
        return not self.users and not self._asked

    def drop(self) -> None:
        """Close the connection, or stop opening it."""
        self.close()
        if self._connecting is not None:
            self._connecting.cancel()

    async def _connect(self) -> None:
        self.close()
        try:
            self._take_over(await connected(self.endpoint, self._name, self._address.label, self._connect_s))
        except TimeoutError:  # without a text
            raise exceptions.TimeoutError(f"{self.endpoint.label}: no reply in time") from None

    def _demoted(self) -> None:
        pass  # each queue looks for its node again when its own requests are rejected

    def _described(self, error: Exception) -> Exception:
        if isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError)):
            return type(error)(f"{self.endpoint.label}: {error}")
        return error


class QueueConnection(AsyncConnection):
    """The connection of one queue: that of the node which holds the queue now.

    The node is found when the first request is sent, and again when the connection was lost or a reply says that the
    queue is no longer there.

    Args:
        nodes: the connections to the nodes.
        address: the cluster.
        queue: the queue.
        accepted: see `Handshake`.
    """

    def __init__(
        self, nodes: ClusterConnections, address: Address, queue: Settings, accepted: set[str] | None = None
    ) -> None:
        super().__init__(address, queue, accepted=accepted)
        self._nodes = nodes
        self._node: NodeConnection | None = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the queue's node. Its loss may not have been noticed yet."""
        return self._node is not None and self._node.is_connected

    @property
    def is_ready(self) -> bool:
        """Whether a request would be sent immediately, without connecting first."""
        return self._node is not None and self._node.is_ready and self._connecting is None

    async def ask(
        self, commands: Sequence[tuple[Argument, ...]], reply_s: float = REPLY_S, *, waits: Sequence[Wait] = ()
    ) -> list[object]:
        """Send commands to the queue's node; return the replies to all of them, errors as values. It takes no waits.

        Raises:
            ConnectionError, TimeoutError, OSError: raised by redis-py.
        """
        assert not waits, "they would block the requests of other queues"
        if not self.is_ready:
            await self.connect()
        node = self._node
        if node is None:  # another request has learned meanwhile that the queue has moved
            raise exceptions.ConnectionError("the queue has moved to another node")
        try:
            replies = await node.ask(commands, reply_s)
        finally:
            if node is not self._node:
                self._nodes.tidy(node)
        if node is self._node and any(map(redis_errors.is_demoted, replies)):
            self._move_to(None)
        return replies

    def close(self, why: str = "the connection was closed") -> None:
        """Close the connection to the queue's node, also for other queues; the next request opens it again."""
        node = self._node
        self._move_to(None)
        if node is not None:
            node.close(why)

    async def aclose(self) -> None:
        """Stop using the connection. It stays open for other queues."""
        if self._connecting is not None:
            await cancelled(self._connecting)
        self._move_to(None)

    async def _connect(self) -> None:
        endpoint = await self._address.locate(self._key)
        node = self._nodes.at(endpoint)
        self._move_to(node)
        if not node.is_ready:
            await node.connect()
        commands = self._handshake.commands(endpoint)
        try:
            replies = await node.ask(commands, self._nodes.reply_s) if commands else []
            self._handshake.check(endpoint, commands, replies)
        except BaseException:
            self._move_to(None)
            raise

    def _move_to(self, node: NodeConnection | None) -> None:
        before, self._node = self._node, node
        if node is not None:
            node.users.add(self)
        if before is not None and before is not node:
            before.users.discard(self)
            self._nodes.tidy(before)


class ClusterConnections:
    """The connections of one event loop to a cluster: one to each node that holds one of the queues.

    Args:
        address: the cluster.
        queues: those that share the connections.
        accepted: see `Handshake`.
        reply_s: seconds that connecting and each check of a node may take.

    Attributes:
        reply_s: as given.
    """

    def __init__(
        self, address: Address, *queues: Settings, accepted: set[str] | None = None, reply_s: float = REPLY_S
    ) -> None:
        self.reply_s = reply_s
        self._address, self._all, self._accepted = address, queues, accepted
        self._nodes: dict[str, NodeConnection] = {}
        self._queues: list[QueueConnection] = []

    def of(self, queue: Settings) -> QueueConnection:
        """The connection of one of the queues."""
        self._queues.append(QueueConnection(self, self._address, queue, self._accepted))
        return self._queues[-1]

    def at(self, endpoint: Endpoint) -> NodeConnection:
        """The connection to a node, which may not be open yet."""
        node = self._nodes.get(endpoint.label)
        if node is None:
            node = NodeConnection(self._address, endpoint, self._all, self.reply_s)
            self._nodes[endpoint.label] = node
        return node

    def tidy(self, node: NodeConnection) -> None:
        """Close the connection to a node if nothing uses it any more."""
        if node.is_unused:
            if self._nodes.get(node.endpoint.label) is node:
                del self._nodes[node.endpoint.label]
            node.drop()

    async def until_answered(self, within_s: float) -> None:
        """Wait until the requests in progress have their replies, for this long at most."""
        await asyncio.gather(*(node.until_answered(within_s) for node in self._nodes.values()))

    async def aclose(self) -> None:
        """Close all connections."""
        nodes = [*self._nodes.values()]
        for queue in self._queues:
            await queue.aclose()
        for node in nodes:
            await node.aclose()
