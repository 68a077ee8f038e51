"""Faults of a cluster's nodes, one at a time: the next one begins when the cluster is whole again.

A replica stands in for its primary only once it has all data. So no fault hits a primary whose replica is still being
filled: that would lose data in any Redis, and show nothing about its clients.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import redis
from redis.crc import key_slot

from scripts.tools.chaos.cluster_app import NAMES
from scripts.tools.chaos.cluster_verdict import LAG_S, Outage
from scripts.tools.chaos.record import now
from tests.servers import Server
from tests.stories.topologies.cluster import Cluster, ask, has_all, info, is_in_step, node_id

KINDS: Final = {
    # kind: weight
    "node_kill": 3,
    "node_stop": 3,
    "failover": 2,
    "slot_move": 3,
    "slot_move_cut": 1,
    "replica_kill": 1,
}
_GAPS_S: Final = (0.5, 4.0)
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.02
_PAGE: Final = 200
"""Keys that MIGRATE moves at once."""
_SETTLED_S: Final = 1.0
"""A vote that has begun ends within this time, although the node is back that it is about."""


class StoppedError(Exception):
    """The run is over."""


class NodeFaults(threading.Thread):
    """Injects faults until it is stopped.

    Attributes:
        outages: what was injected, and which queues it concerned.
        counts: how often, by kind; also how often the replica of a stopped node took over.
        error: what ended it early.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        super().__init__(name="chaos-nodes", daemon=True)
        self._cluster, self._draw = cluster, random.Random(f"nodes {seed}")
        self._over, self._cancelled = threading.Event(), threading.Event()
        self._can_move_at_once = int(info(cluster.nodes[0], "server").get("valkey_version", "0").partition(".")[0]) >= 9
        self.outages: list[Outage] = []
        self.counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over.wait(self._draw.uniform(*_GAPS_S)):
                kind = self._draw.choices(list(KINDS), list(KINDS.values()))[0]
                getattr(self, kind)(self._draw.choice(NAMES))
                self.counts[kind] += 1
                self._until(self.is_whole, f"the cluster is not whole again after {kind}")
        except StoppedError:
            pass
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        """Stop injecting faults, and wait until the last one has ended."""
        self._over.set()
        self.join()

    def cancel(self) -> None:
        """Stop at once, and leave the nodes as they are."""
        self._over.set()
        self._cancelled.set()
        self.join(30)

    # -- faults, each with a queue whose node it hits

    def node_kill(self, queue: str) -> None:
        """The replica takes over; the old primary is started later, empty, as the replica of the new one."""
        primary, replica, queues = self._hit(queue)
        since = now()
        primary.kill()
        self._until(lambda: _role(replica) == "master", "the replica of a killed node does not take over")
        self._until(self._cluster.is_at_peace, "the nodes do not agree after a kill")
        self._note("node_kill", primary, queues, since, (since - LAG_S, since))
        self._sleep(self._draw.uniform(0.0, 3.0))
        self._start(primary)

    def node_stop(self, queue: str) -> None:
        """Its replica takes over, or almost does; the node continues as a primary until it learns that."""
        primary, replica, queues = self._hit(queue)
        since = now()
        primary.freeze()
        try:
            self._sleep(self._draw.uniform(1.5, 4.5))
        finally:
            thawed = now()
            primary.thaw()
        self._until(lambda: _role(primary) != _role(replica), "a stopped node and its replica have the same role")
        if _role(replica) != "master":  # a vote may be in progress
            deadline = now() + _SETTLED_S
            while now() < deadline and _role(replica) != "master":
                self._sleep(_LOOK_S)
            self._until(lambda: _role(primary) != _role(replica), "a stopped node and its replica have the same role")
        demoted = now()
        self._until(self._cluster.is_at_peace, "the nodes do not agree after a stop")
        if _role(replica) == "master":
            self.counts["stop_with_takeover"] += 1
            self._note("node_stop", primary, queues, since, (since - LAG_S, since), (thawed, demoted))
        else:
            self._note("node_stop", primary, queues, since, until=thawed)

    def failover(self, queue: str) -> None:
        """By hand: the replica takes over once it has everything."""
        primary, replica, queues = self._hit(queue)
        since = now()

        def is_done() -> bool:
            if now() > since + 10 * (1 + tries.total()):
                tries["again"] += 1
                ask(replica, "CLUSTER FAILOVER")
            return _role(replica) == "master"

        tries: Counter[str] = Counter()
        ask(replica, "CLUSTER FAILOVER")
        self._until(is_done, "CLUSTER FAILOVER does nothing")
        self._until(self._cluster.is_at_peace, "the nodes do not agree after a failover")
        self._note("failover", primary, queues, since)

    def slot_move(self, queue: str) -> None:
        """To another primary: at once where the server can, or by keys."""
        if self._can_move_at_once and self._draw.random() < 0.5:
            self._move_at_once(queue)
        else:
            self._move_by_keys("slot_move", queue, 0.0)

    def slot_move_cut(self, queue: str) -> None:
        """The program that moves the keys stops half-way; later another one finishes."""
        self._move_by_keys("slot_move_cut", queue, self._draw.uniform(0.5, 3.0))

    def replica_kill(self, queue: str) -> None:
        """New jobs are refused, or not acknowledged, until it is back."""
        _, replica, queues = self._hit(queue)
        since = now()
        replica.kill()
        self._sleep(self._draw.uniform(0.2, 3.0))
        self._start(replica)
        self._note("replica_kill", replica, queues, since)

    def _move_by_keys(self, kind: str, queue: str, pause_s: float) -> None:
        to, key, since = self._another(queue), _key(queue), now()
        source = self._cluster.begin_move(key, to)
        half = len(self._cluster.keys(key, source)) // 2
        while names := self._cluster.keys(key, source, _PAGE):
            self._cluster.carry(names, source, to)
            half -= len(names)
            if pause_s and half <= 0:
                self._sleep(pause_s)
                pause_s = 0.0
        self._cluster.end_move(key, source, to)
        self._end_move(kind, queue, since, to)

    def _move_at_once(self, queue: str) -> None:
        to, slot, since = self._another(queue), key_slot(_key(queue).encode()), now()
        source = self._cluster.owner(_key(queue))
        self.counts["moves_at_once"] += 1
        ask(source, "CLUSTER MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", node_id(to))
        self._until(lambda: self._cluster.owner(_key(queue)) is to, "MIGRATESLOTS does not end")
        self._end_move("slot_move", queue, since, to)

    def _end_move(self, kind: str, queue: str, since: float, to: Server) -> None:
        """The replica of the new owner must know of the slot, and have its keys, before anything may die."""
        self._until(self._cluster.is_at_peace, "the nodes do not agree on the owner of a slot that has moved")
        self._until(lambda: has_all(to), "the replica of a slot's new owner does not get its keys")
        self._note(kind, to, (queue,), since)

    # -- the cluster

    def is_whole(self) -> bool:
        """All nodes agree, and each primary has its replica, which has everything."""
        with suppress(redis.RedisError, OSError):
            replication = [info(node, "replication") for node in self._cluster.nodes]
            primaries = [one for one in replication if one["role"] == "master"]
            return (
                len(primaries) == len(replication) // 2
                and all(one["connected_slaves"] == 1 for one in primaries)
                and all(one["role"] == "master" or one.get("master_link_status") == "up" for one in replication)
                and self._cluster.is_at_peace()
            )
        return False

    def replica_of(self, primary: Server) -> Server:
        """The node that replicates another one."""
        for node in self._cluster.nodes:
            if node.is_running and info(node, "replication").get("master_port") == primary.port:
                return node
        raise AssertionError(f"no replica of the node at port {primary.port}")

    def _hit(self, queue: str) -> tuple[Server, Server, tuple[str, ...]]:
        """The queue's node, the replica of that node, and all queues there."""
        primary = self._cluster.owner(_key(queue))
        replica = self.replica_of(primary)
        self._until(lambda: is_in_step(replica), "a replica is not in step")
        return primary, replica, tuple(name for name in NAMES if self._cluster.owner(_key(name)) is primary)

    def _another(self, queue: str) -> Server:
        """Another primary, drawn from those without a queue if there are any."""
        taken = {self._cluster.owner(_key(name)).port for name in NAMES}
        source = self._cluster.owner(_key(queue))
        others = [node for node in self._cluster.nodes if node is not source and _role(node) == "master"]
        return self._draw.choice([node for node in others if node.port not in taken] or others)

    def _start(self, node: Server) -> None:
        if self._cancelled.is_set():
            raise StoppedError
        node.start()

    def _note(
        self,
        kind: str,
        node: Server,
        queues: Sequence[str],
        since: float,
        *lost: tuple[float, float],
        until: float = 0.0,
    ) -> None:
        self.outages.append(Outage(kind, node.port, tuple(queues), since, until or now(), lost))

    def _sleep(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise StoppedError

    def _until(self, condition: Callable[[], Any], failing: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with suppress(redis.RedisError, OSError):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise AssertionError(f"{failing}, within {_PATIENCE_S:.0f} s")
            self._sleep(_LOOK_S)


def _key(queue: str) -> str:
    return f"queue:{{{queue}}}:"


def _role(node: Server) -> str:
    """The role that a node believes it has; '' if it does not reply."""
    with suppress(redis.RedisError, OSError):
        return str(info(node, "replication")["role"])
    return ""
