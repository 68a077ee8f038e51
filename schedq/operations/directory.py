"""Who and what is there: the queues at one Redis, and the live workers of one queue."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from schedq import lua
from schedq.errors import Conflict, UsageError
from schedq.job import whole
from schedq.keys import QUEUES_KEY, QueueKeys
from schedq.operations import Flow, Operation, firm, same
from schedq.operations.upkeep import pairs
from schedq.settings import Settings

MOST_WORKERS: Final = 1000
_PAGE: Final = 1000
_AT_ONCE: Final = 200
_WORKER: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
# Few jobs' keys match it too; they are sorted out here.
_PATTERN: Final = "queue:*:[pd]e[nl]*[gd]"
_PLACE: Final = re.compile(r"queue:(?:\{([^{}:]+)\}|([^{}:]+)):(?:pending|delayed)")


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A live worker, as it said last; instants are ms since the epoch, on its own clock.

    Attributes:
        id: the worker.
        host: where it runs.
        pid: its process there.
        started_at_ms: since when.
        concurrency: jobs that it takes at a time.
        running: jobs that it runs.
        jobs: of these the first 100, a dict each: id, task, started_at_ms (Redis's clock), attempts.
        tasks: names of the tasks that it knows.
        has_handler: it takes payloads that are no task call; true if it does not say.
        is_stopping: it was asked to stop.
        version: of schedq there, '' if it does not say.
        seen_at_ms: when it spoke last, on Redis's clock.
        stuck: slots of the worker, of all its queues, that are held by handlers which do not end when told to.
        stuck_jobs: of these the first 100, a dict each: id, queue, task, why, since_ms.
        definitions: digests of the schedules that its code has.
        tells_definitions: it says which these are; workers of older releases of schedq do not.
    """

    id: str
    host: str
    pid: int
    started_at_ms: int
    concurrency: int
    running: int
    jobs: tuple[dict[str, Any], ...]
    tasks: tuple[str, ...]
    has_handler: bool
    is_stopping: bool
    version: str = ""
    seen_at_ms: int = 0
    stuck: int = 0
    stuck_jobs: tuple[dict[str, Any], ...] = ()
    definitions: tuple[str, ...] = ()
    tells_definitions: bool = True

    @property
    def is_stuck(self) -> bool:
        """It can take no job: all its slots are stuck."""
        return 0 < self.concurrency <= self.stuck

    @classmethod
    def from_fields(cls, worker_id: str, fields: Mapping[str, str], seen_at_ms: int = 0) -> WorkerRecord:
        """Read a worker's hash; what makes no sense reads as nothing."""
        return cls(
            id=worker_id,
            host=fields.get("host", ""),
            pid=whole(fields.get("pid")),
            started_at_ms=whole(fields.get("started_at_ms")),
            concurrency=whole(fields.get("concurrency")),
            running=whole(fields.get("running")),
            jobs=tuple(job for job in _list(fields.get("jobs")) if isinstance(job, dict)),
            tasks=tuple(task for task in _list(fields.get("tasks")) if isinstance(task, str)),
            has_handler=fields.get("has_handler") != "0",
            is_stopping="stop" in fields,
            version=fields.get("version", ""),
            definitions=tuple(digest for digest in _list(fields.get("definitions")) if isinstance(digest, str)),
            tells_definitions="definitions" in fields,
            seen_at_ms=seen_at_ms,
            stuck=whole(fields.get("stuck")),
            stuck_jobs=tuple(job for job in _list(fields.get("stuck_jobs")) if isinstance(job, dict)),
        )


def _list(text: str | None) -> list[Any]:
    try:
        found = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def workers(queue: Settings) -> Flow[list[WorkerRecord]]:
    """The live workers of a queue, the one that spoke last first: a dead one's hash expires."""
    keys = queue.keys
    newest = ("ZREVRANGE", keys.workers, 0, MOST_WORKERS - 1, "WITHSCORES")
    (answer,) = yield [Operation("workers", None, (), newest, pairs)]
    beats: dict[str, str] = firm(answer)
    ids = list(beats)
    found: list[WorkerRecord] = []
    for first in range(0, len(ids), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        answers = yield [Operation("workers", None, (), ("HGETALL", keys.worker(name)), pairs) for name in some]
        for name, fields in zip(some, answers, strict=True):
            if fields and not isinstance(fields, Conflict):
                found.append(WorkerRecord.from_fields(name, firm(fields), whole(beats[name])))
    return found


def stop(queue: Settings, worker_id: str) -> Operation[bool]:
    """Ask a worker to stop, as SIGTERM does; False if there is none of this id that lives.

    Raises:
        UsageError: no worker can have that id.
    """
    keys = queue.keys
    return Operation(
        "stop worker",
        lua.load("stop"),
        (keys.workers, keys.worker(checked_worker(worker_id)), keys.log),
        (queue.now_argument(), queue.log_size, worker_id),
        bool,
    )


def checked_worker(worker_id: object) -> str:
    """Return `worker_id` if it may be a worker's.

    Raises:
        UsageError: it is not 1 to 128 of `A-Z a-z 0-9 _ -`.
    """
    if not isinstance(worker_id, str) or not _WORKER.fullmatch(worker_id):
        raise UsageError(f"worker id {worker_id!r} must be 1 to 128 characters of A-Z a-z 0-9 _ -")
    return worker_id


def names(*, scan: bool) -> Flow[list[str]]:
    """The names of the queues at one Redis, in order; a name that was only ever looked at is none.

    With `scan` also those of queues that only other programs use: all keys are looked through, by pages.
    """
    enlisted = yield from listed()
    found: set[str] = set()
    for first in range(0, len(enlisted), _AT_ONCE):
        some = enlisted[first : first + _AT_ONCE]
        answers = yield [_is_there(name) for name in some]
        found.update(name for name, there in zip(some, answers, strict=True) if firm(there))
    if scan:
        found.update((yield from scanned()))
    return sorted(found)


def listed() -> Flow[list[str]]:
    """The names that schedq clients have enlisted; of some there may be nothing left."""
    (answer,) = yield [Operation("queues", None, (), ("SMEMBERS", QUEUES_KEY), _fitting)]
    return firm(answer)


def scanned() -> Flow[list[str]]:
    """The names of queues in which jobs wait, whoever put them there."""
    found: set[str] = set()
    cursor = ""
    while cursor != "0":
        command = ("SCAN", cursor or "0", "MATCH", _PATTERN, "COUNT", _PAGE)
        (answer,) = yield [Operation("queues", None, (), command, same)]
        cursor, page = firm(answer)
        found.update(_fitting(match[1] or match[2] for key in page if (match := _PLACE.fullmatch(key))))
    return sorted(found)


def _is_there(name: str) -> Operation[bool]:
    keys = QueueKeys(name)
    held = (
        keys.stats,
        keys.settings,
        keys.pending,
        keys.delayed,
        keys.processing,
        keys.workers,
        keys.paused,
        keys.schedules,
    )
    return Operation("queues", None, (), ("EXISTS", *held), bool)


def _fitting(found: Any) -> list[str]:
    """Those that may name a queue: others' data may be anything."""
    fitting = []
    for name in found:
        try:
            QueueKeys(name)
        except UsageError:
            continue
        fitting.append(name)
    return sorted(fitting)
