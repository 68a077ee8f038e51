"""Keys in Redis: the layout of the Redis documentation's job-queue guide, and additional keys of schedq.

Names and ids are restricted because they become part of keys and patterns: with a `:`, a key of one queue could be
a job of another; with a `*`, a pattern could match another queue's keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from schedq.errors import UsageError
from schedq.model.cached_property import cached_property

QUEUES_KEY: Final = "schedq:queues"
"""SET of the queue names that schedq clients have used."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCHEDULE_ID = re.compile(r"[A-Za-z0-9_-]{1,48}")
_WORKER = re.compile(r"[A-Za-z0-9_-]{1,128}")


def _checked(what: str, value: object, form: re.Pattern[str], rule: str) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise UsageError(f"{what} {value!r} must be 1 to {rule}")
    return value


def checked_name(name: object) -> str:
    """Return `name` if it is a valid queue name.

    Raises:
        UsageError: it is not 1 to 64 of `A-Z a-z 0-9 _ . -`, the first a letter or digit.
    """
    return _checked("queue name", name, _NAME, "64 characters of A-Z a-z 0-9 _ . - and begin with a letter or digit")


def checked_id(job_id: object) -> str:
    """Return `job_id` if it is a valid job id.

    Raises:
        UsageError: it is not 1 to 64 of `A-Z a-z 0-9 _ -`.
    """
    return _checked("job id", job_id, _ID, "64 characters of A-Z a-z 0-9 _ -")


def checked_schedule_id(schedule_id: object) -> str:
    """Return `schedule_id` if it is valid, so that `ID-SLOTMS` is a valid job id.

    Raises:
        UsageError: it is not 1 to 48 of `A-Z a-z 0-9 _ -`.
    """
    return _checked("schedule id", schedule_id, _SCHEDULE_ID, "48 characters of A-Z a-z 0-9 _ -")


def checked_worker(worker_id: object) -> str:
    """Return `worker_id` if it is a valid worker id.

    Raises:
        UsageError: it is not 1 to 128 of `A-Z a-z 0-9 _ -`.
    """
    return _checked("worker id", worker_id, _WORKER, "128 characters of A-Z a-z 0-9 _ -")


class Key(cached_property[str]):
    """A key of a queue: the queue's prefix, then the attribute's name or another suffix."""

    def __init__(self, suffix: str = "") -> None:
        super().__init__(lambda keys: keys.prefix + self.suffix)
        self._suffix = suffix

    @property
    def suffix(self) -> str:
        """What follows the queue's prefix."""
        return self._suffix or self.name


@dataclass(frozen=True)
class QueueKeys:
    """Every key and channel of one queue.

    Attributes:
        name: the queue's name.
        tagged: put the name in braces, so that on Redis Cluster all keys of the queue share one slot.
        db: the database that holds the keys. Databases share channels, so channel names contain it unless it is 0.
    """

    name: str
    tagged: bool = False
    db: int = 0

    def __post_init__(self) -> None:
        checked_name(self.name)

    @cached_property
    def prefix(self) -> str:
        """Prefix of every key of the queue."""
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
    """LIST of JSON notes about jobs that can't be run."""
    delayed = Key()
    """ZSET id → due instant, ms."""
    suspects = Key()
    """ZSET id → due instant, ms, of suspects in `delayed` that wait for a process that may take one.

    A suspect lost two leases, so it may be a poison pill that kills its workers.
    """
    leases = Key()
    """ZSET id → end of the lease, ms."""
    wake = Key()
    """The wake marker: a ZSET with one meaningless member while `pending` may hold jobs; claimers block on it."""
    wake_held = Key()
    """The wake marker of claimers that take every task, while `held` may hold jobs for them; has a TTL."""
    wakes = Key("wake:")
    """Prefix of the wake markers of claimers that are limited to some tasks, by task; they have TTLs."""
    stats = Key()
    """HASH of running totals."""
    log = Key()
    """STREAM of finished jobs and operators' actions, capped."""
    workers = Key()
    """ZSET worker id → last heartbeat, ms."""
    worker_keys = Key("worker:")
    """Prefix of the hashes of workers."""
    settings = Key()
    """HASH of the queue's settings, as the application has them."""
    tasks = Key()
    """HASH task name → JSON with the task's options, if it has any."""
    promoter = Key()
    """STRING with the id of the process that promotes due jobs; has a short TTL."""
    standbys = Key()
    """HASH of the processes that take over if the promoter dies, and until when each counts as alive."""
    asleep = Key()
    """HASH that exists while the promoter rests: the `channel` on which it is called when a worker is woken."""
    task_stats = Key()
    """HASH of what workers count of each task: `t:TASK` for all time, `hMS:TASK` and `mMS:TASK` for the hour and the
    five minutes that begin at that instant; values as in `model/task_stats.py`."""
    samples = Key()
    """LIST of JSON samples of the queue, one every 10 s; newest at the left, capped."""
    paused = Key()
    """STRING that exists while the queue is paused: since when, ms."""
    paused_tasks = Key()
    """HASH of the paused tasks: name → since when, ms."""
    held = Key()
    """ZSET id → position of pending jobs that claims have put out of the way of others; see `shared/lanes.lua`."""
    lanes = Key()
    """HASH of the numbers of the lanes of tasks in `held`."""
    gates = Key()
    """HASH of the limits of gates as JSON: `GATE` → those in force, `GATE code` and `GATE set` → whose they are. The
    queue's own limits have the name ''. See `shared/gates.lua`."""
    open_gates = Key()
    """ZSET gate → tag of its turn, of gates that may start a job now."""
    resting = Key()
    """ZSET `GATE KEY`, or `GATE` → instant, ms, at which to look again."""
    gate_holds = Key()
    """ZSET `GATE KEY`, or `GATE` → instant, ms, until which it starts nothing; +inf if it is paused."""
    gate_turns = Key()
    """HASH gate → the tags of the last start and the last entrant, and its own tag."""
    gate_keys = Key("gate:")
    """Prefix of the keys of gates: `NAME:ready`, `NAME:running`, `NAME:tags` and `NAME:rates`, all ZSETs."""
    groups = Key()
    """ZSET group → instant of the next attention, ms: 0 for now; for one that has ended, when it is deleted."""
    group_keys = Key("group:")
    """Prefix of the keys of groups: `NAME`, a HASH, and `NAME:` with `items`, `counted`, `succeeded`, `failed` or
    `results:N` behind it."""
    undos = Key()
    """ZSET id → instant, ms, of the next look at a run that has steps to undo."""
    unique_keys = Key()
    """HASH unique key → end of its window, ms or 0, and the id of the job whose record may hold it."""
    schedules = Key()
    """ZSET schedule id → next slot, ms; +inf if it is paused, has ended or is damaged."""
    jobs = Key("job:")
    """Prefix of the keys of the jobs' HASHes."""
    definitions = Key("schedule:")
    """Prefix of the keys of the schedules' HASHes."""
    never = Key()
    """Never exists. On a cluster every script names it as its last key.

    While a slot migrates, its keys move one by one, and a script that computes the keys of jobs would find some of
    them gone after its first writes. During a migration Redis refuses a script up front if a key it names does not
    exist. So with this key, no script runs until the migration is over.
    """

    def wakes_of(self, only: Iterable[str] | None = None) -> tuple[str, ...]:
        """The wake markers of claimers that take these tasks, with '' for payloads that call no task; None for all."""
        return (self.wake, self.wake_held) if only is None else (self.wake, *(self.wakes + task for task in only))

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

    def group(self, name: str) -> str:
        """HASH of one group."""
        return self.group_keys + name

    def schedule(self, schedule_id: str) -> str:
        """HASH of one schedule: its definition and its state."""
        return self.definitions + schedule_id

    def slots(self, schedule_id: str) -> str:
        """LIST of the last slots of one schedule, JSON, newest first."""
        return self.schedule(schedule_id) + ":slots"

    def worker(self, worker_id: str) -> str:
        """HASH of one worker, with a TTL."""
        return self.worker_keys + worker_id

    def waiter(self, job_id: str) -> str:
        """Channel on which clients that wait for one job are notified of its end."""
        return self._channel("waiter:") + job_id

    def _channel(self, suffix: str) -> str:
        # After the queue's prefix, so that access rules for its channels apply to every database.
        return f"{self.prefix}db{self.db}:{suffix}" if self.db else self.prefix + suffix
