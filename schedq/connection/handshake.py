"""The checks that a server must pass before a queue uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from redis import exceptions

from schedq.connection import redis_errors
from schedq.connection.address import Address
from schedq.connection.endpoint import Endpoint, joined
from schedq.errors import StoreUnavailable, UsageError
from schedq.model.durability import Wait
from schedq.model.keys import QUEUES_KEY
from schedq.model.settings import Settings

_OLDEST = (6, 2)


class Handshake:
    """Checks a server before queues use it, and remembers the result for one connection.

    Args:
        address: where Redis is.
        queues: the queues that will use the server; their settings say what they accept.
        accepted: names of queues for which connections of the same worker passed the check. If eviction is turned on
            while a worker runs, the worker must continue: stopping it would leave jobs that may be evicted as well.
    """

    def __init__(self, address: Address, *queues: Settings, accepted: set[str] | None = None) -> None:
        self._address = address
        self._queues = queues
        self._accepted = accepted
        self._known: Endpoint | None = None  # the server that was accepted last
        self._kept: set[Wait] = set()  # waits that this connection knows to work
        self._history = ""  # the id of the server's replication history when the waits were checked

    def commands(self, endpoint: Endpoint) -> list[tuple[str, ...]]:
        """Return the commands to send on a new connection.

        They ask for the server's role, where the address does not guarantee it. To a server that is not known yet, they
        also ask for its INFO and add the queues' names to the list of queues. In a cluster that list is on another
        node, see `Address.enlist`. A client that only reads does not add the name, because it may be mistyped.
        """
        asked: list[tuple[str, ...]] = [("ROLE",)] if endpoint.must_show_role else []
        if endpoint != self._known:
            asked.append(("INFO",))
            if names := [queue.name for queue in self._queues if queue.listed and not queue.tagged]:
                asked.append(("SADD", QUEUES_KEY, *names))
        return asked

    def check(self, endpoint: Endpoint, commands: Sequence[tuple[str, ...]], replies: Sequence[Any]) -> None:
        """Reject a server that could lose jobs, can't run the scripts, or is not the primary.

        Raises:
            UsageError, StoreUnavailable: the server is rejected, or must report its role and does not.
        """
        for (command, *_), reply in zip(commands, replies, strict=True):
            if command == "ROLE":
                check_role(reply, endpoint)
            elif command == "INFO":
                # They differ only in whether they accept eviction.
                strictest = min(self._queues, key=self._accepts_eviction)
                settings = replace(strictest, allow_eviction=True) if self._accepts_eviction(strictest) else strictest
                check_info(reply, settings, endpoint)
        if self._accepted is not None:
            self._accepted.update(queue.name for queue in self._queues)
        self._known, self._kept, self._history = endpoint, set(), ""
        for queue in self._queues:
            if queue.listed:
                self._address.enlist(queue.name)

    def _accepts_eviction(self, queue: Settings) -> bool:
        return queue.allow_eviction or (self._accepted is not None and queue.name in self._accepted)

    def unchecked(self, waits: Sequence[Wait]) -> list[Wait]:
        """Return the waits that have not been checked on this connection. Send `probes` before the first write."""
        return [wait for wait in waits if wait not in self._kept]

    def probes(self, waits: Sequence[Wait]) -> list[tuple[str | int, ...]]:
        """Return the commands to send before the first write that must be waited for."""
        return [("INFO",), ("CONFIG", "GET", "appendfsync"), *(wait.probe for wait in waits)]

    def check_waits(self, waits: Sequence[Wait], replies: Sequence[Any]) -> None:
        """Reject a server that can't fulfill these waits, by its replies to `probes`. No write was sent to it yet.

        Raises:
            UsageError: the server does not know the command, the user may not send it, or the server does not write to
                disk.
            StoreUnavailable: the server has too few replicas.
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
                    f"{what}: {self._known.label} has no WAITAOF, which needs Redis 7.2 or Valkey; nothing was stored: "
                    "use durability='replicated', or 'memory' with appendfsync always on that server"
                )
            if isinstance(reply, Exception):
                raise redis_errors.translate(reply, what, self._known.label)
            wait.check(facts, self._known.label)
        self._kept.update(waits)
        self._history = facts.get("master_replid", "")

    def closing(self, waits: Sequence[Wait]) -> list[tuple[str, ...]]:
        """Return the commands to send behind the waits; pass their replies to `confirmed`."""
        has_replicas = any(wait.durability == "replicated" for wait in waits)
        return [("INFO", "replication")] if has_replicas and self._history else []

    def confirmed(self, waits: Sequence[Wait], replies: Sequence[Any]) -> list[Any]:
        """Return the replies without those to `closing`, if the server was the primary all the time.

        A primary that becomes a replica drops writes that its successor does not have. In a cluster, Valkey 9.1 does
        not end a WAIT then. If the server becomes the primary again, its replicas confirm what they never had.

        Raises:
            ConnectionError: it was a replica meanwhile, so the waits confirm nothing.
        """
        kept = [*replies]
        if self.closing(waits):
            facts = _facts(kept.pop())
            if facts.get("role", "master") != "master" or facts.get("master_replid", self._history) != self._history:
                raise exceptions.ConnectionError("the server was a replica meanwhile, so it may have lost the write")
        return kept

    def note_unmet(self, waits: Sequence[Wait], replies: Sequence[Any]) -> None:
        """Mark waits that failed to be checked again. `replies` ends with the replies to the waits."""
        for wait, reply in zip(waits, replies[-len(waits) :], strict=True):
            if isinstance(reply, Exception) or wait.shortfall(reply):
                self._kept.discard(wait)


def check_role(role: Any, endpoint: Endpoint) -> None:
    """Reject a server that is not the primary. After a failover, a Sentinel may name the old primary for a while.

    Raises:
        StoreUnavailable: the server is a replica, or about to become one.
        UsageError: the user may not send ROLE.
    """
    if isinstance(role, Exception):
        raise redis_errors.translate(role, "ROLE", endpoint.label)
    if role[0] != "master":
        raise StoreUnavailable(f"the Sentinels name {endpoint.label}, but it is not the primary")


def check_info(info: object, queue: Settings, endpoint: Endpoint) -> None:
    """Reject an unsuitable server by its INFO. A server whose access rules forbid INFO is accepted.

    Raises:
        UsageError: the server is too old, may evict keys, or is a cluster node.
        StoreUnavailable: the server is a read-only replica.
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
        raise UsageError(f"{where} is a cluster node, where a queue uses different keys; use the URL {url}")
    check_policy(facts.get("maxmemory_policy", ""), queue, where)
    if facts.get("role") == "slave":
        raise StoreUnavailable(f"{where} is a read-only replica; use the primary's address")


def check_policy(policy: str, queue: Settings, where: str) -> None:
    """Reject a server that may evict keys. A server whose policy is unknown is accepted.

    Raises:
        UsageError: the server may evict keys.
    """
    if policy not in ("", "noeviction") and not queue.allow_eviction:
        raise UsageError(
            f"{where} may evict keys (maxmemory-policy {policy}), and jobs with them; "
            "set it to noeviction, or pass allow_eviction=True if you can accept that"
        )


def _facts(info: object) -> dict[str, str]:
    """Return the fields of an INFO reply; none if INFO was rejected."""
    lines = info.splitlines() if isinstance(info, str) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) or _OLDEST
