"""Access rules: the commands that a Redis user needs to produce jobs, to run them, or only to read.

Redis checks commands inside scripts against the caller's rules, so a role includes those too. A user with EVAL can run
any of the role's commands on any of its keys, so roles separate hosts from each other, not programs on one host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from schedq.model.keys import QUEUES_KEY, checked_name

EVERY_QUEUE: Final = "*"

_CONNECTING: Final = frozenset({"client|setname", "cluster|slots", "info", "ping", "role", "select"})
_SCRIPTS: Final = frozenset({"eval", "evalsha"})
_LISTENING: Final = frozenset({"subscribe", "unsubscribe"})


@dataclass(frozen=True, slots=True)
class Role:
    """What one kind of process may do.

    Attributes:
        name: producer, worker or viewer.
        what: its purpose, in words.
        scripts: names of the Lua scripts that it runs.
        plain: commands that it sends directly.
        inside: commands that its scripts call.
        looks_around: it may also SCAN if it may see every queue; SCAN reveals the names of all keys of the server.
        tells_others: it may tell the promoters of other queues that something is due.
    """

    name: str
    what: str
    scripts: frozenset[str]
    plain: frozenset[str]
    inside: frozenset[str]
    looks_around: bool = False
    tells_others: bool = False

    def commands(self, queue: str = EVERY_QUEUE) -> tuple[str, ...]:
        """Every command that it may send or call from its scripts, sorted."""
        found = _CONNECTING | _SCRIPTS | _LISTENING | self.plain | self.inside
        return tuple(sorted(found | {"scan"} if self.looks_around and queue == EVERY_QUEUE else found))

    def rules(self, queue: str = EVERY_QUEUE, *, tagged: bool = False) -> str:
        """The rules for ACL SETUSER, for one queue or all of them; they leave the user's passwords unchanged.

        Args:
            queue: its name, or `EVERY_QUEUE`.
            tagged: use the key names of a cluster, see `QueueKeys`.

        Raises:
            UsageError: the queue name is invalid.
        """
        allowed = " ".join(f"+{command}" for command in self.commands(queue))
        if queue != EVERY_QUEUE:
            queue = f"{{{checked_name(queue)}}}:*" if tagged else f"{checked_name(queue)}:*"
        # The end of a job may wake a workflow of another queue.
        due = " &queue:*:due" if self.tells_others and queue != EVERY_QUEUE else ""
        # On a cluster shard channels are used, too. Redis 6.2 lacks their commands, so rules can't name these.
        allowed += " +@pubsub" if tagged else ""
        return f"resetkeys ~queue:{queue} ~{QUEUES_KEY} resetchannels &queue:{queue}{due} -@all {allowed}"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PRODUCER: Final = Role(
    "producer",
    "puts jobs into queues, waits for their results, sends them messages, cancels them",
    scripts=_words("enqueue enqueue_unique watch cancel send cancel_group fill_group"),
    plain=_words("exists hgetall hmget llen lrange sadd zrange"),
    inside=_words(
        "bitcount exists getbit hdel hexists hget hincrby hlen hmget hrandfield hset hsetnx lindex llen lpos lpush"
        " lrange lrem ltrim persist pexpire publish rpush setbit time type unlink xadd zadd zcard zlexcount zmscore"
        " zrange zrem zscore"
    ),
)
WORKER: Final = Role(
    "worker",
    "runs jobs, promotes and reclaims them, and does what a producer does",
    scripts=PRODUCER.scripts
    | _words("advance claim count_tasks define_gate delete_schedule deregister fire heartbeat promote reclaim recover")
    | _words("add_undo failed_try receive start_over step until")
    | _words("renew sample scan_schedules settle stats upsert wake wake_runs write_settings"),
    plain=PRODUCER.plain | _words("bzpopmin zadd zrevrange"),  # zrevrange: to see which tasks other workers have
    inside=PRODUCER.inside
    | _words("bitpos del get hgetall info lmove lpop lset pttl rpop set")
    | _words("xinfo xrevrange zcount zrangebyscore zremrangebyrank zremrangebyscore"),
    tells_others=True,
)
VIEWER: Final = Role(
    "viewer",
    "reads without changing anything: totals, rates, lists of jobs, events, most of what the doctor checks",
    scripts=_words("find gates open_batches page stats summarize why why_gate"),
    plain=_words(
        "bitfield_ro bitpos dbsize exists get hget hgetall hmget llen lpos lrange pttl script|exists smembers time type"
        " xlen xrange xrevrange zcard zcount zrange zrangebyscore zrevrange zscore"
    ),
    inside=_words(
        "exists get hget hgetall hlen hmget hscan lindex llen lpos lrange pttl time type zcard zcount zlexcount zrange"
        " zrank zscore"
    ),
    looks_around=True,
)
ROLES: Final = {role.name: role for role in (PRODUCER, WORKER, VIEWER)}


def setuser(role: Role, queue: str = EVERY_QUEUE, *, user: str | None = None, tagged: bool = False) -> str:
    """The line for redis-cli that creates or updates a user with this role; passwords are set separately.

    Raises:
        UsageError: see `Role.rules`.
    """
    name = user or f"{'schedq' if queue == EVERY_QUEUE else queue}-{role.name}"
    return f"ACL SETUSER {name} on {role.rules(queue, tagged=tagged)}"
