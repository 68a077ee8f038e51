"""What is known about a job when it is enqueued, claimed, settled or looked up.

Objects made for every job are not frozen dataclasses: with 13 fields, creating one takes eight times as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from schedq.model import backoff as plans
from schedq.model.checks import LARGEST
from schedq.model.durability import Durability
from schedq.model.headers import NO_HEADERS, headers_of
from schedq.model.payload import UnreadablePayload, decode, decoded, loaded
from schedq.model.progress import Progress, of_fields
from schedq.model.times import LAST_INSTANT_MS, LONGEST_MS, Duration, Instant

if TYPE_CHECKING:  # imported when a job has a gate or a unique key
    from schedq.model.gates import Gate, KeyOf
    from schedq.model.unique import UniqueKey, Uniqueness


class Options(NamedTuple):
    """The options of one job; None means the queue's setting."""

    delay: Duration | None = None
    run_at: Instant | None = None
    job_id: str | None = None
    max_attempts: int | None = None
    backoff: plans.Plan | None = None
    timeout: Duration | None = None
    durability: Durability | None = None
    must_create: bool = False
    reuse_id: bool = False
    expires: Duration | datetime | None = None
    headers: Mapping[str, str] | None = None
    completed_ttl: Duration | None = None
    failed_ttl: Duration | None = None
    unique: Uniqueness | UniqueKey | None = None
    gate: Gate | str | None = None
    key: str | int | KeyOf | None = None


@dataclass(frozen=True, slots=True)
class NewJob:
    """One job for `enqueue_many`: a payload with options of its own.

    Attributes:
        payload: anything that JSON can hold.
        delay: seconds or a timedelta from now; not together with `run_at`.
        run_at: aware datetime or Unix seconds.
        job_id: the caller's own id, which makes the enqueue idempotent.
        max_attempts: how often it may be claimed.
        backoff: waits between attempts.
        timeout: the longest an attempt may take, seconds or a timedelta.
        durability: where it must be before `enqueue_many` returns.
        must_create: an existing job with this id is a Conflict, whatever its payload.
        reuse_id: a finished job with this id is replaced; a waiting or running one is a Conflict.
        expires: if it has not begun by then, it is cancelled: seconds or a timedelta from its enqueue, or an aware
            datetime.
        headers: texts by name that go with the job; in `enqueue_many` they are added to the common ones.
        completed_ttl: how long its record is kept once it has completed: seconds or a timedelta.
        failed_ttl: how long its record is kept once it has failed or was cancelled.
        unique: a key of which at most one job waits or runs, or `Unique(key=…)` or `Debounce(key=…)`.
        gate: the gate whose limits it counts for, or its name.
        key: whose job it is within its gate: a whole number, or a text of 1 to 128 characters without spaces.
    """

    payload: Any
    delay: Duration | None = field(default=None, kw_only=True)
    run_at: Instant | None = field(default=None, kw_only=True)
    job_id: str | None = field(default=None, kw_only=True)
    max_attempts: int | None = field(default=None, kw_only=True)
    backoff: plans.Plan | None = field(default=None, kw_only=True)
    timeout: Duration | None = field(default=None, kw_only=True)
    durability: Durability | None = field(default=None, kw_only=True)
    must_create: bool = field(default=False, kw_only=True)
    reuse_id: bool = field(default=False, kw_only=True)
    expires: Duration | datetime | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] | None = field(default=None, kw_only=True)
    completed_ttl: Duration | None = field(default=None, kw_only=True)
    failed_ttl: Duration | None = field(default=None, kw_only=True)
    unique: Uniqueness | UniqueKey | None = field(default=None, kw_only=True)
    gate: Gate | str | None = field(default=None, kw_only=True)
    key: str | int | KeyOf | None = field(default=None, kw_only=True)


@dataclass(slots=True)
class ClaimedJob:
    """One attempt at a job; it belongs to the claimer until the lease ends.

    Attributes:
        id: the job.
        payload: decoded; None if `problem` is set.
        attempts: claims so far, this one included.
        claim_token: proves ownership to every later move; fresh for each claim.
        max_attempts: the job's own, or None for the queue's.
        backoff: the job's own, or None for the queue's.
        timeout_ms: the longest an attempt may take, or None.
        crashes: how many leases this job has lost.
        enqueued_at_ms: when it was enqueued, on Redis's clock; 0 if its producer did not record it.
        run_at_ms: when it was last due; 0 if it never waited.
        claimed_at_ms: when this attempt began, on Redis's clock.
        problem: why the stored payload can't be read; such a job is not run.
        trace: the trace context that its producer stored, or ''; see `schedq.tracing`.
        unknown_since_ms: since when no worker that claimed it had its task; 0 if the last one had it.
        headers: texts by name that its producer gave it; read-only.
        gate_key: its gate and its key with a space between them, as scripts have it; '' or ' ' without a gate.
        run: what is recorded of a workflow's run, in short; see `model/runs.py`. '' if nothing is.
    """

    id: str
    payload: Any
    attempts: int
    claim_token: str
    max_attempts: int | None = None
    backoff: plans.Plan | None = None
    timeout_ms: int | None = None
    crashes: int = 0
    enqueued_at_ms: int = 0
    run_at_ms: int = 0
    claimed_at_ms: int = 0
    problem: str = ""
    trace: str = ""
    unknown_since_ms: int = 0
    headers: Mapping[str, str] = NO_HEADERS
    gate_key: str = ""
    run: str = ""

    @property
    def gate(self) -> str:
        """The name of its gate; '' without one."""
        return self.gate_key.partition(" ")[0]

    @property
    def key(self) -> str:
        """Its key within its gate; '' without one."""
        return self.gate_key.partition(" ")[2]

    @classmethod
    def from_reply(cls, reply: list[Any], claimed_at_ms: int) -> ClaimedJob:
        """Read what `claim.lua` and `recover.lua` return for one job; see `shared/claimed.lua`."""
        job_id, text, attempts, token, most, plan, timeout, crashes, enqueued, due, *rest = reply
        payload, problem = None, ""
        try:
            payload = decode(text)
        except UnreadablePayload as error:
            problem = str(error)
        found = cls(
            job_id,
            payload,
            whole(attempts),
            token,
            (whole(most) or None) if most else None,
            plans.from_text(plan) if plan else None,
            (min(whole(timeout), LONGEST_MS) or None) if timeout else None,
            whole(crashes) if crashes else 0,
            whole(enqueued) if enqueued else 0,
            whole(due) if due else 0,
            claimed_at_ms,
            problem,
        )
        if rest:
            trace, unknown, headers, found.gate_key, found.run = (*rest, "", "", "", "")[:5]
            found.trace, found.unknown_since_ms, found.headers = trace, whole(unknown or "0"), headers_of(headers)
        return found


class Settlement(NamedTuple):
    """How one attempt is to end.

    Attributes:
        move: complete, retry, fail, undo, snooze, release, limit or suspend.
        job_id: the job.
        token: the token of the claim that ends.
        delay_ms: the time until the job is due again, for retry and snooze; how long its key or gate waits, for limit.
        text: the result as JSON text, or the error; for a snooze, why this worker can't run the job, or ''; for limit,
            "doubles" if the delay doubles each time in a row; for suspend, the waits as JSON.
        note: what was wrong with the result, or the error in short; for limit, what waits: key or gate; for suspend,
            the job's `run`.
        traceback: the error's traceback, or ''.
        ttl_ms: how long the record is kept if the job ends and has no ttl of its own: its task's `completed_ttl`, or
            `failed_ttl` for any other move; None for the queue's.
        gate_key: the job's own.
    """

    move: str
    job_id: str
    token: str
    delay_ms: int = 0
    text: str = ""
    note: str = ""
    traceback: str = ""
    ttl_ms: int | None = None
    gate_key: str = ""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """Everything stored about one job, decoded. Instants are ms on Redis's clock, 0 where they do not apply.

    Attributes:
        id: the job.
        status: one of `lifecycle.JOB_STATES`, or '' if none is stored.
        payload: decoded; None if it can't be read (`fields["payload"]` has the text).
        attempts: claims so far.
        max_attempts: the job's own, or None.
        enqueued_at_ms: when it was enqueued.
        run_at_ms: when it is or was last due; 0 if it never waited.
        claimed_at_ms: when its lease last began or was renewed.
        started_at_ms: when its last attempt began.
        completed_at_ms: when it completed.
        result: decoded; None without one.
        result_error: why the result could not be stored as it was, or ''.
        last_error: the error of the last failed attempt, or ''.
        last_error_at_ms: when that attempt failed.
        worker: id of the worker of the last attempt, or ''.
        crashes: how many leases it has lost.
        history: one dict per ended attempt, the last 10: attempt, worker, started_at_ms, ended_at_ms, outcome, error.
        fields: the stored hash, unchanged.
        headers: texts by name that its producer gave it.
        progress: how far the last attempt came; None if it did not report it.
        meta: what the last attempt stored with `update_meta`; {} if nothing.
    """

    id: str
    status: str
    payload: Any
    attempts: int
    max_attempts: int | None
    enqueued_at_ms: int
    run_at_ms: int
    claimed_at_ms: int
    started_at_ms: int
    completed_at_ms: int
    result: Any
    result_error: str
    last_error: str
    last_error_at_ms: int
    worker: str
    crashes: int
    history: tuple[dict[str, Any], ...]
    fields: Mapping[str, str]
    headers: Mapping[str, str] = field(default_factory=dict)
    progress: Progress | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def gate(self) -> str:
        """The name of its gate; '' without one."""
        return self.fields.get("gate", "")

    @property
    def key(self) -> str:
        """Its key within its gate; '' without one."""
        return self.fields.get("key", "")

    @property
    def ttls_ms(self) -> dict[str, int]:
        """`completed_ttl` and `failed_ttl`, if they are its own."""
        named = {name: self.fields.get(f"{name}_ms") for name in ("completed_ttl", "failed_ttl")}
        return {name: whole(text) for name, text in named.items() if text}

    @property
    def traceback(self) -> str:
        """The traceback of the last failed attempt, or ''."""
        return self.fields.get("traceback", "")

    @classmethod
    def from_fields(cls, job_id: str, fields: Mapping[str, str]) -> JobRecord:
        """Read a job's hash, whichever program wrote it; invalid values read as empty."""
        progress, meta = of_fields(fields) if "progress" in fields else (None, {})
        return cls(
            id=job_id,
            status=fields.get("status", ""),
            payload=decoded(fields.get("payload")),
            attempts=whole(fields.get("attempts")),
            max_attempts=whole(fields.get("max_attempts")) or None,
            enqueued_at_ms=whole(fields.get("enqueued_at_ms")),
            run_at_ms=whole(fields.get("run_at_ms")),
            claimed_at_ms=whole(fields.get("claimed_at_ms")),
            started_at_ms=whole(fields.get("started_at_ms")),
            completed_at_ms=whole(fields.get("completed_at_ms")),
            result=decoded(fields.get("result")),
            result_error=fields.get("result_error", ""),
            last_error=fields.get("last_error", ""),
            last_error_at_ms=whole(fields.get("last_error_at_ms")),
            worker=fields.get("worker", ""),
            crashes=whole(fields.get("crashes")),
            history=_history(fields),
            fields=dict(fields),
            headers=dict(headers_of(fields.get("headers"))),
            progress=progress,
            meta=meta,
        )


def whole(text: object) -> int:
    """The count or instant in a stored field; 0 if it is invalid, as in the scripts."""
    if isinstance(text, str) and len(text) < 16 and text.isdecimal():
        return int(text)
    number = _number(text)
    return math.floor(number) if 0 <= number <= LARGEST else 0


def score_ms(text: object) -> int:
    """The instant in a ZSET's score, rounded up: other programs may store fractions or infinity."""
    number = _number(text)
    return math.ceil(min(max(0, number), LAST_INSTANT_MS)) if number == number else 0


def _number(text: object) -> int | float:
    for kind in (int, float):
        with suppress(TypeError, ValueError, OverflowError):
            return kind(text)  # type: ignore[call-overload, arg-type] # anything may be stored
    return math.nan


def _history(fields: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    lines = fields.get("history", "")
    if not lines and fields.get("settled_move") == "complete":
        return (_only_attempt(fields),)
    return tuple(entry for line in lines.splitlines() if isinstance(entry := loaded(line), dict))


def _only_attempt(fields: Mapping[str, str]) -> dict[str, Any]:
    """The history of a job that completed at its first attempt; `settle.lua` does not store it."""
    return {
        "attempt": whole(fields.get("attempts")),
        "worker": fields.get("worker", ""),
        "started_at_ms": whole(fields.get("started_at_ms")),
        "ended_at_ms": whole(fields.get("completed_at_ms")),
        "outcome": "completed",
    }
