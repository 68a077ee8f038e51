"""Ways to damage one stored job: every field it has where it is, every kind of rubbish, and what must become of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from schedq import Discard, Fixed
from tests.doors import Handle

Fields = dict[str, bytes]

RUBBISH: Final[dict[str, bytes | None]] = {
    "dropped": None,
    "empty": b"",
    "garbage": b"what is this",
    "binary": b"\x00\xff\xfe\x80",
    "lines": b"a\nb\r\n\x1b[31m\x00\xe2\x80\xa8",
    "negative": b"-7",
    "nan": b"nan",
    "infinite": b"1e999",
    "huge": b"99999999999999999999999999",
    "fraction": b"1.5",
    "far": b"9007199254740991",
    "object": b'{"a":[1]}',
    "list": b"[[]]",
    "long": b"7" * 50_000,
}
"""What a field may hold instead of what it held."""

WORDS: Final = ("pending", "delayed", "processing", "completed", "failed", "cancelled", "broken")
"""`status` may also hold another status."""

_NAMES: Final = (
    "id payload status attempts enqueued_at_ms run_at_ms max_attempts backoff timeout_ms waiter request "
    "claim_token claimed_at_ms started_at_ms worker adopted_token settled_token settled_move crashes released "
    "reclaimed_at_ms promoted_at_ms last_error last_error_at_ms traceback history "
    "completed_at_ms result result_error cancelled_at_ms"
)
FIELDS: Final = frozenset(_NAMES.split())
"""Every field that a job can have, but `stop`."""

KINDS: Final = ("gone", "string", "list", "set", "zset", "stream")
"""What may be at a job's key instead of a hash."""

STOP: Final = "stop"
"""Asks a running job to stop: no sample has this field, so that they run; rubbish in it is a case all the same."""

GOOD: Final = "undamaged"
"""What stands for the field in the ids of jobs that are left as they are."""

WHOLE: Final = "hash"
"""The field of a case whose whole key is damaged."""


HARMLESS: Final = "run all the same"
LISTED: Final = "listed as they are"


@dataclass(frozen=True)
class Case:
    """One corruption of one job.

    Attributes:
        place: where the job is.
        field: what of it is damaged; `WHOLE` for the key itself.
        how: the name of the damage.
    """

    place: str
    field: str
    how: str

    @property
    def id(self) -> str:
        """The job's id, which says it all."""
        return f"{self.place}-{self.field}-{self.how}"

    @property
    def value(self) -> bytes | None:
        """What the field holds then; None: it is dropped."""
        return RUBBISH[self.how] if self.how in RUBBISH else self.how.encode()

    @property
    def end(self) -> str:
        """What must become of the job."""
        if self.place == "completed":
            return LISTED
        if self.field == WHOLE:
            return "refused by a verb" if self.place in ("failed", "cancelled") else "broken with the reason"
        judge: Callable[[Case], str] | None = _JUDGES.get(self.field)
        return judge(self) if judge else HARMLESS


def _end_by_payload(case: Case) -> str:
    """A payload that was read already does no harm any more."""
    return HARMLESS if case.place == "running" or _is_json(case.value) else "failed with the reason"


def _end_by_status(case: Case) -> str:
    finished = {"completed": LISTED, "failed": "failed with the reason", "cancelled": "cancelled"}
    if case.place in ("failed", "cancelled"):
        return HARMLESS if case.how in ("failed", "cancelled") else "refused by a verb"
    if case.how not in finished:
        return HARMLESS
    # A claim can't tell a damaged word from a stray entry; when a lease ends the job is put where the word says.
    return finished[case.how] if case.place in ("running", "lost") else "dropped and counted as a stray"


def _end_by_stop(case: Case) -> str:
    return "cancelled" if case.place in ("running", "lost") else HARMLESS


def _end_by_count(case: Case) -> str:
    """The lease of what reads as the last attempt is lost."""
    last = {"max_attempts": ("fraction",), "attempts": ("far",), "crashes": ("far",)}[case.field]
    # Whoever begins a job looks at the leases that it has lost, and whoever takes one back at its attempts as well.
    judged = ("lost",) if case.field == "attempts" else ("lost", "pending", "delayed")
    return "failed with the reason" if case.place in judged and case.how in last else HARMLESS


_JUDGES: Final = {
    "payload": _end_by_payload,
    "status": _end_by_status,
    "stop": _end_by_stop,
    "max_attempts": _end_by_count,
    "attempts": _end_by_count,
    "crashes": _end_by_count,
}


def _is_json(value: bytes | None) -> bool:
    try:
        json.loads(value or b"", parse_constant=lambda name: json.loads(""))
    except ValueError:
        return False
    return True


def cases(samples: dict[str, Fields]) -> Iterator[Case]:
    """All corruptions of jobs like these, by place."""
    for place, fields in samples.items():
        for field in sorted({*fields, STOP}):
            for how in (*RUBBISH, *(WORDS if field == "status" else ())):
                if how != "dropped" or field in fields:
                    yield Case(place, field, how)
        for kind in KINDS:
            yield Case(place, WHOLE, kind)


def samples(queue: Handle) -> dict[str, Fields]:
    """A job in each place that has been through all that a job can before it is there."""
    return {place: _stored(queue, make) for place, make in _MAKERS.items()}


def _stored(queue: Handle, make: Callable[[Handle], str]) -> Fields:
    job_id = make(queue)
    with queue.server.client(decode_responses=False) as client:
        found = {name.decode(): value for name, value in client.hgetall(queue.keys.job(job_id)).items()}
    queue.forget()
    return found


def _waiting(queue: Handle) -> str:
    """Back in `pending` after a wait, an error, a release and a lost lease, moved by an operator, awaited."""
    job_id: str = queue.enqueue({"task": "ok"}, delay=60, max_attempts=20, backoff=Fixed(0), timeout=60)
    assert queue.run_now(job_id)
    assert not queue.wait(job_id, 0)
    queue.fail(queue.claim(0), RuntimeError("the first time"))
    queue.release(queue.claim(0))
    queue.claim(0)
    queue.redis.zadd(queue.keys.leases, {job_id: 1})
    assert queue.reclaim_stuck() == [job_id]
    return job_id


def _delayed(queue: Handle) -> str:
    job_id = _waiting(queue)
    queue.snooze(queue.claim(0), 60)
    return job_id


def _claimed(queue: Handle) -> Any:
    """A claim whose lease was damaged, so that it was adopted."""
    job_id = _waiting(queue)
    job = queue.claim(0)
    queue.redis.zrem(queue.keys.leases, job_id)
    queue.reclaim_stuck()
    return job


def _completed(queue: Handle) -> str:
    job = _claimed(queue)
    queue.complete(job, {1, 2})
    return str(job.id)


def _failed(queue: Handle) -> str:
    job = _claimed(queue)
    queue.fail(job, Discard("enough"))
    return str(job.id)


def _cancelled(queue: Handle) -> str:
    job_id = _waiting(queue)
    assert queue.cancel(job_id) == "cancelled"
    return job_id


_MAKERS: Final[dict[str, Callable[[Handle], str]]] = {
    "running": lambda queue: str(_claimed(queue).id),
    "lost": lambda queue: str(_claimed(queue).id),
    "pending": _waiting,
    "delayed": _delayed,
    "failed": _failed,
    "cancelled": _cancelled,
    "completed": _completed,
}


def put(client: Any, key: str, kind: str) -> None:
    """Something of another program's in place of what is there; nothing if the kind is `gone`."""
    client.delete(key)
    match kind:
        case "string":
            client.set(key, "not ours")
        case "list":
            client.rpush(key, "not ours")
        case "set":
            client.sadd(key, "not ours")
        case "hash":
            client.hset(key, "not", "ours")
        case "zset":
            client.zadd(key, {"not ours": 1})
        case "stream":
            client.xadd(key, {"not": "ours"})
