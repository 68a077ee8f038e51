"""What is asked of a server before a queue uses it: whether it can be trusted with jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schedq.connection import faults
from schedq.connection.place import Place, joined
from schedq.durability import Wait
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
    facts = _facts(info)
    where = place.label
    version = facts.get("valkey_version") or facts.get("redis_version", "")
    if "valkey_version" not in facts and _parts(version) < _OLDEST:
        raise UsageError(f"{where} is Redis {version}; schedq needs Redis 6.2 or later, or Valkey")
    if facts.get("cluster_enabled") == "1" and not queue.tagged:
        raise UsageError(f"{where} is a cluster node, where a queue needs other keys; write {_as_cluster(place)}")
    judge_policy(facts.get("maxmemory_policy", ""), queue, where)
    if facts.get("role") == "slave":
        raise StoreUnavailable(f"{where} is a read-only replica; use the primary's address")


def judge_policy(policy: str, queue: Settings, where: str) -> None:
    """Refuse a server that may evict keys; one that does not say is no reason to.

    Raises:
        UsageError: it may.
    """
    if policy not in ("", "noeviction") and not queue.allow_eviction:
        raise UsageError(
            f"{where} may evict keys (maxmemory-policy {policy}), and jobs with them; "
            "set it to noeviction, or pass allow_eviction=True if you can bear that"
        )


def trials(waits: Sequence[Wait]) -> list[tuple[str | int, ...]]:
    """What to ask before the first write that is to be waited for."""
    return [("INFO",), ("CONFIG", "GET", "appendfsync"), *(wait.trial for wait in waits)] if waits else []


def judge_waits(waits: Sequence[Wait], replies: Sequence[Any], place: Place) -> None:
    """Refuse a server that can't keep these waits; nothing was sent to it so far.

    Raises:
        UsageError: it does not know the command, the user may not send it, or nothing goes to a disk there.
        StoreUnavailable: too few replicas.
    """
    if not waits:
        return
    info, policy, *tried = replies
    facts = _facts(info)
    if isinstance(policy, list) and len(policy) == 2:
        facts["appendfsync"] = policy[1]
    for wait, reply in zip(waits, tried, strict=True):
        what = f"durability={wait.durability!r}"
        if isinstance(reply, Exception) and "unknown command" in str(reply).lower():
            raise UsageError(
                f"{what}: {place.label} has no WAITAOF, which Redis 7.2 and Valkey have; nothing was stored: use "
                "durability='replicated', or 'memory' and appendfsync always there"
            )
        if isinstance(reply, Exception):
            raise faults.named(reply, what, place)
        wait.judge(facts, place.label)


def not_kept(waits: Sequence[Wait], replies: Sequence[Any]) -> set[Wait]:
    """The waits that were not kept, by the replies that end in theirs: the server is to be looked at anew."""
    ended = replies[len(replies) - len(waits) :]
    return {
        wait for wait, reply in zip(waits, ended, strict=True) if isinstance(reply, Exception) or wait.shortfall(reply)
    }


def _facts(info: object) -> dict[str, str]:
    """An INFO by its lines; nothing of one that was refused."""
    lines = info.splitlines() if isinstance(info, str) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _as_cluster(place: Place) -> str:
    host, port = place.settings.get("host", "HOST"), place.settings.get("port", "PORT")
    return f"{place.scheme}+cluster://{joined(host, port)}"


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) or _OLDEST
