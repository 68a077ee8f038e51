"""A cluster: how its queues are spread over the nodes, and what events cost there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from schedq.doctor.checks import Check, Finding, findings
from schedq.doctor.server import ServerInfo
from schedq.inspect.display import count

_FEWEST_QUEUES: Final = 4
"""Fewer say nothing about how even they are."""
_UNEVEN: Final = 2
"""How many times its fair share of the queues a node may hold."""


class QueueSpread(NamedTuple):
    """How many of the queues each node of a cluster holds, by node; also those without any."""

    counts: Mapping[str, int]

    @property
    def queues(self) -> int:
        """How many there are."""
        return sum(self.counts.values())

    @property
    def fullest(self) -> str:
        """The node with the most queues."""
        return max(self.counts, key=lambda node: self.counts[node])

    @property
    def is_uneven(self) -> bool:
        """Whether one node has many of the queues, and others have few."""
        most = max(self.counts.values(), default=0)
        return most >= _FEWEST_QUEUES and most * len(self.counts) > _UNEVEN * self.queues


_CHECKS: Final[tuple[Check[QueueSpread], ...]] = (
    Check(
        "queues-uneven",
        "note",
        lambda it: it.is_uneven,
        lambda it: (
            f"node {it.fullest} holds {it.counts[it.fullest]} of the {it.queues} queues, "
            f"and the cluster has {count(len(it.counts), 'node')}"
        ),
        "each queue uses one core of one node; when this node's core is full, the others do not help",
        "if that node is busy, move the slots of some queues to other nodes with redis-cli --cluster reshard: no "
        "job is lost while a slot moves; CLUSTER KEYSLOT queue:{NAME}: says which slot a queue has",
    ),
)
_EVENTS: Final[Check[ServerInfo]] = Check(
    "events-on-all-nodes",
    "note",
    lambda it: (
        it.info.get("redis_mode") == "cluster" and it.release[0] == "Redis" and it.release[1].partition(".")[0] == "6"
    ),
    lambda it: f"the server is Redis {it.release[1]}, which has no shard channels",
    "the event of each job goes to every node of the cluster, so each further node makes every job cost more: a few "
    "microseconds of processor time, and hundreds of bytes",
    "upgrade to Redis 7 or later, or to Valkey, where events stay on the node of their queue",
)


def check_spread(counts: Mapping[str, int]) -> Iterator[Finding]:
    """The findings about how many queues each node holds."""
    yield from findings(_CHECKS, QueueSpread(counts))


def check_events(server: ServerInfo) -> Iterator[Finding]:
    """The findings about what a node does with events."""
    yield from findings([_EVENTS], server)
