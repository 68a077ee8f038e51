"""Where things are in Redis: the key layout of the Redis documentation's job-queue guide, and ours beside it.

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


def checked_name(name: object) -> str:
    """Return `name` if it may name a queue.

    Raises:
        UsageError: it is not 1 to 64 of `A-Z a-z 0-9 _ . -`, the first a letter or digit.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"queue name {name!r} must be 1 to 64 characters of A-Z a-z 0-9 _ . - and begin with a letter or digit"
        )
    return name


def checked_id(job_id: object) -> str:
    """Return `job_id` if it may be a job's id.

    Raises:
        UsageError: it is not 1 to 64 of `A-Z a-z 0-9 _ -`.
    """
    if not isinstance(job_id, str) or not _ID.fullmatch(job_id):
        raise UsageError(f"job id {job_id!r} must be 1 to 64 characters of A-Z a-z 0-9 _ -")
    return job_id


def checked_schedule_id(schedule_id: object) -> str:
    """Return `schedule_id` if it may be a schedule's id: `ID-SLOTMS` must be a job's.

    Raises:
        UsageError: it is not 1 to 48 of `A-Z a-z 0-9 _ -`.
    """
    if not isinstance(schedule_id, str) or not _SCHEDULE_ID.fullmatch(schedule_id):
        raise UsageError(f"schedule id {schedule_id!r} must be 1 to 48 characters of A-Z a-z 0-9 _ -")
    return schedule_id


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

    def _key(self, suffix: str) -> str:
        return self.prefix + suffix

    def _channel(self, suffix: str) -> str:
        # Behind the queue's prefix, so that access rules for its channels hold in every database.
        return self._key(f"db{self.db}:{suffix}" if self.db else suffix)

    @cached_property
    def pending(self) -> str:
        """LIST of ids; LPUSH to add, oldest at the right."""
        return self._key("pending")

    @cached_property
    def processing(self) -> str:
        """LIST of claimed ids; newest at the left."""
        return self._key("processing")

    @cached_property
    def completed(self) -> str:
        """LIST of completed ids, newest first."""
        return self._key("completed")

    @cached_property
    def failed(self) -> str:
        """LIST of failed ids, newest first."""
        return self._key("failed")

    @cached_property
    def cancelled(self) -> str:
        """LIST of cancelled ids, newest first."""
        return self._key("cancelled")

    @cached_property
    def broken(self) -> str:
        """LIST of JSON notes about ids that can't be run."""
        return self._key("broken")

    @cached_property
    def delayed(self) -> str:
        """ZSET id → due instant, ms."""
        return self._key("delayed")

    @cached_property
    def suspects(self) -> str:
        """ZSET id → due instant, ms, of jobs in `delayed` that wait for a process that may have a suspect."""
        return self._key("suspects")

    @cached_property
    def leases(self) -> str:
        """ZSET id → end of the lease, ms."""
        return self._key("leases")

    @cached_property
    def wake(self) -> str:
        """ZSET with one worthless member while `pending` may hold jobs."""
        return self._key("wake")

    @cached_property
    def stats(self) -> str:
        """HASH of running totals."""
        return self._key("stats")

    @cached_property
    def log(self) -> str:
        """STREAM of terminal moves and operators' actions, capped."""
        return self._key("log")

    @cached_property
    def workers(self) -> str:
        """ZSET worker id → last heartbeat, ms."""
        return self._key("workers")

    @cached_property
    def settings(self) -> str:
        """HASH of the application's settings of this queue."""
        return self._key("settings")

    @cached_property
    def tasks(self) -> str:
        """HASH task name → JSON, the options of the application's tasks that have any."""
        return self._key("tasks")

    @cached_property
    def promoter(self) -> str:
        """STRING, the id of the process that does the waking, with a short TTL."""
        return self._key("promoter")

    @cached_property
    def standbys(self) -> str:
        """HASH: who takes over if the promoter dies, and until when each is believed to live."""
        return self._key("standbys")

    @cached_property
    def samples(self) -> str:
        """LIST of JSON, how the queue stood every 10 s; newest at the left, capped."""
        return self._key("samples")

    @cached_property
    def paused(self) -> str:
        """STRING, present while the queue is paused: since when, ms."""
        return self._key("paused")

    @cached_property
    def schedules(self) -> str:
        """ZSET schedule id → next slot, ms; +inf for one that is paused, at its end or damaged."""
        return self._key("schedules")

    @cached_property
    def definitions(self) -> str:
        """What the key of every schedule's HASH begins with."""
        return self._key("schedule:")

    @cached_property
    def never(self) -> str:
        """Nothing, ever. On a cluster every script names it as its last key.

        While a slot migrates its keys move one by one, and a script that builds the keys of jobs would find some of
        them gone, after its first writes. As long as that lasts Redis refuses a script up front if a key that it names
        is not there: so this one has every script wait for the end of it.
        """
        return self._key("never")

    @cached_property
    def events(self) -> str:
        """Channel of JSON events."""
        return self._channel("events")

    @cached_property
    def due(self) -> str:
        """Channel of new earliest due instants, ms."""
        return self._channel("due")

    @cached_property
    def jobs(self) -> str:
        """What the key of every job's HASH begins with."""
        return self._key("job:")

    def job(self, job_id: str) -> str:
        """HASH of one job."""
        return self.jobs + job_id

    def schedule(self, schedule_id: str) -> str:
        """HASH of one schedule: its definition and how it stands."""
        return self.definitions + schedule_id

    def slots(self, schedule_id: str) -> str:
        """LIST of the last slots of one schedule, JSON, newest first."""
        return self.definitions + schedule_id + ":slots"

    def worker(self, worker_id: str) -> str:
        """HASH of one worker, with a TTL."""
        return self._key("worker:") + worker_id

    def waiter(self, job_id: str) -> str:
        """Channel on which those who wait for one job hear of its end."""
        return self._channel("waiter:") + job_id
