"""Ways to damage one stored job: every field in every state with every kind of invalid value; expected outcomes."""

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
"""Values that a field may be damaged with."""

WORDS: Final = ("pending", "delayed", "processing", "completed", "failed", "cancelled", "broken")
"""`status` may also be replaced by another status."""

_NAMES: Final = (
    "id payload status attempts enqueued_at_ms run_at_ms max_attempts backoff timeout_ms waiter request "
    "claim_token claimed_at_ms started_at_ms worker adopted_token settled_token settled_move crashes released "
    "reclaimed_at_ms promoted_at_ms last_error last_error_at_ms traceback history "
    "completed_at_ms result result_error cancelled_at_ms headers"
)
FIELDS: Final = frozenset(_NAMES.split())
"""Every field that a job can have, except `stop`."""

KINDS: Final = ("gone", "string", "list", "set", "zset", "stream")
"""What a job's key may hold instead of a hash."""

STOP: Final = "stop"
"""Asks a running job to stop. No sample has this field, so that the jobs run; invalid values in it are still tested."""

GOOD: Final = "undamaged"
"""Replaces the field's name in the ids of undamaged jobs."""

WHOLE: Final = "hash"
"""The field of a case in which the whole key is damaged."""


HARMLESS: Final = "run nevertheless"
LISTED: Final = "listed as they are"


@dataclass(frozen=True)
class Case:
    """One corruption of one job.

    Attributes:
        place: the state of the job.
        field: the damaged field; `WHOLE` for the key itself.
        how: the name of the damage.
    """

    place: str
    field: str
    how: str

    @property
    def id(self) -> str:
        """The job's id, which describes the case."""
        return f"{self.place}-{self.field}-{self.how}"

    @property
    def value(self) -> bytes | None:
        """The field's new value; None: it is removed."""
        return RUBBISH[self.how] if self.how in RUBBISH else self.how.encode()

    @property
    def end(self) -> str:
        """The expected outcome of the job."""
        if self.place == "completed":
            return LISTED
        if self.field == WHOLE:
            return "refused by a verb" if self.place in ("failed", "cancelled") else "broken with the reason"
        judge: Callable[[Case], str] | None = _JUDGES.get(self.field)
        return judge(self) if judge else HARMLESS


def _end_by_payload(case: Case) -> str:
    """A payload that has already been read no longer matters."""
    return HARMLESS if case.place == "running" or _is_json(case.value) else "failed with the reason"


def _end_by_status(case: Case) -> str:
    finished = {"completed": LISTED, "failed": "failed with the reason", "cancelled": "cancelled"}
    if case.place in ("failed", "cancelled"):
        return HARMLESS if case.how in ("failed", "cancelled") else "refused by a verb"
    if case.how not in finished:
        return HARMLESS
    # A claim can't tell a damaged status from a stray entry; when a lease expires, the job moves to its status.
    return finished[case.how] if case.place in ("running", "lost") else "dropped and counted as a stray"


def _end_by_stop(case: Case) -> str:
    return "cancelled" if case.place in ("running", "lost") else HARMLESS


def _end_by_count(case: Case) -> str:
    """The lease of what looks like the last attempt is lost."""
    last = {"max_attempts": ("fraction",), "attempts": ("far",), "crashes": ("far",)}[case.field]
    # The number of lost leases is checked when a job is claimed, and when it is reclaimed the attempts are, too.
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
    """All corruptions of jobs like these, by state."""
    for place, fields in samples.items():
        for field in sorted({*fields, STOP}):
            for how in (*RUBBISH, *(WORDS if field == "status" else ())):
                if how != "dropped" or field in fields:
                    yield Case(place, field, how)
        for kind in KINDS:
            yield Case(place, WHOLE, kind)


def samples(queue: Handle) -> dict[str, Fields]:
    """A job in each state, with everything in its past that can happen to a job before that."""
    return {place: _stored(queue, make) for place, make in _MAKERS.items()}


def _stored(queue: Handle, make: Callable[[Handle], str]) -> Fields:
    job_id = make(queue)
    with queue.server.client(decode_responses=False) as client:
        found = {name.decode(): value for name, value in client.hgetall(queue.keys.job(job_id)).items()}
    queue.forget()
    return found


def _waiting(queue: Handle) -> str:
    """Pending again after a wait, an error, a release and a lost lease; moved by an operator; with a waiting caller."""
    headers = {"tenant": "acme"}
    job_id: str = queue.enqueue(
        {"task": "ok"}, delay=60, max_attempts=20, backoff=Fixed(0), timeout=60, headers=headers
    )
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
    """Replace a key by something of another program's; delete it if the kind is `gone`."""
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
