"""A Redis Cluster of several real servers on loopback ports, set up through plain connections."""

from __future__ import annotations

import itertools
import math
import time
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self

import redis
from redis.crc import key_slot

from tests.servers import Server
from tests.waiting import until

SLOTS = 16384
PATIENCE_S = 60
_GIVES_UP_S = 6.0


class Cluster:
    """Primaries with equal shares of the slots, and `replicas` in total: of the first primary, the second, …

    Attributes:
        nodes: all servers, the first primaries first.
    """

    def __init__(self, primaries: int = 3, replicas: int = 0, **options: object) -> None:
        self._primaries = primaries
        given: dict[str, Any] = {
            "cluster_enabled": True,
            "cluster_node_timeout": 2500,  # no failover while a node is stopped for two seconds
            "repl_diskless_sync_delay": 0,
            **options,
        }
        self.nodes = [Server(None, topology="single", **given) for _ in range(primaries + replicas)]
        self._numbers = itertools.count()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(stop_all, *self.nodes)
            for node in self.nodes:
                node.start()
            self._join()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """A URL with all nodes."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def url_of(self, *nodes: Server) -> str:
        """A URL with some of the nodes."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)

    def owner(self, key: str) -> Server:
        """The node with the slot of a key, according to most nodes."""
        port = self._owner_port(key_slot(key.encode()))
        return next(node for node in self.nodes if node.port == port)

    def name_at(self, node: Server) -> str:
        """A new queue name whose slot belongs to a node."""
        return next(name for n in self._numbers if self.owner(f"queue:{{{(name := f'q{n}')}}}:") is node)

    def wait_for_peace(self) -> None:
        """Wait until all running nodes serve all slots, and agree on their owners."""
        until(self.is_at_peace, within=PATIENCE_S)

    # -- moving a slot

    def begin_move(self, key: str, to: Server) -> Server:
        """Start migrating the slot of a key; returns the node that it leaves."""
        source, slot = self.owner(key), key_slot(key.encode())
        ask(to, "CLUSTER SETSLOT", slot, "IMPORTING", node_id(source))
        ask(source, "CLUSTER SETSLOT", slot, "MIGRATING", node_id(to))
        return source

    def keys(self, key: str, node: Server, most: int = 100_000) -> list[str]:
        """The keys that a node holds in the slot of a key."""
        found: list[str] = ask(node, "CLUSTER GETKEYSINSLOT", key_slot(key.encode()), most)
        return found

    def carry(self, names: list[str], source: Server, to: Server) -> None:
        """Move some keys of a migrating slot."""
        if names:
            ask(source, "MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *names)

    def end_move(self, key: str, source: Server, to: Server) -> None:
        """Assign the slot to the other node."""
        for node in (to, source, *self.nodes):
            if node.is_running:
                with node.client() as client:
                    if client.info("replication")["role"] == "master":
                        client.execute_command("CLUSTER SETSLOT", key_slot(key.encode()), "NODE", node_id(to))

    # -- setting up

    def _join(self) -> None:
        first, *others = self.nodes
        for number, node in enumerate(self.nodes):
            ask(node, "CLUSTER SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(self.nodes[: self._primaries]):
            start, end = (SLOTS * n // self._primaries for n in (number, number + 1))
            ask(node, "CLUSTER ADDSLOTS", *range(start, end))
        for node in others:
            ask(node, "CLUSTER MEET", "127.0.0.1", first.port)
        until(lambda: all(self._knows_all(node) for node in self.nodes), within=PATIENCE_S)
        for number, node in enumerate(self.nodes[self._primaries :]):
            ask(node, "CLUSTER REPLICATE", node_id(self.nodes[number % self._primaries]))
        self.wait_for_peace()
        for node in self.nodes[self._primaries :]:
            until(partial(is_in_step, node), within=PATIENCE_S)

    def _knows_all(self, node: Server) -> bool:
        with node.client() as client:
            known = client.execute_command("CLUSTER NODES")
        return len(known) == len(self.nodes) and not any("handshake" in one["flags"] for one in known.values())

    def is_at_peace(self) -> bool:
        """Whether all running nodes serve all slots, and agree on their owners."""
        views = set()
        for node in self.nodes:
            if node.is_running:
                with node.client() as client:
                    if client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                        return False
                views.add(tuple(_owners(node)))
        return len(views) == 1

    def _owner_port(self, slot: int) -> int:
        votes = [
            port
            for node in self.nodes
            if node.is_running
            for first, last, port in _owners(node)
            if first <= slot <= last
        ]
        return max(votes, key=votes.count)


def stop_all(*servers: Server) -> None:
    """Kill all of them before another test may get the port of one: the others would connect to a server there."""
    for server in servers:
        server.kill()
    for server in servers:
        server.stop()


def ask(node: Server, *command: Any) -> Any:
    """A node's reply to one command."""
    with node.client() as client:
        return client.execute_command(*command)


def info(node: Server, section: str) -> dict[str, Any]:
    """A section of INFO."""
    with node.client() as client:
        found: dict[str, Any] = client.info(section)
        return found


def has_all(primary: Server) -> bool:
    """Wait until the replica has everything written so far; returns whether it does."""
    with primary.client() as client:
        client.ping()
        return bool(client.wait(1, 5000) == 1)


def hand_over(to: Server) -> None:
    """Let a replica become the primary. One that has just continued may miss what its primary says, and gives up."""
    asked_at = -math.inf

    def is_primary() -> bool:
        nonlocal asked_at
        if time.monotonic() > asked_at + _GIVES_UP_S:
            asked_at = time.monotonic()
            ask(to, "CLUSTER FAILOVER")
        return bool(info(to, "replication")["role"] == "master")

    until(is_primary)


def node_id(node: Server) -> str:
    """The node's id in the cluster."""
    found: str = ask(node, "CLUSTER MYID")
    return found


def is_in_step(replica: Server) -> bool:
    """Whether a replica is in sync with its primary."""
    return info(replica, "replication").get("master_link_status") == "up"


def _owners(node: Server) -> list[tuple[int, int, int]]:
    """First slot, last slot and the primary's port, according to one node."""
    with node.client() as client:
        client.response_callbacks = redis.client.CaseInsensitiveDict({})
        reply = client.execute_command("CLUSTER SLOTS")
    return sorted((first, last, primary[1]) for first, last, primary, *_ in reply)
