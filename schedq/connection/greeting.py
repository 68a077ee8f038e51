"""What is asked of a server before a queue uses it: whether it can be trusted with jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schedq.connection import faults
from schedq.connection.place import Place, joined
from schedq.errors import StoreUnavailable, UsageError
from schedq.keys import QUEUES_KEY
from schedq.settings import Settings

_OLDEST = (6, 2)


def commands(queue: Settings, place: Place, *, is_known: bool) -> list[tuple[str, ...]]:
    """What to send on a new connection.

    The role where it can't be taken for granted; and, to a server that is not known yet, for its own account and this
    queue's name for the list of queues (which a cluster has on another node: see `Address.enlist`). Who only looks
    leaves no name there: it may be a mistyped one.
    """
    asked: list[tuple[str, ...]] = [("ROLE",)] if place.must_show_role else []
    if not is_known:
        asked.append(("INFO",))
        if queue.listed and not queue.tagged:
            asked.append(("SADD", QUEUES_KEY, queue.name))
    return asked


def judge(asked: Sequence[tuple[str, ...]], replies: Sequence[Any], queue: Settings, place: Place) -> None:
    """Refuse a server that would lose jobs, can't run the scripts or is not the primary.

    Raises:
        UsageError, StoreUnavailable: it is refused; or it does not say its role, and must.
    """
    for (command, *_), reply in zip(asked, replies, strict=True):
        if command == "ROLE":
            judge_role(reply, place)
        elif command == "INFO":
            judge_info(reply, queue, place)


def judge_role(role: Any, place: Place) -> None:
    """Refuse what is no primary: a Sentinel names the old one for a while after a failover.

    Raises:
        StoreUnavailable: it is a replica, or about to become one.
        UsageError: the user may not ask.
    """
    if isinstance(role, Exception):
        raise faults.named(role, "ROLE", place)
    if role[0] != "master":
        raise StoreUnavailable(f"{place.label} is named by the Sentinels and is not the primary")


def judge_info(info: object, queue: Settings, place: Place) -> None:
    """Refuse a server by its own account. One that was refused (by the server's access rules) is no reason to.

    Raises:
        UsageError: too old, may evict keys, or a cluster node.
        StoreUnavailable: a read-only replica.
    """
    if not isinstance(info, str):
        return
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    where = place.label
    version = facts.get("valkey_version") or facts.get("redis_version", "")
    if "valkey_version" not in facts and _parts(version) < _OLDEST:
        raise UsageError(f"{where} is Redis {version}; schedq needs Redis 6.2 or later, or Valkey")
    if facts.get("cluster_enabled") == "1" and not queue.tagged:
        raise UsageError(f"{where} is a cluster node, where a queue needs other keys; write {_as_cluster(place)}")
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and not queue.allow_eviction:
        raise UsageError(
            f"{where} may evict keys (maxmemory-policy {policy}), and jobs with them; "
            "set it to noeviction, or pass allow_eviction=True if you can bear that"
        )
    if facts.get("role") == "slave":
        raise StoreUnavailable(f"{where} is a read-only replica; use the primary's address")


def _as_cluster(place: Place) -> str:
    host, port = place.settings.get("host", "HOST"), place.settings.get("port", "PORT")
    return f"{place.scheme}+cluster://{joined(host, port)}"


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) or _OLDEST
