"""How durable a new job is before `enqueue` returns: which command confirms it, and whether the server can.

WAIT and WAITAOF only cover writes of their own connection, so they follow the write on the same connection. After a
failover, another connection would confirm the writes of another server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from schedq.errors import StoreUnavailable, UsageError

Durability = Literal["memory", "replicated", "fsync"]
"""Where it is: `memory`: on the primary; `replicated`: also on `replicas` replicas; `fsync`: on the primary's disk."""
LEVELS: Final[tuple[Durability, ...]] = get_args(Durability)
_LEAST_S: Final = 1.0


def checked_durability(value: object) -> Durability:
    """Return `value` if it is a valid `durability`.

    Raises:
        UsageError: it is not one of `LEVELS`.
    """
    if value not in LEVELS:
        raise UsageError(f"durability must be 'memory', 'replicated' or 'fsync', got {value!r:.80}")
    return value


@dataclass(frozen=True, slots=True)
class Wait:
    """What must be confirmed about a write before its client gets the reply.

    Attributes:
        durability: replicated or fsync.
        replicas: how many replicas must have the write, if replicated.
        most_ms: how long the server may take to confirm; never 0, which would mean no limit.
    """

    durability: Durability
    replicas: int
    most_ms: int

    @classmethod
    def of(cls, durability: Durability, replicas: int, retry_for: float) -> Wait:
        """The wait for a caller that retries for `retry_for` seconds, but at least a second, because disks are slow."""
        return cls(durability, replicas if durability == "replicated" else 0, round(1000 * max(_LEAST_S, retry_for)))

    @property
    def most_s(self) -> float:
        """`most_ms` in seconds."""
        return self.most_ms / 1000

    @property
    def command(self) -> tuple[str | int, ...]:
        """The command to send after the write, on the same connection."""
        if self.durability == "fsync":
            return ("WAITAOF", 1, 0, self.most_ms)
        return ("WAIT", self.replicas, self.most_ms)

    @property
    def probe(self) -> tuple[str | int, ...]:
        """The same command without a wait; shows whether the server knows it and the user may send it."""
        return ("WAITAOF", 0, 0, 1) if self.durability == "fsync" else ("WAIT", 0, 1)

    def shortfall(self, reply: Any) -> str:
        """What is missing according to the reply to `command`; '' if nothing is."""
        within = f"within {self.most_s:g} s (durability={self.durability!r})"
        if self.durability == "fsync":
            return "" if int(reply[0]) >= 1 else f"the disk did not confirm it {within}"
        had = int(reply)
        return "" if had >= self.replicas else f"{had} of {self.replicas} replicas confirmed it {within}"

    def check(self, facts: Mapping[str, str], where: str) -> None:
        """Refuse a server that can't confirm this, before anything is stored there.

        Args:
            facts: the server's INFO fields and its `appendfsync`, as far as it reports them.
            where: the server, for messages.

        Raises:
            UsageError: the server writes nothing to disk, or does not report when.
            StoreUnavailable: it has too few replicas at the moment.
        """
        if self.durability == "fsync":
            why = _no_disk(facts)
            if why:
                raise UsageError(
                    f"durability='fsync': {where} {why}, or use durability='replicated' or 'memory'; nothing was stored"
                )
            return
        there = facts.get("connected_slaves", "")
        if there.isdigit() and int(there) < self.replicas:
            raise StoreUnavailable(
                f"durability='replicated': {where} has {there} of {self.replicas} replicas; nothing was stored: "
                "bring replicas up, ask for fewer (replicas=), or use durability='memory'"
            )


def _no_disk(facts: Mapping[str, str]) -> str:
    """Why WAITAOF does not confirm disk writes there, and what to do about it; '' if it does."""
    policy = facts.get("appendfsync", "")
    if facts.get("aof_enabled") == "0":
        return "keeps no append-only file: set appendonly yes and appendfsync always there"
    if policy == "no":
        return "lets the kernel decide when to write to disk (appendfsync no): set appendfsync always there"
    # With everysec these versions reply to WAITAOF as soon as the write has left the buffer, up to a second before
    # fsync. Fixed in Redis 8.0. Source: redis/redis pull request 13793; seen with strace on Valkey 9.1, and 8.1
    # replies as early.
    if policy != "always" and ("valkey_version" in facts or facts.get("redis_version", "").startswith("7.4.")):
        known = f"appendfsync {policy}" if policy else "its appendfsync is unknown"
        return f"may confirm WAITAOF up to a second before the write is on disk ({known}): set appendfsync always there"
    return ""
