"""Reports attempts to observers and to the log: their start, their end, and a line for each finished job."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from typing import Final

from schedq.background.observers import Observers
from schedq.isolation.remote_error import from_child
from schedq.logs import AttemptLog, log
from schedq.model import outcome
from schedq.model.records import Settlement
from schedq.model.times import monotonic
from schedq.observer import AttemptEnd, Observer, Outcome, attempt_facts
from schedq.worker.attempt import Attempt

MOST_PER_S: Final = 20
"""Jobs per second that get a log line each."""
_WINDOW_S: Final = 1.0
_SUMMARY_S: Final = 10.0
_OUTCOMES: Final[dict[str, Outcome]] = {
    "complete": "completed",
    "snooze": "snoozed",
    "limit": "snoozed",
    "release": "released",
    "suspend": "suspended",
    "retry": "retry",
    "undo": "retry",
    "fail": "failed",
}
_WORDS: Final = _OUTCOMES | {"retry": "to be tried again", "limit": "rate limited"}


class AttemptReport:
    """Reports the start and the end of each attempt at jobs of one queue. Used on the worker's event loop only.

    Args:
        lines: the log lines of all queues of the worker.
        observers: notified of both.
    """

    def __init__(self, lines: JobLines, observers: Observers) -> None:
        has_more = log.isEnabledFor(logging.DEBUG) and observers.has(AttemptLog)
        self._lines = JobLines("", is_silent=True) if has_more else lines
        self._observers = observers

    def started(self, attempt: Attempt) -> None:
        """Report that the attempt begins. Its `name` is empty if this process has no function for the job."""
        attempt.began_at = monotonic()
        if self._observers.is_watched and attempt.facts is None:
            attempt.facts = attempt_facts(attempt.queue, attempt.worker, attempt.name, attempt.job)
            self._observers.notify(Observer.attempt_started, attempt.facts)

    def finished(self, attempt: Attempt, raised: BaseException | None) -> None:
        """Report the outcome of the attempt. Observers also receive `raised`, the exception of the handler."""
        settlement = attempt.settlement
        if settlement is None:
            if attempt.facts is not None:
                self._observers.notify(Observer.lease_lost, attempt.queue, attempt.job.id)
        elif self._lines.left:
            self._lines.say(attempt, settlement)
        else:
            self._lines.counts[settlement.move] += 1
        if attempt.facts is not None:
            self._observers.notify(Observer.attempt_ended, attempt.facts, _end(attempt, settlement, raised))

    def failed(self, attempt: Attempt, settlement: Settlement, raised: BaseException | None) -> None:
        """Log a failure, unless the attempt was lost or asked to stop."""
        log_failure(attempt, settlement, raised)


class JobLines:
    """Logs a line for each finished job at level info. At high rates one line sums up several seconds.

    A busy worker then only counts: it reads no clock and formats nothing until the summary.

    Args:
        worker_id: names the worker.
        is_silent: log nothing, because an observer logs a line for each attempt.

    Attributes:
        left: the number of jobs that still get a line of their own in this second; further jobs are only counted.
        counts: the number of counted jobs by outcome.
    """

    def __init__(self, worker_id: str, *, is_silent: bool = False) -> None:
        self._worker_id = worker_id
        self.left = 0 if is_silent else MOST_PER_S
        self.counts = dict.fromkeys(_WORDS, 0)
        self._counted_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._context = contextvars.copy_context()  # else the timer would run in the context of the job that starts it

    def say(self, attempt: Attempt, settlement: Settlement) -> None:
        """Log the outcome of an attempt."""
        if self._timer is None:
            self._counted_since = monotonic()
            self._wait(_WINDOW_S, self._look)
        self.left -= 1
        if settlement.move in ("retry", "fail", "undo") and not attempt.is_stop_requested:
            return  # `log_failure` logs it as a warning or an error
        if not attempt.name or not log.isEnabledFor(logging.INFO):
            return
        is_cancelled = attempt.is_stop_requested and settlement.move != "complete"
        said = "cancelled" if is_cancelled else _WORDS[settlement.move]
        took = monotonic() - attempt.began_at
        text = "job %s: %s %s, attempt %d, %.3f s"
        fields = attempt.fields() | {"outcome": said}
        log.info(text, attempt.job.id, attempt.name, said, attempt.job.attempts, took, extra=fields)

    def close(self) -> None:
        """Log what was only counted so far. The worker is stopping."""
        if self._timer is not None:
            self._timer.cancel()
            self._summarise()

    def _wait(self, seconds: float, look: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, look, context=self._context)

    def _look(self) -> None:
        """At the end of a second: log a line per job again, unless there were too many jobs."""
        if any(self.counts.values()):
            self._wait(_SUMMARY_S, self._look_again)
        else:
            self._rest()

    def _look_again(self) -> None:
        """At the end of some seconds of counting: log the counts, and keep counting while the rate is that high."""
        is_busy = sum(self.counts.values()) > MOST_PER_S * _SUMMARY_S
        self._summarise()
        if is_busy:
            self._wait(_SUMMARY_S, self._look_again)
        else:
            self._rest()

    def _rest(self) -> None:
        self._timer, self.left = None, MOST_PER_S

    def _summarise(self) -> None:
        """Log how many jobs were counted, and start again from 0."""
        counts, self.counts = self.counts, dict.fromkeys(_WORDS, 0)
        now, total = monotonic(), sum(counts.values())
        seconds, self._counted_since = now - self._counted_since, now
        if not total:
            return
        parts = [f"{count:,} {_WORDS[move]}" for move, count in counts.items() if count]
        jobs = ", ".join([parts[0].replace(" ", " jobs ", 1), *parts[1:]])
        fields = {"worker": self._worker_id, "jobs": total, "duration_s": round(seconds, 3)}
        log.info("worker %s: %s in the last %.0f s", self._worker_id, jobs, max(1.0, seconds), extra=fields)


def _end(attempt: Attempt, settlement: Settlement | None, raised: BaseException | None) -> AttemptEnd:
    """Return the outcome of an attempt as observers receive it. Without a settlement the attempt was lost."""
    duration_s = monotonic() - attempt.began_at
    if settlement is None:
        return AttemptEnd("lost", duration_s)
    if settlement.move == "complete":
        return AttemptEnd("completed", duration_s)
    word: Outcome = "cancelled" if attempt.is_stop_requested else _OUTCOMES[settlement.move]
    error = "" if settlement.move in ("limit", "suspend") else settlement.note
    return AttemptEnd(word, duration_s, error, settlement.delay_ms, raised)


def log_failure(attempt: Attempt, settlement: Settlement, raised: BaseException | None) -> None:
    """Log a failure: the final one with its traceback, others in one line. Level debug adds the traceback to these."""
    job, text = attempt.job, settlement.note
    fields = attempt.fields(text)
    if settlement.move == "retry":
        said = "job %s: %s failed, attempt %d: %s; next attempt in %.1f s"
        shown = raised if log.isEnabledFor(logging.DEBUG) else None
        below = "" if shown is None else _traceback(shown, settlement)
        wait = settlement.delay_ms / 1000
        log.warning(said, job.id, attempt.name, job.attempts, text, wait, extra=fields, exc_info=shown, below=below)
    elif settlement.move in ("fail", "undo"):
        after = "; its steps are undone now" if settlement.move == "undo" else ""
        said = f"job %s: %s failed for good, attempt %d: %s{after}"
        below = "" if raised is None else _traceback(raised, settlement)
        log.error(said, job.id, attempt.name, job.attempts, text, extra=fields, exc_info=raised, below=below)


def _traceback(raised: BaseException, settlement: Settlement) -> str:
    """Return the traceback for the log. That of a child process is already a text, of several lines."""
    return settlement.traceback if from_child(raised) else outcome.log_traceback(raised)
