"""Access rules: what a Redis user needs to produce jobs, to work on them, or only to look.

Commands inside scripts are checked against the caller's rules, so a role names those too. Whoever may EVAL may do
with the role's commands to the role's keys whatever they can do; roles keep apart hosts, not the code on one.
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
        what: what it is for, in a sentence.
        scripts: the moves that it makes.
        plain: commands that it sends by themselves.
        inside: commands that its scripts call.
        looks_around: it also lists keys, where it may see every queue: who may do that learns the names of all keys.
    """

    name: str
    what: str
    scripts: frozenset[str]
    plain: frozenset[str]
    inside: frozenset[str]
    looks_around: bool = False

    def commands(self, queue: str = EVERY_QUEUE) -> tuple[str, ...]:
        """Every command that it may send, or have its scripts call; in order."""
        found = _CONNECTING | _SCRIPTS | _LISTENING | self.plain | self.inside
        return tuple(sorted(found | {"scan"} if self.looks_around and queue == EVERY_QUEUE else found))

    def rules(self, queue: str = EVERY_QUEUE, *, tagged: bool = False) -> str:
        """The rules for ACL SETUSER, for one queue or for every; the user's passwords stay as they are.

        Args:
            queue: its name, or `EVERY_QUEUE`.
            tagged: keys as a cluster has them, see `QueueKeys`.

        Raises:
            UsageError: the name can't be one of a queue.
        """
        allowed = " ".join(f"+{command}" for command in self.commands(queue))
        if queue != EVERY_QUEUE:
            queue = f"{{{checked_name(queue)}}}:*" if tagged else f"{checked_name(queue)}:*"
        return f"resetkeys ~queue:{queue} ~{QUEUES_KEY} resetchannels &queue:{queue} -@all {allowed}"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PRODUCER: Final = Role(
    "producer",
    "puts jobs into queues, waits for their results, cancels them",
    scripts=_words("enqueue watch cancel"),
    plain=_words("exists hgetall sadd"),
    inside=_words(
        "exists hdel hincrby hmget hset lindex llen lpos lpush lrange lrem ltrim persist publish time type unlink"
        " xadd zadd zcard zrange zrem zscore"
    ),
)
WORKER: Final = Role(
    "worker",
    "runs jobs, wakes and takes back those of others, and does what a producer does",
    scripts=PRODUCER.scripts
    | _words("claim delete_schedule deregister fire heartbeat promote reclaim recover")
    | _words("renew sample scan_schedules settle stats upsert wake write_settings"),
    plain=PRODUCER.plain | _words("bzpopmin zrevrange"),  # the latter: which tasks other workers have
    inside=PRODUCER.inside
    | _words("del get hexists hget hgetall hlen info lmove lpop lset pexpire pttl rpop rpush set")
    | _words("zcount zrangebyscore zremrangebyscore"),
)
VIEWER: Final = Role(
    "viewer",
    "looks and changes nothing: totals, rates, lists of jobs, events, most of what the doctor asks",
    scripts=_words("find page stats summarize why"),
    plain=_words(
        "dbsize exists get hget hgetall hmget llen lpos lrange pttl script|exists smembers time type xlen"
        " xrange xrevrange zcard zcount zrange zrangebyscore zrevrange zscore"
    ),
    inside=_words(
        "exists get hgetall hlen hmget lindex llen lpos lrange pttl time type zcard zcount zrange zrank zscore"
    ),
    looks_around=True,
)
ROLES: Final = {role.name: role for role in (PRODUCER, WORKER, VIEWER)}


def setuser(role: Role, queue: str = EVERY_QUEUE, *, user: str | None = None, tagged: bool = False) -> str:
    """The line for redis-cli that makes such a user, or brings one up to date; a password is given by another.

    Raises:
        UsageError: as `Role.rules`.
    """
    name = user or f"{'schedq' if queue == EVERY_QUEUE else queue}-{role.name}"
    return f"ACL SETUSER {name} on {role.rules(queue, tagged=tagged)}"
