"""How an attempt ends: pure decisions that turn what a handler did into the move that ends the attempt."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CoroutineType
from typing import Any, Final, Literal, NamedTuple

from schedq.errors import RecordFull, StepFailed, UsageError
from schedq.model import backoff as plans
from schedq.model.callables import not_run
from schedq.model.escaping import harmless_traceback
from schedq.model.payload import clean_text, encode_result
from schedq.model.records import ClaimedJob, Settlement
from schedq.model.runs import Run, RunWait
from schedq.model.settings import Settings
from schedq.model.times import LONGEST_MS, Duration, duration_ms

BackoffFunction = Callable[[int, BaseException], float]
"""(attempt, error) → seconds to wait."""
ErrorTypes = type[BaseException] | tuple[type[BaseException], ...]
_PACKAGE: Final = f"{Path(__file__).parents[1]}{os.sep}"
_MACHINERY: Final = tuple(
    f"{_PACKAGE}{part}"
    for part in ("worker/", "workflows/", "dependencies/", "queue/middleware.py", "queue/hooks.py", "queue/workflow.py")
)
_BRIEF: Final = 500
_UNKNOWN_MS: Final = 1000
_MOST_UNKNOWN_MS: Final = 60_000
_LIMITED_MS: Final = 1000
_LEAST_LIMITED_MS: Final = 100


class Decision(Exception):  # noqa: N818 - what a handler asks for, not what went wrong
    """How a handler decides that its attempt ends. Unlike most exceptions with arguments, it can be pickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[Decision], args: tuple[Any, ...], state: dict[str, Any]) -> Decision:
    made = kind.__new__(kind, *args)
    made.__dict__.update(state)
    return made


class Retry(Decision):
    """Raise it in a handler to fail the attempt. The next one starts after `after`, seconds or a timedelta.

    Without `after`, the job's backoff decides. The attempt counts; after the last one the job fails.

    Attributes:
        after_ms: `after` in ms, rounded up; None if it was not given.
    """

    after_ms: int | None = None  # for a subclass whose __init__ does not call this one

    def __init__(self, after: Duration | None = None, reason: str = "the handler asked for a retry") -> None:
        super().__init__(reason)
        self.after_ms = None if after is None else duration_ms(after, "after")


class Discard(Decision):
    """Raise it in a handler to fail the job for good, however many attempts it has left."""

    def __init__(self, reason: str = "the handler discarded the job") -> None:
        super().__init__(reason)


class Snooze(Decision):
    """Raise it in a handler to put the job off by `delay` (seconds or a timedelta), which costs no attempt.

    Attributes:
        delay_ms: `delay` in ms, rounded up.
    """

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay_ms = duration_ms(delay, "delay")


class RateLimited(Decision):
    """Raise it in a handler if another service has refused the call because there were too many.

    No job of the same key starts before `after` has passed, or with `scope="gate"`, none of the whole gate. This job
    is the next one then, and the attempt does not count. A job without a gate is snoozed.

    Args:
        after: seconds or a timedelta, at least 0.1 s. None: 1 s, and twice as long each time in a row, up to a minute.
        scope: what waits: the job's key, or its gate.

    Raises:
        UsageError: an argument is invalid.
    """

    after_ms: int | None = None  # for a subclass whose __init__ does not call this one
    scope: Literal["key", "gate"] = "key"

    def __init__(self, after: Duration | None = None, scope: Literal["key", "gate"] = "key") -> None:
        super().__init__("rate limited" if after is None else f"rate limited for {after}")
        if scope not in ("key", "gate"):
            raise UsageError(f"scope must be 'key' or 'gate', got {scope!r:.80}")
        self.after_ms = None if after is None else max(_LEAST_LIMITED_MS, duration_ms(after, "after"))
        self.scope = scope


_FINAL: Final = (Discard, StepFailed, RecordFull)
"""Errors after which another attempt would only end in the same way."""


class ErrorRules(NamedTuple):
    """The exceptions of a task that are worth another attempt.

    Attributes:
        retry_on: only these are retried; None for all.
        discard_on: these are not retried, even if `retry_on` has them too.
    """

    retry_on: tuple[type[BaseException], ...] | None
    discard_on: tuple[type[BaseException], ...]

    @classmethod
    def of(cls, retry_on: ErrorTypes | None, discard_on: ErrorTypes | None) -> ErrorRules | None:
        """Return the rules of a task, or None if it has none.

        Raises:
            UsageError: one of them is neither an exception type nor a tuple of them.
        """
        if retry_on is None and discard_on is None:
            return None
        retried = None if retry_on is None else _error_types("retry_on", retry_on)
        return cls(retried, () if discard_on is None else _error_types("discard_on", discard_on))

    def is_final(self, error: BaseException | str) -> bool:
        """Whether the job fails for good with this error. A Retry that the handler raised always has its way."""
        if isinstance(error, (str, Retry)):
            return False
        if isinstance(error, self.discard_on):
            return True
        return self.retry_on is not None and not isinstance(error, self.retry_on)


def _error_types(option: str, found: object) -> tuple[type[BaseException], ...]:
    types = found if isinstance(found, tuple) else (found,)
    for each in types:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise UsageError(f"{option} must be an exception type or a tuple of them, got {each!r:.200}")
    return types


class Policy(NamedTuple):
    """The rules for one job: its own options take precedence over its task's, and those over the queue's.

    Attributes:
        max_attempts: how often it may be claimed.
        backoff: a plan, or the task's own function.
        max_payload: the most bytes of a result.
        completed_ttl_ms: how long its task keeps records of completed jobs; None if it does not say.
        failed_ttl_ms: the same for failed and cancelled jobs.
        errors: which exceptions are worth another attempt; None for all.
    """

    max_attempts: int
    backoff: plans.Plan | BackoffFunction
    max_payload: int
    completed_ttl_ms: int | None = None
    failed_ttl_ms: int | None = None
    errors: ErrorRules | None = None

    @classmethod
    def of(
        cls,
        queue: Settings,
        job: ClaimedJob,
        max_attempts: int | None = None,
        backoff: plans.Plan | BackoffFunction | None = None,
        completed_ttl_ms: int | None = None,
        failed_ttl_ms: int | None = None,
        errors: ErrorRules | None = None,
    ) -> Policy:
        """The policy for `job`; the optional arguments are its task's options."""
        return cls(
            job.max_attempts or max_attempts or queue.max_attempts,
            job.backoff or backoff or queue.backoff,
            queue.max_payload,
            completed_ttl_ms,
            failed_ttl_ms,
            errors,
        )


def succeeded(job: ClaimedJob, result: Any, policy: Policy, convert: Callable[[Any], Any] | None = None) -> Settlement:
    """The handler returned, so the job is complete, even if its result can't be stored as it is.

    Args:
        job: the claimed job.
        result: what the handler returned.
        policy: the job's policy.
        convert: converts the result to JSON types; None if it needs no conversion.
    """
    text, problem = encode_result(result, policy.max_payload, convert)
    ttl_ms = policy.completed_ttl_ms
    return Settlement("complete", job.id, job.claim_token, 0, text, problem, "", ttl_ms, job.gate_key)


def check_result(result: Any) -> None:
    """Check that what a handler returned is not unfinished work.

    Raises:
        Discard: it returned code that has not run, such as a generator; another attempt would not help.
    """
    if kind := not_run(result):
        if isinstance(result, CoroutineType):
            result.close()
        raise Discard(f"it returned {kind}, whose code has not run: run it in the task, and return its result")


def lost_too_often(job: ClaimedJob, policy: Policy) -> Discard | None:
    """The error for a job that lost as many leases as it may have attempts; None if it lost fewer.

    The process that reclaimed it may have had another limit: an older release, or one with other task options.
    """
    if job.crashes < policy.max_attempts:
        return None
    times = "1 time" if job.crashes == 1 else f"{job.crashes} times"
    return Discard(f"lease expired {times}, and max_attempts is {policy.max_attempts}: not started again")


def failed(job: ClaimedJob, error: BaseException | str, policy: Policy) -> Settlement:
    """The attempt failed with `error`: retry, fail for good, or what the handler asked for."""
    if isinstance(error, (Snooze, RateLimited)):
        return _put_off(job, error, policy)
    text = described(error)
    says_all = isinstance(error, (str, Discard, Retry)) and getattr(error, "__cause__", None) is None
    trace = "" if says_all or isinstance(error, str) else _rendered(error, _as_stored)
    note = clean_text(text, _BRIEF)
    is_final = isinstance(error, _FINAL) or job.attempts >= policy.max_attempts
    if is_final or (policy.errors is not None and policy.errors.is_final(error)):
        move = "undo" if job.run and _undoes(job, error, policy) else "fail"
        return Settlement(move, job.id, job.claim_token, 0, text, note, trace, policy.failed_ttl_ms, job.gate_key)
    if isinstance(error, Retry) and error.after_ms is not None:
        delay_ms = _requested_delay_ms(error, error.after_ms)
    else:
        delay_ms = _delay_ms(job, error, policy.backoff)
    return Settlement("retry", job.id, job.claim_token, delay_ms, text, note, trace, policy.failed_ttl_ms, job.gate_key)


def _undoes(job: ClaimedJob, error: BaseException | str, policy: Policy) -> bool:
    """Whether a run that fails for good with this error undoes its steps first.

    An error that may be a mistake in the code, such as a NameError outside of steps, undoes nothing.
    """
    run = Run.read(job.run)
    is_decided = isinstance(error, (Discard, StepFailed)) or (
        policy.errors is not None and isinstance(error, policy.errors.discard_on)
    )
    return is_decided and run.undos > 0 and not run.undoing


def _put_off(job: ClaimedJob, error: Snooze | RateLimited, policy: Policy) -> Settlement:
    """The handler put the job off, alone or together with its key or gate. The attempt does not count."""
    move, note, text, delay_ms = "snooze", "", "", getattr(error, "delay_ms", None)
    if isinstance(error, RateLimited):
        delay_ms = _LIMITED_MS if error.after_ms is None else error.after_ms
        if job.gate:  # the script, which has the job's history, knows how often it was limited in a row
            move, note, text = "limit", error.scope, "" if error.after_ms is not None else "doubles"
    delay_ms = _requested_delay_ms(error, delay_ms)
    return Settlement(move, job.id, job.claim_token, delay_ms, text, note, "", policy.failed_ttl_ms, job.gate_key)


def unprocessed(job: ClaimedJob, problem: BaseException, policy: Policy) -> Settlement:
    """Schedq could not process the end of the attempt, so it failed. Runs no code of the application.

    Args:
        job: the claimed job.
        problem: the exception.
        policy: its backoff must not be a function.
    """
    return failed(job, f"the end of the attempt could not be processed: {described(problem)}", policy)


def unknown(job: ClaimedJob, missing: str, queue: Settings, *, is_known_elsewhere: bool = False) -> Settlement:
    """A worker has no function for the job. Another may have it, so the job is put back without spending an attempt.

    The waits grow from 1 s to a minute; each is about as long as the time since the job was first put back. They stay
    at 1 s while a live worker has the function. After the queue's `unknown_for` the job fails.

    Args:
        job: the claimed job.
        missing: what is missing, for the stored error.
        queue: the queue's settings.
        is_known_elsewhere: whether a live worker has the function.
    """
    since_ms = job.unknown_since_ms or job.claimed_at_ms
    passed_ms = max(0, job.claimed_at_ms - since_ms)
    left_ms = duration_ms(queue.unknown_for, "unknown_for") - passed_ms
    text = clean_text(missing, _BRIEF)
    if left_ms <= 0:
        text += f"; no worker that has it took the job within {queue.unknown_for:g} s"
        return Settlement("fail", job.id, job.claim_token, text=text, note=text, gate_key=job.gate_key)
    wait_ms = _UNKNOWN_MS if is_known_elsewhere else min(_MOST_UNKNOWN_MS, passed_ms + _UNKNOWN_MS)
    wait_ms = plans.delay_ms(plans.Fixed(wait_ms / 1000, jitter=0.2), job.attempts)
    wait_ms = min(wait_ms, left_ms)
    return Settlement("snooze", job.id, job.claim_token, wait_ms, text=text, note=text, gate_key=job.gate_key)


def released(job: ClaimedJob) -> Settlement:
    """The worker stops before the job is done, so the job goes back, next in line."""
    return Settlement("release", job.id, job.claim_token, gate_key=job.gate_key)


def suspended(job: ClaimedJob, waits: Sequence[RunWait]) -> Settlement:
    """The run waits, so its job goes back until one of the waits is over; without waits it is next in line."""
    text = json.dumps(waits, separators=(",", ":"))
    return Settlement("suspend", job.id, job.claim_token, text=text, note=job.run, gate_key=job.gate_key)


def past_deadline(job: ClaimedJob, policy: Policy) -> Settlement | None:
    """The end of a run whose deadline had passed when it was claimed: it fails. None if it continues."""
    deadline_ms = Run.read(job.run).deadline_ms if job.run else None
    if deadline_ms is None or job.claimed_at_ms < deadline_ms:
        return None
    return failed(job, Discard("the run took longer than its run_timeout"), policy)


def described(error: BaseException | str) -> str:
    """The error as it is stored: its type and message, cleaned and shortened."""
    if isinstance(error, str):
        return clean_text(error)
    name = "exception"
    try:
        name = type(error).__name__
        text = str(error)
        if text and isinstance(error, (Discard, Retry)):
            return clean_text(text)
        return clean_text(f"{name}: {text}" if text else name)
    except BaseException:  # noqa: BLE001 - a user's __str__ may do anything
        return clean_text(f"{name}: (its text is not available)")


def _as_stored(parts: list[str]) -> str:
    return clean_text("".join(parts)[-8000:])


def log_traceback(error: BaseException) -> str:
    """The traceback for a log; every text of an exception is on one line."""
    return _rendered(error, harmless_traceback)


def _rendered(error: BaseException, render: Callable[[list[str]], str]) -> str:
    """The traceback from the handler on, without schedq's own frames above it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    try:
        found = traceback.TracebackException(type(error), error, frames or error.__traceback__, compact=True)
        _leave_out_machinery(found)
        return render(list(found.format()))
    except BaseException:  # noqa: BLE001 - a user's exception may do anything
        return ""


def _leave_out_machinery(outermost: traceback.TracebackException) -> None:
    """Remove the frames of schedq between middleware and handler, also from the tracebacks of causes."""
    left = [outermost]
    while left:
        found = left.pop()
        if kept := [frame for frame in found.stack if not frame.filename.startswith(_MACHINERY)]:
            found.stack[:] = kept
        left += [each for each in (found.__cause__, found.__context__, *(found.exceptions or ())) if each is not None]


def _requested_delay_ms(error: Retry | Snooze | RateLimited, delay_ms: object) -> int:
    """The delay that a handler asked for.

    Raises:
        UsageError: it is invalid, because a subclass set another one or did not call `super().__init__`.
    """
    if isinstance(delay_ms, int) and not isinstance(delay_ms, bool) and 0 <= delay_ms <= LONGEST_MS:
        return delay_ms
    raise UsageError(
        f"{type(error).__name__} has no valid delay, got {delay_ms!r} ms; its __init__ must call super().__init__(...)"
    )


def _delay_ms(job: ClaimedJob, error: BaseException | str, backoff: plans.Plan | BackoffFunction) -> int:
    if not callable(backoff):
        return plans.delay_ms(backoff, job.attempts)
    try:
        cause = error if isinstance(error, BaseException) else RuntimeError(error)
        return min(duration_ms(backoff(job.attempts, cause), "backoff"), LONGEST_MS)
    except BaseException:  # noqa: BLE001 - a user's function may do anything; the job must come back
        return plans.delay_ms(plans.Exponential(), job.attempts)
