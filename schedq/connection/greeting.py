"""What is asked of a server once, before a queue uses it: whether it can be trusted with jobs."""

from __future__ import annotations

from schedq.connection.address import Address
from schedq.errors import StoreUnavailable, UsageError
from schedq.keys import QUEUES_KEY
from schedq.settings import Settings

_OLDEST = (6, 2)


def commands(queue: Settings) -> list[tuple[str, ...]]:
    """What to send: the server's own account, and this queue's name for the list of queues.

    Who only looks leaves no name there: it may be a mistyped one.
    """
    return [("INFO",), ("SADD", QUEUES_KEY, queue.name) if queue.listed else ("PING",)]


def judge(info: object, queue: Settings, address: Address) -> None:
    """Refuse a server that would lose jobs or can't run the scripts.

    An INFO that was refused (by the server's access rules) is no reason to.

    Raises:
        UsageError: too old, may evict keys, or a cluster node.
        StoreUnavailable: a read-only replica, or still loading.
    """
    if not isinstance(info, str):
        return
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    where = address.label
    version = facts.get("valkey_version") or facts.get("redis_version", "")
    if "valkey_version" not in facts and _parts(version) < _OLDEST:
        raise UsageError(f"{where} is Redis {version}; schedq needs Redis 6.2 or later, or Valkey")
    if facts.get("cluster_enabled") == "1":
        raise UsageError(
            f"{where} is a cluster node, which needs hash-tagged keys; this URL scheme is for single servers"
        )
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and not queue.allow_eviction:
        raise UsageError(
            f"{where} may evict keys (maxmemory-policy {policy}), and jobs with them; "
            "set it to noeviction, or pass allow_eviction=True if you can bear that"
        )
    if facts.get("loading", "0") != "0":
        raise StoreUnavailable(f"{where} is still loading its data")
    if facts.get("role") == "slave":
        raise StoreUnavailable(f"{where} is a read-only replica; use the primary's address")


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) or _OLDEST
