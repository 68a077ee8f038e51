"""What an attempt records of a workflow's run: each request only for the attempt that holds the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from schedq.errors import RecordFull
from schedq.model.records import ClaimedJob
from schedq.model.runs import MOST_MEMOS, MOST_OF_FLOW, Run, RunLost
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation, pairs

_HELD: Final = ("id", "token", "begins")
_STEP: Final = Binding("step", *_HELD, "name", "memo", "replaced", "losers")
_FAILED_TRY: Final = Binding("failed_try", *_HELD, "name", "number", "counts", "delay", "error")
_ADD_UNDO: Final = Binding("add_undo", *_HELD, "name", "call")
_UNTIL: Final = Binding("until", *_HELD, "name", "mode", "ms")
_RECEIVE: Final = Binding("receive", *_HELD, "name", "topic", "timeout")
_START_OVER: Final = Binding("start_over", *_HELD, "life", "args")


class Answer(NamedTuple):
    """What a script said.

    Attributes:
        word: OK, EXISTS or WAITS.
        is_stopped: whether the job was asked to stop.
        rest: what follows.
    """

    word: str
    is_stopped: bool
    rest: tuple[Any, ...]


def _held(job: ClaimedJob) -> dict[str, str]:
    return {"id": job.id, "token": job.claim_token, "begins": job.run}


def _answer(job: ClaimedJob, reply: list[Any]) -> Answer:
    if reply[0] == "LOST":
        raise RunLost(f"this attempt no longer holds job {job.id}")
    if reply[0] == "FULL":
        raise no_room(job)
    return Answer(reply[0], bool(int(reply[1])), tuple(reply[2:]))


def no_room(job: ClaimedJob) -> RecordFull:
    """The error of a run that keeps too much."""
    is_flow = Run.read(job.run).is_flow
    most = MOST_OF_FLOW if is_flow else MOST_MEMOS
    way_out = "divide the flow into flows" if is_flow else "call start_over in a loop without an end"
    return RecordFull(
        f"the record of job {job.id} has no room left: it keeps {most:,} outcomes, 1 MiB in all; store large data "
        f"elsewhere, or {way_out}"
    )


def recall(queue: Settings, job: ClaimedJob) -> Operation[dict[str, str]]:
    """Everything that is stored about a job, as fields."""
    return Operation("recall", None, (), ("HGETALL", queue.keys.job(job.id)), _fields)


def _fields(reply: Any) -> dict[str, str]:
    return dict(reply) if isinstance(reply, dict) else pairs(reply)


def step(
    queue: Settings, job: ClaimedJob, name: str, memo: str, losers: Sequence[str] = (), replaced: str = ""
) -> Operation[Answer]:
    """Record a memo, given as JSON, unless there is one: OK or EXISTS, and what is stored.

    Args:
        queue: where the job is.
        job: the claimed job.
        name: the operation.
        memo: its outcome.
        losers: operations of branches that lost a race; what they received goes back to its box.
        replaced: an operation whose memo has no more meaning, and is deleted.

    Raises, when the reply is read:
        RunLost: the attempt no longer holds the job.
        RecordFull: there is no room.
    """
    return Operation(
        "step",
        *_STEP(queue, **_held(job), name=name, memo=memo, replaced=replaced, losers=losers),
        lambda reply: _answer(job, reply),
    )


def failed_try(
    queue: Settings, job: ClaimedJob, name: str, number: int, delay_ms: int, error: str, *, counts: bool = True
) -> Operation[Answer]:
    """Store that a step failed: OK, how many tries have counted, and the instant of the next one.

    Args:
        queue: where the job is.
        job: the claimed job.
        name: the step.
        number: of this request for the step, from 1.
        delay_ms: until the next try.
        error: in short.
        counts: whether the try counts.
    """
    bound = _FAILED_TRY(queue, **_held(job), name=name, number=number, counts=int(counts), delay=delay_ms, error=error)
    return Operation("failed_try", *bound, lambda reply: _answer(job, reply))


def add_undo(queue: Settings, job: ClaimedJob, name: str, call: str) -> Operation[Answer]:
    """Store the call that undoes a step, a payload as JSON: OK or EXISTS, the field `run`, and what is stored.

    Raises, when the reply is read:
        RunLost: the attempt no longer holds the job.
        RecordFull: there is no room.
    """
    bound = _ADD_UNDO(queue, **_held(job), name=name, call=call)
    return Operation("add_undo", *bound, lambda reply: _answer(job, reply))


def until(queue: Settings, job: ClaimedJob, name: str, mode: str, ms: int) -> Operation[Answer]:
    """Fix until when an operation waits, `ms` from now ("in") or since the epoch ("at"): OK, the instant, now."""
    bound = _UNTIL(queue, **_held(job), name=name, mode=mode, ms=ms)
    return Operation("until", *bound, lambda reply: _answer(job, reply))


def receive(queue: Settings, job: ClaimedJob, name: str, topic: str, timeout_ms: int | None) -> Operation[Answer]:
    """Take a message: OK or EXISTS and a memo, or WAITS and the instant at which the wait ends, '' for never."""
    bound = _RECEIVE(queue, **_held(job), name=name, topic=topic, timeout="" if timeout_ms is None else timeout_ms)
    return Operation("receive", *bound, lambda reply: _answer(job, reply))


def start_over(queue: Settings, job: ClaimedJob, life: int, args: str) -> Operation[Answer]:
    """Begin the run again with other arguments, given as JSON: OK, and the field `run`.

    A `life` that has begun already is only finished.
    """
    bound = _START_OVER(queue, **_held(job), life=life, args=args)
    return Operation("start_over", *bound, lambda reply: _answer(job, reply))
