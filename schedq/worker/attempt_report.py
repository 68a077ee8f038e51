"""What observers and the log are told of attempts: their start and end, and a line for each job that has finished."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from typing import Final

from schedq.background.observers import Observers
from schedq.logs import AttemptLog, log
from schedq.model import outcome
from schedq.model.records import Settlement
from schedq.model.times import monotonic
from schedq.observer import AttemptEnd, Observer, Outcome, attempt_facts
from schedq.worker.attempt import Attempt

MOST_PER_S: Final = 20
"""Jobs a second that get a line each."""
_WINDOW_S: Final = 1.0
_SUMMARY_S: Final = 10.0
_OUTCOMES: Final[dict[str, Outcome]] = {
    "complete": "completed",
    "snooze": "snoozed",
    "release": "released",
    "retry": "retry",
    "fail": "failed",
}
_WORDS: Final = _OUTCOMES | {"retry": "to be tried again"}


class AttemptReport:
    """Reports the start and the end of each attempt at jobs of one queue. Used on the worker's event loop only.

    Args:
        lines: those of the log, for all queues of the worker.
        observers: told of both.
    """

    def __init__(self, lines: JobLines, observers: Observers) -> None:
        has_more = log.isEnabledFor(logging.DEBUG) and observers.has(AttemptLog)
        self._lines = JobLines("", is_silent=True) if has_more else lines
        self._observers = observers

    def started(self, attempt: Attempt) -> None:
        """The attempt begins; `name` says what it runs, if anything here can."""
        attempt.began_at = monotonic()
        if self._observers.is_watched and attempt.facts is None:
            attempt.facts = attempt_facts(attempt.queue, attempt.worker, attempt.name, attempt.job)
            self._observers.notify(Observer.attempt_started, attempt.facts)

    def finished(self, attempt: Attempt, raised: BaseException | None) -> None:
        """How the attempt ends is decided; `raised` by its handler is told to observers."""
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


class JobLines:
    """A line of the log for each job that has finished, at level info; at high rates one line for all of some seconds.

    A busy worker then pays for counting alone: no clock is read and nothing is formatted until the summary.

    Args:
        worker_id: names the worker.
        is_silent: nothing is to be logged, because an observer logs a line for each attempt.

    Attributes:
        left: jobs that get a line of their own before the next look; the others are counted.
        counts: how many ended so, by move.
    """

    def __init__(self, worker_id: str, *, is_silent: bool = False) -> None:
        self._worker_id = worker_id
        self.left = 0 if is_silent else MOST_PER_S
        self.counts = dict.fromkeys(_WORDS, 0)
        self._counted_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._context = contextvars.copy_context()  # the timer is no job's, though a job's end starts it

    def say(self, attempt: Attempt, settlement: Settlement) -> None:
        """Log how an attempt ended."""
        if self._timer is None:
            self._counted_since = monotonic()
            self._wait(_WINDOW_S, self._look)
        self.left -= 1
        if settlement.move in ("retry", "fail") and not attempt.is_stop_requested:
            return  # it has a line of its own, a warning or an error
        if not attempt.name or not log.isEnabledFor(logging.INFO):
            return
        is_cancelled = attempt.is_stop_requested and settlement.move != "complete"
        said = "cancelled" if is_cancelled else _WORDS[settlement.move]
        took = monotonic() - attempt.began_at
        text = "job %s: %s %s, attempt %d, %.3f s"
        fields = attempt.fields() | {"outcome": said}
        log.info(text, attempt.job.id, attempt.name, said, attempt.job.attempts, took, extra=fields)

    def close(self) -> None:
        """The worker leaves: log what was only counted."""
        if self._timer is not None:
            self._timer.cancel()
            self._summarise()

    def _wait(self, seconds: float, look: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, look, context=self._context)

    def _look(self) -> None:
        """A second is over: go on with a line each, unless there were too many."""
        if any(self.counts.values()):
            self._wait(_SUMMARY_S, self._look_again)
        else:
            self._rest()

    def _look_again(self) -> None:
        """Some seconds of counting are over: log the counts, and count on while there are that many."""
        is_busy = sum(self.counts.values()) > MOST_PER_S * _SUMMARY_S
        self._summarise()
        if is_busy:
            self._wait(_SUMMARY_S, self._look_again)
        else:
            self._rest()

    def _rest(self) -> None:
        self._timer, self.left = None, MOST_PER_S

    def _summarise(self) -> None:
        """Say how many jobs were counted, and count from 0."""
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
    """How an attempt ends, for observers; no settlement: it was lost."""
    duration_s = monotonic() - attempt.began_at
    if settlement is None:
        return AttemptEnd("lost", duration_s)
    if settlement.move == "complete":
        return AttemptEnd("completed", duration_s)
    word: Outcome = "cancelled" if attempt.is_stop_requested else _OUTCOMES[settlement.move]
    return AttemptEnd(word, duration_s, settlement.note, settlement.delay_ms, raised)


def log_failure(attempt: Attempt, settlement: Settlement, raised: BaseException | None) -> None:
    """Log a failure: the last one with its traceback, others in a line, to which level debug adds the traceback."""
    job, text = attempt.job, settlement.note
    fields = attempt.fields(text)
    if settlement.move == "retry":
        said = "job %s: %s failed, attempt %d: %s; again in %.1f s"
        shown = raised if log.isEnabledFor(logging.DEBUG) else None
        below = "" if shown is None else outcome.log_traceback(shown)
        wait = settlement.delay_ms / 1000
        log.warning(said, job.id, attempt.name, job.attempts, text, wait, extra=fields, exc_info=shown, below=below)
    elif settlement.move == "fail":
        said = "job %s: %s failed for good, attempt %d: %s"
        below = "" if raised is None else outcome.log_traceback(raised)
        log.error(said, job.id, attempt.name, job.attempts, text, extra=fields, exc_info=raised, below=below)
