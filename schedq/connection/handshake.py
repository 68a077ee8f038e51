"""What a server is asked before a queue uses it: whether it can be trusted with jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from schedq.connection import redis_errors
from schedq.connection.address import Address
from schedq.connection.endpoint import Endpoint, joined
from schedq.errors import StoreUnavailable, UsageError
from schedq.model.durability import Wait
from schedq.model.keys import QUEUES_KEY
from schedq.model.settings import Settings

_OLDEST = (6, 2)


class Handshake:
    """What a connection asks before a queue uses a server, and what it has learnt about that server.

    Args:
        address: where Redis is.
        queue: the queue that is to use it; its settings say what it can bear.
        accepted: names of queues that connections of the same worker were let in for. Eviction that is switched on
            while a worker runs must not stop it: the jobs that it leaves undone may be evicted as well.
    """

    def __init__(self, address: Address, queue: Settings, accepted: set[str] | None = None) -> None:
        self._address = address
        self._queue = queue
        self._accepted = accepted
        self._known: Endpoint | None = None  # the one that was accepted last
        self._kept: set[Wait] = set()  # what this connection has seen kept

    def commands(self, endpoint: Endpoint) -> list[tuple[str, ...]]:
        """What to send on a new connection.

        The role where it can't be taken for granted; and, to a server that is not known yet, for its INFO and this
        queue's name for the list of queues (which a cluster has on another node: see `Address.enlist`). A client that
        only reads leaves no name there: it may be a mistyped one.
        """
        asked: list[tuple[str, ...]] = [("ROLE",)] if endpoint.must_show_role else []
        if endpoint != self._known:
            asked.append(("INFO",))
            if self._queue.listed and not self._queue.tagged:
                asked.append(("SADD", QUEUES_KEY, self._queue.name))
        return asked

    def check(self, endpoint: Endpoint, commands: Sequence[tuple[str, ...]], replies: Sequence[Any]) -> None:
        """Refuse a server that would lose jobs, can't run the scripts or is not the primary.

        Raises:
            UsageError, StoreUnavailable: it is refused; or it does not say its role, and must.
        """
        for (command, *_), reply in zip(commands, replies, strict=True):
            if command == "ROLE":
                check_role(reply, endpoint)
            elif command == "INFO":
                was_accepted = self._accepted is not None and self._queue.name in self._accepted
                check_info(reply, replace(self._queue, allow_eviction=True) if was_accepted else self._queue, endpoint)
        if self._accepted is not None:
            self._accepted.add(self._queue.name)
        self._known, self._kept = endpoint, set()
        if self._queue.listed:
            self._address.enlist(self._queue.name)

    def unchecked(self, waits: Sequence[Wait]) -> list[Wait]:
        """Those of some waits that this connection has not seen kept; ask `probes` before the first write."""
        return [wait for wait in waits if wait not in self._kept]

    def probes(self, waits: Sequence[Wait]) -> list[tuple[str | int, ...]]:
        """What to ask before the first write that must be waited for."""
        return [("INFO",), ("CONFIG", "GET", "appendfsync"), *(wait.probe for wait in waits)]

    def check_waits(self, waits: Sequence[Wait], replies: Sequence[Any]) -> None:
        """Refuse a server that can't keep these waits, by its replies to `probes`; nothing was sent to it so far.

        Raises:
            UsageError: it does not know the command, the user may not send it, or nothing goes to a disk there.
            StoreUnavailable: too few replicas.
        """
        assert self._known is not None
        info, policy, *tried = replies
        facts = _facts(info)
        if isinstance(policy, list) and len(policy) == 2:
            facts["appendfsync"] = policy[1]
        for wait, reply in zip(waits, tried, strict=True):
            what = f"durability={wait.durability!r}"
            if isinstance(reply, Exception) and "unknown command" in str(reply).lower():
                raise UsageError(
                    f"{what}: {self._known.label} has no WAITAOF, which Redis 7.2 and Valkey have; nothing was stored: "
                    "use durability='replicated', or 'memory' and appendfsync always there"
                )
            if isinstance(reply, Exception):
                raise redis_errors.translate(reply, what, self._known.label)
            wait.check(facts, self._known.label)
        self._kept.update(waits)

    def note_unmet(self, waits: Sequence[Wait], replies: Sequence[Any]) -> None:
        """Have waits checked again that were not kept, by the replies, which end in theirs."""
        for wait, reply in zip(waits, replies[-len(waits) :], strict=True):
            if isinstance(reply, Exception) or wait.shortfall(reply):
                self._kept.discard(wait)


def check_role(role: Any, endpoint: Endpoint) -> None:
    """Refuse a server that is not the primary: a Sentinel names the old one for a while after a failover.

    Raises:
        StoreUnavailable: it is a replica, or about to become one.
        UsageError: the user may not ask.
    """
    if isinstance(role, Exception):
        raise redis_errors.translate(role, "ROLE", endpoint.label)
    if role[0] != "master":
        raise StoreUnavailable(f"{endpoint.label} is named by the Sentinels and is not the primary")


def check_info(info: object, queue: Settings, endpoint: Endpoint) -> None:
    """Refuse a server by what INFO says. An INFO that access rules forbid is no reason to refuse.

    Raises:
        UsageError: too old, may evict keys, or a cluster node.
        StoreUnavailable: a read-only replica.
    """
    if not isinstance(info, str):
        return
    facts = _facts(info)
    where = endpoint.label
    version = facts.get("valkey_version") or facts.get("redis_version", "")
    if "valkey_version" not in facts and _parts(version) < _OLDEST:
        raise UsageError(f"{where} is Redis {version}; schedq needs Redis 6.2 or later, or Valkey")
    if facts.get("cluster_enabled") == "1" and not queue.tagged:
        host, port = endpoint.settings.get("host", "HOST"), endpoint.settings.get("port", "PORT")
        url = f"{endpoint.scheme}+cluster://{joined(host, port)}"
        raise UsageError(f"{where} is a cluster node, where a queue needs other keys; write {url}")
    check_policy(facts.get("maxmemory_policy", ""), queue, where)
    if facts.get("role") == "slave":
        raise StoreUnavailable(f"{where} is a read-only replica; use the primary's address")


def check_policy(policy: str, queue: Settings, where: str) -> None:
    """Refuse a server that may evict keys. An unknown policy is no reason to refuse.

    Raises:
        UsageError: it may.
    """
    if policy not in ("", "noeviction") and not queue.allow_eviction:
        raise UsageError(
            f"{where} may evict keys (maxmemory-policy {policy}), and jobs with them; "
            "set it to noeviction, or pass allow_eviction=True if you can bear that"
        )


def _facts(info: object) -> dict[str, str]:
    """The fields of an INFO; none if it was refused."""
    lines = info.splitlines() if isinstance(info, str) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) or _OLDEST
