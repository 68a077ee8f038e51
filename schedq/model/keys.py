"""Where things are in Redis: the key layout of the Redis documentation's job-queue guide, and our own keys.

Names and ids are held to a rule, because they become part of keys and of patterns: a `:` would let one
queue's key be another queue's job, a `*` would let a pattern reach a neighbour.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from schedq.errors import UsageError

QUEUES_KEY: Final = "schedq:queues"
"""SET of the queue names that a schedq client has used."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCHEDULE_ID = re.compile(r"[A-Za-z0-9_-]{1,48}")
_WORKER = re.compile(r"[A-Za-z0-9_-]{1,128}")


def _checked(what: str, value: object, form: re.Pattern[str], rule: str) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise UsageError(f"{what} {value!r} must be 1 to {rule}")
    return value


def checked_name(name: object) -> str:
    """Return `name` if it may name a queue.

    Raises:
        UsageError: it is not 1 to 64 of `A-Z a-z 0-9 _ . -`, the first a letter or digit.
    """
    return _checked("queue name", name, _NAME, "64 characters of A-Z a-z 0-9 _ . - and begin with a letter or digit")


def checked_id(job_id: object) -> str:
    """Return `job_id` if it may be a job's id.

    Raises:
        UsageError: it is not 1 to 64 of `A-Z a-z 0-9 _ -`.
    """
    return _checked("job id", job_id, _ID, "64 characters of A-Z a-z 0-9 _ -")


def checked_schedule_id(schedule_id: object) -> str:
    """Return `schedule_id` if it may be a schedule's id: `ID-SLOTMS` must be a job's.

    Raises:
        UsageError: it is not 1 to 48 of `A-Z a-z 0-9 _ -`.
    """
    return _checked("schedule id", schedule_id, _SCHEDULE_ID, "48 characters of A-Z a-z 0-9 _ -")


def checked_worker(worker_id: object) -> str:
    """Return `worker_id` if it may be a worker's.

    Raises:
        UsageError: it is not 1 to 128 of `A-Z a-z 0-9 _ -`.
    """
    return _checked("worker id", worker_id, _WORKER, "128 characters of A-Z a-z 0-9 _ -")


class Key(cached_property[str]):
    """A key of a queue: its prefix, and the name of the attribute, or another suffix."""

    def __init__(self, suffix: str = "") -> None:
        super().__init__(lambda keys: keys.prefix + (suffix or self.attrname))


@dataclass(frozen=True)
class QueueKeys:
    """Every key and channel of one queue.

    Attributes:
        name: the queue's name.
        tagged: put the name in braces, so that on Redis Cluster all keys of the queue share one slot.
        db: the database that holds the keys. Channels are shared by all databases, so they name it, but for 0.
    """

    name: str
    tagged: bool = False
    db: int = 0

    def __post_init__(self) -> None:
        checked_name(self.name)

    @cached_property
    def prefix(self) -> str:
        """What every key of the queue begins with."""
        return f"queue:{{{self.name}}}:" if self.tagged else f"queue:{self.name}:"

    pending = Key()
    """LIST of ids; LPUSH to add, oldest at the right."""
    processing = Key()
    """LIST of claimed ids; newest at the left."""
    completed = Key()
    """LIST of completed ids, newest first."""
    failed = Key()
    """LIST of failed ids, newest first."""
    cancelled = Key()
    """LIST of cancelled ids, newest first."""
    broken = Key()
    """LIST of JSON notes about ids that can't be run."""
    delayed = Key()
    """ZSET id → due instant, ms."""
    suspects = Key()
    """ZSET id → due instant, ms, of jobs in `delayed` that wait for a process that may have a suspect.

    A suspect lost two leases, so it may be a poison pill that kills its workers.
    """
    leases = Key()
    """ZSET id → end of the lease, ms."""
    wake = Key()
    """ZSET with one worthless member while `pending` may hold jobs."""
    stats = Key()
    """HASH of running totals."""
    log = Key()
    """STREAM of terminal moves and operators' actions, capped."""
    workers = Key()
    """ZSET worker id → last heartbeat, ms."""
    settings = Key()
    """HASH of the application's settings of this queue."""
    tasks = Key()
    """HASH task name → JSON, the options of the application's tasks that have any."""
    promoter = Key()
    """STRING, the id of the process that promotes due jobs, with a short TTL."""
    standbys = Key()
    """HASH: the processes that take over if the promoter dies, and until when each counts as alive."""
    samples = Key()
    """LIST of JSON, how the queue stood every 10 s; newest at the left, capped."""
    paused = Key()
    """STRING, present while the queue is paused: since when, ms."""
    schedules = Key()
    """ZSET schedule id → next slot, ms; +inf for one that is paused, at its end or damaged."""
    jobs = Key("job:")
    """What the key of every job's HASH begins with."""
    definitions = Key("schedule:")
    """What the key of every schedule's HASH begins with."""
    never = Key()
    """Nothing, ever. On a cluster every script names it as its last key.

    While a slot migrates its keys move one by one, and a script that builds the keys of jobs would find some of
    them gone, after its first writes. As long as that lasts Redis refuses a script up front if a key that it names
    is not there: so this one has every script wait for the end of it.
    """

    @cached_property
    def events(self) -> str:
        """Channel of JSON events."""
        return self._channel("events")

    @cached_property
    def due(self) -> str:
        """Channel of new earliest due instants, ms."""
        return self._channel("due")

    def job(self, job_id: str) -> str:
        """HASH of one job."""
        return self.jobs + job_id

    def schedule(self, schedule_id: str) -> str:
        """HASH of one schedule: its definition and how it stands."""
        return self.definitions + schedule_id

    def slots(self, schedule_id: str) -> str:
        """LIST of the last slots of one schedule, JSON, newest first."""
        return self.schedule(schedule_id) + ":slots"

    def worker(self, worker_id: str) -> str:
        """HASH of one worker, with a TTL."""
        return f"{self.prefix}worker:{worker_id}"

    def waiter(self, job_id: str) -> str:
        """Channel on which clients that wait for one job are notified of its end."""
        return self._channel("waiter:") + job_id

    def _channel(self, suffix: str) -> str:
        # Behind the queue's prefix, so that access rules for its channels hold in every database.
        return f"{self.prefix}db{self.db}:{suffix}" if self.db else self.prefix + suffix
