"""Finds the server that holds a key now: a cluster node, the primary that Sentinels name, or an embedded server."""

from __future__ import annotations

import random
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from redis.crc import key_slot
from redis.exceptions import RedisError

from schedq.connection import redis_errors
from schedq.connection.endpoint import REPLY_S, Endpoint, joined
from schedq.connection.existing import Existing
from schedq.errors import SchedqError, StoreUnavailable, UsageError
from schedq.model.keys import QUEUES_KEY
from schedq.model.times import monotonic
from schedq.transitions import MarkerWait, RoundTrips


@dataclass(frozen=True)
class EmbeddedEndpoint:
    """An embedded server, which is started when it is needed.

    Attributes:
        label: its URL, with an absolute folder.
    """

    label: str

    def find(self, _key: str) -> Endpoint:
        """Return the server. If it is not running, start it, which blocks.

        Raises:
            StoreUnavailable: the server can't be started.
        """
        from schedq import embedded

        return Endpoint("UnixDomainSocketConnection", {"path": embedded.ensure_server(self.label)}, self.label)


Node = tuple[str, int]
_NO_CLUSTER: Final = "cluster support disabled"
_PAGE: Final = 1000
"""Keys in one round trip."""
_MOST_MOVES: Final = 3
_ENLIST_AGAIN_S: Final = 5.0
"""The minimum number of seconds before one process adds a queue's name to the list again."""


@dataclass
class Cluster:
    """A Redis Cluster, known by some of its nodes.

    It does not cache which node holds a slot, because slots move. It does remember all nodes that the cluster reports,
    because the configured ones may be removed from the cluster.

    Attributes:
        template: the settings for connecting to a node, without its address.
        seeds: host and port of the configured nodes.
    """

    template: Endpoint
    seeds: tuple[Node, ...]
    _nodes: frozenset[Node] = field(default=frozenset(), init=False, repr=False, compare=False)
    _primaries: frozenset[Node] = field(default=frozenset(), init=False, repr=False, compare=False)
    _owners: tuple[tuple[int, int, Node], ...] = field(default=(), init=False, repr=False, compare=False)
    _enlisted: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def label(self) -> str:
        return f"{self.template.scheme}+cluster://" + ",".join(joined(*seed) for seed in self.seeds)

    def find(self, key: str) -> Endpoint:
        """Return the node that holds the slot of `key` now. It blocks.

        Raises:
            StoreUnavailable: no node responds, or none serves the slot.
            UsageError: the server is not part of a cluster, or no node lets this user ask.
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
                self._owners = tuple(sorted((first, last, nodes[0]) for first, last, nodes in owners))
                for first, last, nodes in owners:
                    if first <= slot <= last:
                        return self.template.with_address(*nodes[0])
                problems.append(StoreUnavailable(f"{self.label}: no node serves slot {slot}, of {key}"))
            if monotonic() > until:
                break
        raise redis_errors.most_transient(problems)

    def enlist(self, queue: str, *, again: bool = False) -> None:
        """Add a name to the list of queues, which may be on another node. A thread does it, so callers don't wait.

        This is done once per queue; with `again`, repeated at most every five seconds.
        """
        now = monotonic()
        if queue not in self._enlisted or (again and now - self._enlisted[queue] >= _ENLIST_AGAIN_S):
            self._enlisted[queue] = now
            with suppress(RuntimeError):  # the interpreter is exiting
                threading.Thread(target=self._enlist, args=(queue,), name="schedq-enlist").start()

    def _enlist(self, queue: str) -> None:
        try:
            self.find(QUEUES_KEY).ask(("SADD", QUEUES_KEY, queue))
        except (SchedqError, RedisError, OSError):
            self._enlisted.pop(queue, None)  # the next connection tries again

    def queues(self, *, scan: bool) -> list[str]:
        """Return the sorted names of the queues; with `scan`, also those that are missing in the list. It blocks.

        Raises:
            StoreUnavailable, UsageError: as `find`.
        """
        from schedq.inspect import queue_names

        names = set(_drive(self.find(QUEUES_KEY), queue_names.listed()))
        if scan:
            for node in self._primaries:
                names.update(_drive(self.template.with_address(*node), queue_names.scanned()))
        return sorted(names)

    def existing(self, keys: Sequence[str]) -> Existing:
        """Return which of the keys exist; each node is asked for its own, a page per round trip. It blocks.

        Raises:
            StoreUnavailable, UsageError: as `find`.
        """
        found = Existing()
        left = list(keys)
        for _ in range(_MOST_MOVES):
            if not left:
                return found
            left = self._asked_for(left, found)
        raise StoreUnavailable(f"{self.label}: its slots keep moving")

    def _asked_for(self, keys: Sequence[str], found: Existing) -> list[str]:
        """Ask the nodes of these keys, and add what they reply; return the keys whose slots have just moved."""
        self.find(QUEUES_KEY)
        moved: list[str] = []
        for node, theirs in self._by_node(keys).items():
            endpoint = self.template.with_address(*node)
            try:
                for first in range(0, len(theirs), _PAGE):
                    page = theirs[first : first + _PAGE]
                    replies = endpoint.ask_each(*(("EXISTS", key) for key in page))
                    moved += found.add(page, replies, endpoint.label)
            except (RedisError, OSError) as error:
                raise redis_errors.translate(error, "EXISTS", endpoint.label) from error
        return moved

    def _by_node(self, keys: Sequence[str]) -> dict[Node, list[str]]:
        """The keys of each primary, by the slots of the last reply."""
        firsts = [first for first, _, _ in self._owners]
        found: dict[Node, list[str]] = {}
        for key in keys:
            slot = key_slot(key.encode())
            place = bisect_right(firsts, slot) - 1
            if place < 0 or slot > self._owners[place][1]:
                raise StoreUnavailable(f"{self.label}: no node serves slot {slot}, of {key}")
            found.setdefault(self._owners[place][2], []).append(key)
        return found

    def _candidates(self) -> list[Node]:
        """Return the nodes to ask, in random order, so that an isolated node is not asked first every time."""
        known = [*self._nodes]
        named = [seed for seed in self.seeds if seed not in self._nodes]
        return random.sample(known, len(known)) + random.sample(named, len(named))

    def _named(self, error: Exception, seed: Node) -> SchedqError:
        if _NO_CLUSTER in str(error):
            alone = f"{self.template.scheme}://{joined(*seed)}"
            return UsageError(f"{alone} is a single server, not a cluster; use the URL {alone}")
        return redis_errors.translate(error, "CLUSTER SLOTS", self.label)


def _drive(endpoint: Endpoint, trips: RoundTrips[list[str]]) -> list[str]:
    """Execute round trips of plain commands on one node and return their result."""
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
    """Yield the first slot, the last slot and the nodes of each range in a reply to CLUSTER SLOTS, primary first.

    An empty host name stands for the node that was asked: it does not know the name that clients use for it. `?` stands
    for a node whose name is not known yet.
    """
    for first, last, *nodes in slots:
        found = [(node[0] or asked[0], int(node[1])) for node in nodes if node[0] != "?"]
        if found and nodes[0][0] != "?":
            yield int(first), int(last), found


_UNKNOWN = "No such master"


@dataclass(frozen=True)
class Sentinels:
    """A primary, known by the Sentinels that monitor it.

    Attributes:
        template: the settings for connecting to the primary, without its address.
        sentinels: the configured Sentinels.
        service: the Sentinels' name for the primary.
    """

    template: Endpoint
    sentinels: tuple[Endpoint, ...]
    service: str

    @property
    def label(self) -> str:
        hosts = ",".join(joined(one.settings["host"], one.settings["port"]) for one in self.sentinels)
        db = self.template.settings.get("db", 0)
        return f"{self.template.scheme}+sentinel://{hosts}/{self.service}" + (f"/{db}" if db else "")

    def find(self, _key: str) -> Endpoint:
        """Return the primary. It blocks.

        All Sentinels are asked, and the highest configuration epoch wins. A Sentinel that was isolated during a
        failover still names the old primary.

        Raises:
            StoreUnavailable: no Sentinel responds.
            UsageError: no Sentinel knows the service, or none lets this user ask.
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
            return UsageError(f"{self.label}: the Sentinels do not know the service {self.service!r}")
        return redis_errors.translate(error, "SENTINEL", self.label)

    def _asked(self, sentinel: Endpoint) -> tuple[int, str, int]:
        """Return a Sentinel's configuration epoch, and its host and port of the primary."""
        facts, where = sentinel.ask(
            ("SENTINEL", "MASTER", self.service), ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        )
        epoch = dict(zip(facts[::2], facts[1::2], strict=True)).get("config-epoch", "0")
        return int(epoch), where[0], int(where[1])
