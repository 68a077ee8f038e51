"""Which server holds a key now: a cluster's node, the primary that Sentinels name, or an embedded server."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from redis.crc import key_slot
from redis.exceptions import RedisError

from schedq import embedded
from schedq.connection import redis_errors
from schedq.connection.endpoint import REPLY_S, Endpoint, joined
from schedq.errors import SchedqError, StoreUnavailable, UsageError
from schedq.inspect import queue_names
from schedq.model.keys import QUEUES_KEY
from schedq.model.times import monotonic
from schedq.transitions import MarkerWait, RoundTrips


@dataclass(frozen=True)
class EmbeddedEndpoint:
    """A server that is started when it is needed.

    Attributes:
        label: its URL, with an absolute folder.
    """

    label: str

    def find(self, _key: str) -> Endpoint:
        """The server; it is started if it does not run, and that blocks.

        Raises:
            StoreUnavailable: it can't be started.
        """
        return Endpoint("UnixDomainSocketConnection", {"path": embedded.ensure_server(self.label)}, self.label)


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
        template: how to reach a node, but for its address.
        seeds: host and port of the nodes that were named.
    """

    template: Endpoint
    seeds: tuple[Node, ...]
    _nodes: frozenset[Node] = field(default=frozenset(), init=False, repr=False, compare=False)
    _primaries: frozenset[Node] = field(default=frozenset(), init=False, repr=False, compare=False)
    _enlisted: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.template.scheme}+cluster://" + ",".join(joined(*seed) for seed in self.seeds)

    def find(self, key: str) -> Endpoint:
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
                (slots,) = self.template.with_address(*seed).ask(("CLUSTER", "SLOTS"))
            except (RedisError, OSError) as error:
                problems.append(self._named(error, seed))
            else:
                owners = list(read_slots(slots, seed))
                self._nodes = frozenset(node for _, _, nodes in owners for node in nodes)
                self._primaries = frozenset(nodes[0] for _, _, nodes in owners)
                for first, last, nodes in owners:
                    if first <= slot <= last:
                        return self.template.with_address(*nodes[0])
                problems.append(StoreUnavailable(f"{self.label}: no node serves slot {slot}, of {key}"))
            if monotonic() > until:
                break
        raise redis_errors.most_transient(problems)

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
        names = set(_drive(self.find(QUEUES_KEY), queue_names.listed()))
        if scan:
            for node in self._primaries:
                names.update(_drive(self.template.with_address(*node), queue_names.scanned()))
        return sorted(names)

    def _candidates(self) -> list[Node]:
        """Nodes to ask: in any order, so that one that is cut off from the others is not asked each time."""
        known = [*self._nodes]
        named = [seed for seed in self.seeds if seed not in self._nodes]
        return random.sample(known, len(known)) + random.sample(named, len(named))

    def _named(self, error: Exception, seed: Node) -> SchedqError:
        if _NO_CLUSTER in str(error):
            alone = f"{self.template.scheme}://{joined(*seed)}"
            return UsageError(f"{alone} is a single server, no cluster; write {alone}")
        return redis_errors.translate(error, "CLUSTER SLOTS", self.label)


def _drive(endpoint: Endpoint, trips: RoundTrips[list[str]]) -> list[str]:
    """What round trips of plain commands end in, on this node."""
    replies: list[Any] | None = None
    try:
        while True:
            operations = trips.send(replies)
            assert not isinstance(operations, MarkerWait)
            found = endpoint.ask(*[operation.command() for operation in operations])
            replies = [operation.read(reply) for operation, reply in zip(operations, found, strict=True)]
    except StopIteration as stop:
        return cast(list[str], stop.value)
    except (RedisError, OSError) as error:
        raise redis_errors.translate(error, "queues", endpoint.label) from error


def read_slots(slots: list[Any], asked: Node) -> Iterator[tuple[int, int, list[Node]]]:
    """First and last slot, and the nodes that have them, the primary first; out of a reply to CLUSTER SLOTS.

    A node that does not know under which name it is seen from here gives none: it means the one asked. `?` is a node
    whose name is not known yet.
    """
    for first, last, *nodes in slots:
        found = [(node[0] or asked[0], int(node[1])) for node in nodes if node[0] != "?"]
        if found and nodes[0][0] != "?":
            yield int(first), int(last), found


_UNKNOWN = "No such master"


@dataclass(frozen=True)
class Sentinels:
    """A primary by the Sentinels that watch it.

    Attributes:
        template: how to reach the primary, but for its address.
        sentinels: the Sentinels that were named.
        service: what they call the primary.
    """

    template: Endpoint
    sentinels: tuple[Endpoint, ...]
    service: str

    @property
    def label(self) -> str:
        """Its name in messages."""
        hosts = ",".join(joined(one.settings["host"], one.settings["port"]) for one in self.sentinels)
        db = self.template.settings.get("db", 0)
        return f"{self.template.scheme}+sentinel://{hosts}/{self.service}" + (f"/{db}" if db else "")

    def find(self, _key: str) -> Endpoint:
        """The primary. It blocks.

        All Sentinels are asked, and the one with the latest news is believed: one that was cut off from the others
        while they made a replica the primary still names the old one.

        Raises:
            StoreUnavailable: no Sentinel can be asked.
            UsageError: none knows the service, or none lets this user ask.
        """
        found: list[tuple[int, str, int]] = []
        problems: list[SchedqError] = []
        until = monotonic() + REPLY_S
        for sentinel in self.sentinels:
            try:
                found.append(self._asked(sentinel))
            except (RedisError, OSError) as error:
                problems.append(self._named(error))
                if monotonic() > until:
                    break
        if found:
            _, host, port = max(found)
            return replace(self.template.with_address(host, port), must_show_role=True)
        raise redis_errors.most_transient(problems)

    def _named(self, error: Exception) -> SchedqError:
        if _UNKNOWN in str(error):
            return UsageError(f"{self.label}: the Sentinels know no service {self.service!r}")
        return redis_errors.translate(error, "SENTINEL", self.label)

    def _asked(self, sentinel: Endpoint) -> tuple[int, str, int]:
        """The epoch of what a Sentinel knows, and host and port of the primary."""
        facts, where = sentinel.ask(
            ("SENTINEL", "MASTER", self.service), ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        )
        epoch = dict(zip(facts[::2], facts[1::2], strict=True)).get("config-epoch", "0")
        return int(epoch), where[0], int(where[1])
