"""Heartbeats of workers, and the records that they contain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from schedq.errors import Conflict
from schedq.model import settings
from schedq.model.keys import checked_worker
from schedq.model.payload import loaded
from schedq.model.records import score_ms, whole
from schedq.model.settings import Settings
from schedq.transitions import Argument, Binding, Operation, RoundTrips, pairs, unwrap
from schedq.transitions.promote import Part

_HEARTBEAT: Final = Binding("heartbeat", "this_worker", "id", "ttl", "fields")
_DEREGISTER: Final = Binding("deregister", "this_worker", "id", "promoter_id")
_STOP: Final = Binding("stop_worker", "this_worker", "id")
_FORGOTTEN_S: Final = 30 * settings.HEARTBEAT_S
"""Seconds until a silent worker is forgotten: see heartbeat.lua."""


class Beat(NamedTuple):
    """The reply to a worker's heartbeat.

    Attributes:
        is_asked: whether it was asked to stop.
        has_settings: whether the queue's settings are stored.
        last_ms: its last heartbeat that is stored in Redis; None if there is none.
        now_ms: Redis's clock.
        tasks: how many tasks have stored options.
        vacancy: the vacant part in promoting the queue, which a promoter should take at once.
    """

    is_asked: bool
    has_settings: bool
    last_ms: int | None
    now_ms: int
    tasks: int = 0
    vacancy: Part = Part.NONE

    def is_of_another_store(self, before: Beat) -> bool:
        """Whether what the heartbeat `before` wrote is gone: Redis was emptied or restored to an older state."""
        return self.last_ms is None or self.last_ms < before.now_ms

    def is_in_time(self, before: Beat) -> bool:
        """Whether the heartbeat `before` can't have been removed for its age, or because the clock went back."""
        return 0 <= self.now_ms - before.now_ms < _FORGOTTEN_S * 1000


def beat(queue: Settings, worker_id: str, facts: Mapping[str, Argument]) -> Operation[Beat]:
    """Send a heartbeat."""
    flat = [word for pair in facts.items() for word in pair]
    this_worker = queue.keys.worker(worker_id)
    sent = _HEARTBEAT(queue, this_worker=this_worker, id=worker_id, ttl=3000 * settings.HEARTBEAT_S, fields=flat)
    return Operation("beat", *sent, _read_beat)


def _read_beat(reply: list[Any]) -> Beat:
    asked, settings, last, now, tasks, vacancy = reply
    last_ms = score_ms(last) if last else None
    return Beat(bool(asked), bool(settings), last_ms, int(now), int(tasks), Part(vacancy))


def policy() -> Operation[str]:
    """What Redis does when its memory is full: its `maxmemory-policy`, or '' if it does not report it."""
    return Operation("policy", None, (), ("INFO", "memory"), _read_policy)


def _read_policy(reply: object) -> str:
    lines = reply.splitlines() if isinstance(reply, str) else []
    return next((line.partition(":")[2] for line in lines if line.startswith("maxmemory_policy:")), "")


def leave(queue: Settings, worker_id: str, promoter_id: str) -> Operation[bool]:
    """Remove a worker that shuts down, and its promoter lease or standby place."""
    this_worker = queue.keys.worker(worker_id)
    return Operation("leave", *_DEREGISTER(queue, this_worker=this_worker, id=worker_id, promoter_id=promoter_id), bool)


MOST_WORKERS: Final = 1000
_PAGE: Final = 1000
_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A live worker according to its last heartbeat; instants are ms since the epoch, on its own clock.

    Attributes:
        id: the worker's id.
        host: the host it runs on.
        pid: its process id there.
        started_at_ms: when it started.
        concurrency: the most jobs it runs at a time.
        running: how many jobs it runs.
        jobs: the first 100 of these, a dict each: id, task, started_at_ms (Redis's clock), attempts.
        tasks: names of the tasks it knows.
        has_handler: whether it takes payloads that are not task calls; true if it does not report it.
        is_stopping: whether it was asked to stop.
        version: its version of schedq, '' if it does not report it.
        seen_at_ms: its last heartbeat, on Redis's clock.
        stuck: slots, in all its queues, that are held by handlers which did not end when told to.
        stuck_jobs: these handlers, and those in whose place other threads work, 100 at most; a dict each: id, queue,
            task, why, since_ms.
        definitions: digests of the schedules declared in its code.
        tells_definitions: whether it reports them; workers of older releases of schedq do not.
        workflows: names of those of its tasks that are workflows.
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
    workflows: tuple[str, ...] = ()

    @property
    def is_stuck(self) -> bool:
        """Whether all its slots are stuck, so that it can take no job."""
        return 0 < self.concurrency <= self.stuck

    @classmethod
    def from_fields(cls, worker_id: str, fields: Mapping[str, str], seen_at_ms: int = 0) -> WorkerRecord:
        """Read a worker's hash; invalid values read as empty."""
        return cls(
            id=worker_id,
            host=fields.get("host", ""),
            pid=whole(fields.get("pid")),
            started_at_ms=whole(fields.get("started_at_ms")),
            concurrency=whole(fields.get("concurrency")),
            running=whole(fields.get("running")),
            jobs=tuple(job for job in _list(fields.get("jobs")) if isinstance(job, dict)),
            tasks=_texts(fields.get("tasks")),
            has_handler=fields.get("has_handler") != "0",
            is_stopping="stop" in fields,
            version=fields.get("version", ""),
            definitions=_texts(fields.get("definitions")),
            tells_definitions="definitions" in fields,
            seen_at_ms=seen_at_ms,
            stuck=whole(fields.get("stuck")),
            stuck_jobs=tuple(job for job in _list(fields.get("stuck_jobs")) if isinstance(job, dict)),
            workflows=_texts(fields.get("workflows")),
        )


def _list(text: str | None) -> list[Any]:
    found = loaded(text)
    return found if isinstance(found, list) else []


def _texts(text: str | None) -> tuple[str, ...]:
    return tuple(each for each in _list(text) if isinstance(each, str))


def workers(queue: Settings) -> RoundTrips[list[WorkerRecord]]:
    """The live workers of a queue, newest heartbeat first. The hash of a dead worker expires."""
    keys = queue.keys
    newest = ("ZREVRANGE", keys.workers, 0, MOST_WORKERS - 1, "WITHSCORES")
    (reply,) = yield [Operation("workers", None, (), newest, pairs)]
    beats: dict[str, str] = unwrap(reply)
    ids = list(beats)
    found: list[WorkerRecord] = []
    for first in range(0, len(ids), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        results = yield [Operation("workers", None, (), ("HGETALL", keys.worker(name)), pairs) for name in some]
        for name, fields in zip(some, results, strict=True):
            if fields and not isinstance(fields, Conflict):
                found.append(WorkerRecord.from_fields(name, unwrap(fields), whole(beats[name])))
    return found


def stop(queue: Settings, worker_id: str) -> Operation[bool]:
    """Ask a worker to stop, as SIGTERM does; False if no live worker has this id.

    Raises:
        UsageError: the id is invalid.
    """
    this_worker = queue.keys.worker(checked_worker(worker_id))
    return Operation("stop worker", *_STOP(queue, this_worker=this_worker, id=worker_id), bool)
