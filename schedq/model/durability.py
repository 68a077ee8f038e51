"""How durable a new job is before `enqueue` returns: what the server is asked, and whether it can.

What replicas and disks have is asked behind the write, on its connection: WAIT and WAITAOF speak of what that very
connection wrote, on that very server. After a failover another connection would learn of another server's writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from schedq.errors import StoreUnavailable, UsageError

Durability = Literal["memory", "replicated", "fsync"]
"""`memory`: the primary has it; `replicated`: so many replicas have it too; `fsync`: the primary's disk has it."""
LEVELS: Final[tuple[Durability, ...]] = get_args(Durability)
_LEAST_S: Final = 1.0


def checked_durability(value: object) -> Durability:
    """Return `value` if it may be a `durability`.

    Raises:
        UsageError: it is none of `LEVELS`.
    """
    if value not in LEVELS:
        raise UsageError(f"durability must be 'memory', 'replicated' or 'fsync', got {value!r:.80}")
    return value


@dataclass(frozen=True, slots=True)
class Wait:
    """What must hold of a write before its client gets the answer.

    Attributes:
        durability: replicated or fsync.
        replicas: how many must have the write, if replicated.
        most_ms: how long the server may take to say so; more than 0, which would mean without limit.
    """

    durability: Durability
    replicas: int
    most_ms: int

    @classmethod
    def of(cls, durability: Durability, replicas: int, retry_for: float) -> Wait:
        """The wait for a caller whose patience is `retry_for` seconds; a second is the least that a disk needs."""
        return cls(durability, replicas if durability == "replicated" else 0, round(1000 * max(_LEAST_S, retry_for)))

    @property
    def most_s(self) -> float:
        """`most_ms` in seconds."""
        return self.most_ms / 1000

    @property
    def command(self) -> tuple[str | int, ...]:
        """What to send behind the write, on the same connection."""
        if self.durability == "fsync":
            return ("WAITAOF", 1, 0, self.most_ms)
        return ("WAIT", self.replicas, self.most_ms)

    @property
    def probe(self) -> tuple[str | int, ...]:
        """The same command, waiting for nobody: whether the server knows it, and the user may send it."""
        return ("WAITAOF", 0, 0, 1) if self.durability == "fsync" else ("WAIT", 0, 1)

    def shortfall(self, reply: Any) -> str:
        """What is missing, by the reply to `command`; '' if nothing is."""
        within = f"within {self.most_s:g} s (durability={self.durability!r})"
        if self.durability == "fsync":
            return "" if int(reply[0]) >= 1 else f"the disk did not confirm it {within}"
        had = int(reply)
        return "" if had >= self.replicas else f"{had} of {self.replicas} replicas confirmed it {within}"

    def check(self, facts: Mapping[str, str], where: str) -> None:
        """Refuse a server that can't keep it, before anything is stored there.

        Args:
            facts: its own account, INFO, and its `appendfsync`; what it does not tell is not there.
            where: it, for messages.

        Raises:
            UsageError: nothing goes to a disk there, or nobody can tell when.
            StoreUnavailable: too few replicas at the moment.
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
    """Why WAITAOF says nothing of the disk there, and the way out; '' if it does."""
    policy = facts.get("appendfsync", "")
    if facts.get("aof_enabled") == "0":
        return "keeps no append-only file: set appendonly yes and appendfsync always there"
    if policy == "no":
        return "leaves it to the kernel when the disk gets what (appendfsync no): set appendfsync always there"
    # With everysec these answer WAITAOF up to a second before the disk is asked: as soon as the write has left
    # the buffer. Fixed in Redis 8.0. Source: redis/redis pull request 13793; seen by strace on Valkey 9.1, and 8.1
    # replies as early.
    if policy != "always" and ("valkey_version" in facts or facts.get("redis_version", "").startswith("7.4.")):
        told = f"appendfsync {policy}" if policy else "its appendfsync is not to be seen"
        return f"may answer WAITAOF up to a second before the disk has the write ({told}): set appendfsync always there"
    return ""
