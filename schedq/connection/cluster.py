"""Redis Cluster: which node holds a key now."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from redis.crc import key_slot
from redis.exceptions import RedisError

from schedq.clocks import monotonic
from schedq.connection import faults
from schedq.connection.place import REPLY_S, Place, joined
from schedq.errors import SchedqError, StoreUnavailable, UsageError
from schedq.keys import QUEUES_KEY
from schedq.operations import Block, Flow, directory

Node = tuple[str, int]
_NO_CLUSTER: Final = "cluster support disabled"
_ENLIST_AGAIN_S: Final = 5.0
"""Seconds between two writings of a queue's name by one process at least."""


@dataclass
class Cluster:
    """A cluster by some of its nodes.

    What it finds is not kept: a slot may be elsewhere at the next look. All nodes it hears of are, as the ones it
    was given may go.

    Attributes:
        way: how its nodes are reached, whichever it is.
        seeds: host and port of the nodes that were named.
    """

    way: Place
    seeds: tuple[Node, ...]
    _nodes: frozenset[Node] = field(default=frozenset(), init=False, repr=False, compare=False)
    _primaries: frozenset[Node] = field(default=frozenset(), init=False, repr=False, compare=False)
    _enlisted: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    is_default = False

    @property
    def label(self) -> str:
        """The place for messages."""
        return f"{self.way.scheme}+cluster://" + ",".join(joined(*seed) for seed in self.seeds)

    def find(self, key: str) -> Place:
        """The node that holds the slot of `key` now. It blocks.

        Raises:
            StoreUnavailable: no node can be asked, or none serves the slot.
            UsageError: this is no cluster, or no node lets this user ask.
        """
        slot = key_slot(key.encode())
        problems: list[SchedqError] = []
        until = monotonic() + REPLY_S
        for seed in self._candidates():
            try:
                (slots,) = self.way.at(*seed).ask(("CLUSTER", "SLOTS"))
            except (RedisError, OSError) as error:
                problems.append(self._named(error, seed))
            else:
                owners = list(read_slots(slots, seed))
                self._nodes = frozenset(node for _, _, nodes in owners for node in nodes)
                self._primaries = frozenset(nodes[0] for _, _, nodes in owners)
                for first, last, nodes in owners:
                    if first <= slot <= last:
                        return self.way.at(*nodes[0])
                problems.append(StoreUnavailable(f"{self.label}: no node serves slot {slot}, of {key}"))
            if monotonic() > until:
                break
        raise faults.likeliest_to_pass(problems)

    def enlist(self, queue: str, *, again: bool = False) -> None:
        """Add a name to the list of queues, which is on a node of its own, in a thread: it is not worth a wait.

        Once, or `again` if that was not done a moment ago.
        """
        now = monotonic()
        if queue not in self._enlisted or (again and now - self._enlisted[queue] >= _ENLIST_AGAIN_S):
            self._enlisted[queue] = now
            with suppress(RuntimeError):  # the interpreter is on its way out
                threading.Thread(target=self._enlist, args=(queue,), name="schedq-enlist").start()

    def _enlist(self, queue: str) -> None:
        try:
            self.find(QUEUES_KEY).ask(("SADD", QUEUES_KEY, queue))
        except (SchedqError, RedisError, OSError):
            self._enlisted.pop(queue, None)  # whoever connects next tries again

    def queues(self, *, scan: bool) -> list[str]:
        """Names of the queues, in order; `scan`: also of those that no schedq client has enlisted. It blocks.

        Raises:
            StoreUnavailable, UsageError: as `find`.
        """
        names = set(_drive(self.find(QUEUES_KEY), directory.listed()))
        if scan:
            for node in self._primaries:
                names.update(_drive(self.way.at(*node), directory.scanned()))
        return sorted(names)

    def _candidates(self) -> list[Node]:
        """Nodes to ask: in any order, so that one that is cut off from the others is not asked each time."""
        known = [*self._nodes]
        named = [seed for seed in self.seeds if seed not in self._nodes]
        return random.sample(known, len(known)) + random.sample(named, len(named))

    def _named(self, error: Exception, seed: Node) -> SchedqError:
        if _NO_CLUSTER in str(error):
            alone = f"{self.way.scheme}://{joined(*seed)}"
            return UsageError(f"{alone} is a single server, no cluster; write {alone}")
        return faults.named(error, "CLUSTER SLOTS", self)


def _drive(place: Place, flow: Flow[list[str]]) -> list[str]:
    """What a flow of plain commands ends in, on this node."""
    try:
        step = next(flow)
        while True:
            assert not isinstance(step, Block)
            replies = place.ask(*[operation.command() for operation in step])
            step = flow.send([operation.read(reply) for operation, reply in zip(step, replies, strict=True)])
    except StopIteration as stop:
        names: list[str] = stop.value
        return names
    except (RedisError, OSError) as error:
        raise faults.named(error, "queues", place) from error


def read_slots(slots: list[Any], asked: Node) -> Iterator[tuple[int, int, list[Node]]]:
    """First and last slot, and the nodes that have them, the primary first; out of a reply to CLUSTER SLOTS.

    A node that does not know under which name it is seen from here gives none: it means the one asked. `?` is a node
    whose name is not known yet.
    """
    for first, last, *nodes in slots:
        found = [(node[0] or asked[0], int(node[1])) for node in nodes if node[0] != "?"]
        if found and nodes[0][0] != "?":
            yield int(first), int(last), found
