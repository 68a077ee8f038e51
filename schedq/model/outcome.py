"""What becomes of an attempt: pure decisions, from what a handler did to the one move that ends the attempt."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CoroutineType
from typing import Any, Final, NamedTuple

from schedq.errors import UsageError
from schedq.model import backoff as plans
from schedq.model.callables import not_run
from schedq.model.escaping import harmless_traceback
from schedq.model.payload import clean_text, encode_result
from schedq.model.records import ClaimedJob, Settlement
from schedq.model.settings import Settings
from schedq.model.times import LONGEST_MS, Duration, duration_ms

BackoffFunction = Callable[[int, BaseException], float]
"""(attempt, error) → seconds to wait."""
_OURS: Final = f"{Path(__file__).parents[1]}{os.sep}"
_BRIEF: Final = 500
_UNKNOWN_MS: Final = 1000
_MOST_UNKNOWN_MS: Final = 60_000


class Retry(Exception):  # noqa: N818 - what a handler asks for, not what went wrong
    """Raise it in a handler: the attempt failed, and the next one comes `after` (seconds or a timedelta).

    Without `after` the job's backoff says when. It counts as an attempt; after the last one the job fails.
    """

    after_ms: int | None = None  # of a subclass whose __init__ does not call this one

    def __init__(self, after: Duration | None = None, reason: str = "the handler asked for a retry") -> None:
        super().__init__(reason)
        self.after_ms = None if after is None else duration_ms(after, "after")


class Discard(Exception):  # noqa: N818 - what a handler asks for, not what went wrong
    """Raise it in a handler: the job has failed for good, whatever attempts it has left."""

    def __init__(self, reason: str = "the handler discarded the job") -> None:
        super().__init__(reason)


class Snooze(Exception):  # noqa: N818 - what a handler asks for, not what went wrong
    """Raise it in a handler: not now, again in `delay` (seconds or a timedelta); it costs no attempt."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay_ms = duration_ms(delay, "delay")


class Policy(NamedTuple):
    """What applies to one job: its own options before its task's, those before the queue's.

    Attributes:
        max_attempts: claims it gets.
        backoff: a plan, or a task's own function.
        max_payload: bytes that a result may have.
    """

    max_attempts: int
    backoff: plans.Plan | BackoffFunction
    max_payload: int

    @classmethod
    def of(
        cls,
        queue: Settings,
        job: ClaimedJob,
        max_attempts: int | None = None,
        backoff: plans.Plan | BackoffFunction | None = None,
    ) -> Policy:
        """The policy for `job`; the optional arguments are its task's."""
        return cls(
            job.max_attempts or max_attempts or queue.max_attempts,
            job.backoff or backoff or queue.backoff,
            queue.max_payload,
        )


def succeeded(job: ClaimedJob, result: Any, policy: Policy, convert: Callable[[Any], Any] | None = None) -> Settlement:
    """The handler returned: the job is complete, also when its result can't be stored as it is.

    Args:
        job: what was claimed.
        result: what it returned.
        policy: of the job.
        convert: makes JSON types of the result; None if it needs no conversion.
    """
    text, problem = encode_result(result, policy.max_payload, convert)
    return Settlement("complete", job.id, job.claim_token, text=text, note=problem)


def check_result(result: Any) -> None:
    """Nothing, if what a handler returned shows that its work is done.

    Raises:
        Discard: it returned code that has not run, as a generator; the next attempt would do no better.
    """
    if kind := not_run(result):
        if isinstance(result, CoroutineType):
            result.close()
        raise Discard(f"it returned {kind}, whose code has not run: run that in the task, and return what comes of it")


def lost_too_often(job: ClaimedJob, policy: Policy) -> Discard | None:
    """Why a job is not begun again after the leases that it has lost: as many as it may have attempts; or None.

    The process that took it back may have known another limit: an older release, or one with other task options.
    """
    if job.crashes < policy.max_attempts:
        return None
    times = "1 time" if job.crashes == 1 else f"{job.crashes} times"
    return Discard(f"lease expired {times}, and max_attempts is {policy.max_attempts}: not begun again")


def failed(job: ClaimedJob, error: BaseException | str, policy: Policy) -> Settlement:
    """The attempt failed with `error`: retry, fail for good, or snooze if the handler asked for that."""
    if isinstance(error, Snooze):
        delay_ms = _asked(error, getattr(error, "delay_ms", None))
        return Settlement("snooze", job.id, job.claim_token, delay_ms=delay_ms)
    text = described(error)
    trace = "" if isinstance(error, (str, Discard, Retry)) else _rendered(error, _as_stored)
    note = clean_text(text, _BRIEF)
    if isinstance(error, Discard) or job.attempts >= policy.max_attempts:
        return Settlement("fail", job.id, job.claim_token, text=text, note=note, traceback=trace)
    if isinstance(error, Retry) and error.after_ms is not None:
        delay_ms = _asked(error, error.after_ms)
    else:
        delay_ms = _delay_ms(job, error, policy.backoff)
    return Settlement("retry", job.id, job.claim_token, delay_ms, text=text, note=note, traceback=trace)


def unprocessed(job: ClaimedJob, problem: BaseException, policy: Policy) -> Settlement:
    """Schedq could not process what the handler did: the attempt failed. Runs no code of the application.

    Args:
        job: what was claimed.
        problem: what was raised.
        policy: its backoff must not be a function.
    """
    return failed(job, f"the end of the attempt could not be processed: {described(problem)}", policy)


def unknown(job: ClaimedJob, missing: str, queue: Settings, *, is_known_elsewhere: bool = False) -> Settlement:
    """A worker has no function for the job: another may have it, so it is put back, and no attempt is spent.

    The waits grow from 1 s to a minute, about as long as the job has been put back so far. They stay at 1 s while a
    live worker has the function. After the queue's `unknown_for` the job fails.

    Args:
        job: what it claimed.
        missing: what is missing, for the stored error.
        queue: the queue's settings.
        is_known_elsewhere: a live worker has the function.
    """
    since_ms = job.unknown_since_ms or job.claimed_at_ms
    passed_ms = max(0, job.claimed_at_ms - since_ms)
    left_ms = duration_ms(queue.unknown_for, "unknown_for") - passed_ms
    text = clean_text(missing, _BRIEF)
    if left_ms <= 0:
        text += f"; no worker that has it took the job within {queue.unknown_for:g} s"
        return Settlement("fail", job.id, job.claim_token, text=text, note=text)
    wait_ms = _UNKNOWN_MS if is_known_elsewhere else min(_MOST_UNKNOWN_MS, passed_ms + _UNKNOWN_MS)
    wait_ms = plans.delay_ms(plans.Fixed(wait_ms / 1000, jitter=0.2), job.attempts)
    return Settlement("snooze", job.id, job.claim_token, min(wait_ms, left_ms), text=text, note=text)


def released(job: ClaimedJob) -> Settlement:
    """The worker goes before the job is done: it is next in line elsewhere."""
    return Settlement("release", job.id, job.claim_token)


def described(error: BaseException | str) -> str:
    """The error as it is stored: what it is and what it says, cleaned and bounded."""
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
        return clean_text(f"{name}: (its text can't be had)")


def _as_stored(parts: list[str]) -> str:
    return clean_text("".join(parts)[-8000:])


def log_traceback(error: BaseException) -> str:
    """The same traceback for a log: its texts are on one line each."""
    return _rendered(error, harmless_traceback)


def _rendered(error: BaseException, render: Callable[[list[str]], str]) -> str:
    """The traceback from where the handler begins: how it came to be called says nothing of it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    try:
        return render(traceback.format_exception(type(error), error, frames or error.__traceback__))
    except BaseException:  # noqa: BLE001 - a user's exception may do anything
        return ""


def _asked(error: Retry | Snooze, delay_ms: object) -> int:
    """The delay that a handler asked for.

    Raises:
        UsageError: it is none, because a subclass set another one or did not call `super().__init__`.
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
