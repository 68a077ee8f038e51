"""Finds the server that holds a key now: a cluster node, the primary that Sentinels name, or an embedded server."""

from __future__ import annotations

import os
import random
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast
from weakref import WeakValueDictionary

from redis.crc import key_slot
from redis.exceptions import RedisError

from schedq.connection import redis_errors
from schedq.connection.endpoint import REPLY_S, Endpoint, joined
from schedq.connection.existing import Existing
from schedq.connection.resolver import in_shared_thread
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
_SLOTS: Final = 16_384
_FRESH_S: Final = 0.25
"""Seconds for which a map of the slots serves new connections. A slot may move at any time; the reply of the node
that has lost it makes a client ask again."""
_NO_CLUSTER: Final = "cluster support disabled"
_PAGE: Final = 1000
"""Keys in one round trip."""
_MOST_MOVES: Final = 3
_IN_USE_S: Final = 15.0
"""Seconds for which a queue counts as in use; its heartbeats come every ten."""
_ENLIST_AGAIN_S: Final = 5.0
"""The minimum number of seconds before one process adds a queue's name to the list again."""


class SlotMap(NamedTuple):
    """Which node holds which slots.

    Attributes:
        read_at: when it was read, by this process's clock.
        owners: first slot, last slot and primary of each range, in order.
        nodes: all nodes, replicas included.
    """

    read_at: float
    owners: tuple[tuple[int, int, Node], ...]
    nodes: frozenset[Node]

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int, list[Node]]]) -> SlotMap:
        """The map of ranges, with the nodes of each, primary first; it has been read just now."""
        found = sorted(ranges)
        owners = tuple((first, last, nodes[0]) for first, last, nodes in found)
        return cls(monotonic(), owners, frozenset(node for *_, nodes in found for node in nodes))

    @property
    def is_complete(self) -> bool:
        """Whether each slot has a node."""
        return sum(last - first + 1 for first, last, _ in self.owners) == _SLOTS

    @property
    def primaries(self) -> frozenset[Node]:
        """The nodes that hold slots."""
        return frozenset(primary for _, _, primary in self.owners)

    def owner(self, slot: int) -> Node | None:
        """The node that holds a slot."""
        place = bisect_right(self.owners, slot, key=itemgetter(0)) - 1
        return self.owners[place][2] if place >= 0 and slot <= self.owners[place][1] else None


@dataclass
class Cluster:
    """A Redis Cluster, known by some of its nodes. Queues with the same URL share one object; see `shared`.

    Slots move, so which node holds one is asked when a connection is opened. The map serves all who open one at
    about the same time: hundreds of queues at the start of a worker, or when a node has died. All nodes that the
    cluster has reported are remembered, because the configured ones may be removed from it.

    Attributes:
        template: the settings for connecting to a node, without its address.
        seeds: host and port of the configured nodes.
    """

    template: Endpoint
    seeds: tuple[Node, ...]
    _map: SlotMap | None = field(default=None, init=False, repr=False, compare=False)
    _readings: dict[int, Future[SlotMap]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _enlisted: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _in_use: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _unlisted: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    _enlisting_in: int = field(default=0, init=False, repr=False, compare=False)

    def shared(self) -> Cluster:
        """The object of this process for the same cluster with the same settings; this one if it is the first."""
        known = _clusters.get(self.label)
        if known != self:
            known = _clusters[self.label] = self
        return known

    @property
    def label(self) -> str:
        return f"{self.template.scheme}+cluster://" + ",".join(joined(*seed) for seed in self.seeds)

    def known(self, key: str) -> Endpoint | None:
        """Return the node that holds the slot of `key`, if that was asked just now. It does not block."""
        slots = self._map
        if slots is None or monotonic() - slots.read_at > _FRESH_S:
            return None
        node = slots.owner(key_slot(key.encode()))
        return self.template.with_address(*node) if node else None

    def find(self, key: str) -> Endpoint:
        """Return the node that holds the slot of `key` now. It blocks.

        Raises:
            StoreUnavailable: no node responds, or none serves the slot.
            UsageError: the server is not part of a cluster, or no node lets this user ask.
        """
        return self.known(key) or self.template.with_address(*self._serving(self._slots(), key))

    async def locate(self, key: str) -> Endpoint:
        """The same as `find` for event loops. One thread asks for all callers, however many queues look for nodes."""
        return self.known(key) or self.template.with_address(
            *self._serving(await in_shared_thread(id(self), self._slots), key)
        )

    def _serving(self, slots: SlotMap, key: str) -> Node:
        slot = key_slot(key.encode())
        node = slots.owner(slot)
        if node is None:
            raise StoreUnavailable(f"{self.label}: no node serves slot {slot}, of {key}")
        return node

    def _slots(self) -> SlotMap:
        """Ask which node holds which slots; callers at the same time share one reply.

        Raises:
            StoreUnavailable, UsageError: as `find`.
        """
        mine: Future[SlotMap] = Future()
        process = os.getpid()  # a forked child has none of its parent's threads
        reading = self._readings.setdefault(process, mine)
        if reading is mine:
            try:
                self._map = self._read()
                mine.set_result(self._map)
            except BaseException as error:
                shared = isinstance(error, SchedqError)
                mine.set_exception(error if shared else StoreUnavailable(f"{self.label}: the search was interrupted"))
                raise
            finally:
                self._readings.pop(process, None)
        return reading.result()

    def _read(self) -> SlotMap:
        problems: list[SchedqError] = []
        partial: SlotMap | None = None
        until = monotonic() + REPLY_S
        for seed in self._candidates():
            try:
                (slots,) = self.template.with_address(*seed).ask(("CLUSTER", "SLOTS"))
            except (RedisError, OSError) as error:
                problems.append(self._named(error, seed))
            else:
                found = SlotMap.of(read_slots(slots, seed))
                if found.is_complete:
                    return found
                partial = partial or found  # other nodes may know more
            if monotonic() > until:
                break
        if partial is None:
            raise redis_errors.most_transient(problems)
        return partial

    def enlist(self, queue: str, *, again: bool = False) -> None:
        """Add a name to the list of queues, which may be on another node. A thread does it, so callers don't wait.

        This is done once per queue. With `again` it is done again, at most every five seconds, together with the other
        names that were passed like that lately: each time takes two new connections.
        """
        now = monotonic()
        if again:
            self._in_use[queue] = now
        if queue not in self._enlisted:
            names = [queue]
        elif again and now - self._enlisted[queue] >= _ENLIST_AGAIN_S:
            names = [name for name, at in [*self._in_use.items()] if now - at < _IN_USE_S]
        else:
            return
        self._enlisted |= dict.fromkeys(names, now)
        self._unlisted.update(names)
        self._start_enlisting()

    def _start_enlisting(self) -> None:
        if self._enlisting_in != os.getpid():  # a forked child has no thread yet
            self._enlisting_in = os.getpid()
            with suppress(RuntimeError):  # the interpreter is exiting
                threading.Thread(target=self._enlist, name="schedq-enlist").start()

    def _enlist(self) -> None:
        while self._unlisted:
            names = list(self._unlisted)
            try:
                self.find(QUEUES_KEY).ask(("SADD", QUEUES_KEY, *names))
            except (SchedqError, RedisError, OSError):
                for name in names:
                    self._enlisted.pop(name, None)  # the next connection tries again
            self._unlisted.difference_update(names)
        self._enlisting_in = 0
        if self._unlisted:  # a name has come since the last look
            self._start_enlisting()

    def queues(self, *, scan: bool) -> list[str]:
        """Return the sorted names of the queues; with `scan`, also those that are missing in the list. It blocks.

        Raises:
            StoreUnavailable, UsageError: as `find`.
        """
        from schedq.inspect import queue_names

        slots = self._slots()
        names = set(_drive(self.template.with_address(*self._serving(slots, QUEUES_KEY)), queue_names.listed()))
        if scan:
            for node in slots.primaries:
                names.update(_drive(self.template.with_address(*node), queue_names.scanned()))
        return sorted(names)

    def spread(self, keys: Sequence[str]) -> dict[str, int]:
        """Return how many of the keys each node has the slots of, by node; also nodes without any. It blocks.

        Raises:
            StoreUnavailable, UsageError: as `find`.
        """
        slots = self._slots()
        counts = dict.fromkeys(slots.primaries, 0)
        for key in keys:
            counts[self._serving(slots, key)] += 1
        return {joined(*node): found for node, found in sorted(counts.items())}

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
        slots = self._slots()
        moved: list[str] = []
        by_node: dict[Node, list[str]] = {}
        for key in keys:
            by_node.setdefault(self._serving(slots, key), []).append(key)
        for node, theirs in by_node.items():
            endpoint = self.template.with_address(*node)
            try:
                for first in range(0, len(theirs), _PAGE):
                    page = theirs[first : first + _PAGE]
                    replies = endpoint.ask_each(*(("EXISTS", key) for key in page))
                    moved += found.add(page, replies, endpoint.label)
            except (RedisError, OSError) as error:
                raise redis_errors.translate(error, "EXISTS", endpoint.label) from error
        return moved

    def _candidates(self) -> list[Node]:
        """Return the nodes to ask, in random order, so that an isolated node is not asked first every time."""
        known = [*self._map.nodes] if self._map else []
        named = [seed for seed in self.seeds if seed not in known]
        return random.sample(known, len(known)) + random.sample(named, len(named))

    def _named(self, error: Exception, seed: Node) -> SchedqError:
        if _NO_CLUSTER in str(error):
            alone = f"{self.template.scheme}://{joined(*seed)}"
            return UsageError(f"{alone} is a single server, not a cluster; use the URL {alone}")
        return redis_errors.translate(error, "CLUSTER SLOTS", self.label)


_clusters: Final[MutableMapping[str, Cluster]] = WeakValueDictionary()
"""Those in use, by label."""


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
