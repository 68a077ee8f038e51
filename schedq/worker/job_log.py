"""One line of the log for each job that a worker has finished; at high rates one for all of the last seconds."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Final

from schedq.clocks import monotonic
from schedq.job import Settlement
from schedq.logger import log
from schedq.worker.held import Attempt

MOST_PER_S: Final = 20
"""Jobs a second that get a line each."""
_WINDOW_S: Final = 1.0
_SUMMARY_S: Final = 10.0
_SAID_AT_THEIR_END: Final = ("retry", "fail")
_WORDS: Final = {
    "complete": "completed",
    "snooze": "snoozed",
    "release": "released",
    "retry": "to be tried again",
    "fail": "failed",
}


class JobLog:
    """Says what became of jobs, at level info. Used on the worker's event loop only.

    A busy worker pays for counting alone: no clock is read and nothing is formatted until the summary.

    Args:
        worker_id: names the worker.
        is_on: there is no other line for each job.
    """

    def __init__(self, worker_id: str, *, is_on: bool = True) -> None:
        self._worker_id = worker_id
        self._lines_left = MOST_PER_S if is_on else 0
        self._counts = dict.fromkeys(_WORDS, 0)
        self._counted_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._context = contextvars.copy_context()  # the timer is no job's, though a job's end starts it

    def ended(self, attempt: Attempt, settlement: Settlement) -> None:
        """An attempt has ended in this way."""
        if self._lines_left:
            self._say(attempt, settlement)
        else:
            self._counts[settlement.move] += 1

    def close(self) -> None:
        """The worker goes: say what was only counted."""
        if self._timer is not None:
            self._timer.cancel()
            self._summarise()

    def _say(self, attempt: Attempt, settlement: Settlement) -> None:
        if self._timer is None:
            self._start(_WINDOW_S)
        self._lines_left -= 1
        if settlement.move in _SAID_AT_THEIR_END and not attempt.is_cancelled:
            return  # it has a line of its own, a warning or an error
        if not attempt.name or not log.isEnabledFor(logging.INFO):
            return
        is_cancelled = attempt.is_cancelled and settlement.move != "complete"
        outcome = "cancelled" if is_cancelled else _WORDS[settlement.move]
        fields = attempt.fields() | {"outcome": outcome}
        took = monotonic() - attempt.began_at
        said = "job %s: %s %s, attempt %d, %.3f s"
        log.info(said, attempt.job.id, attempt.name, outcome, attempt.job.attempts, took, extra=fields)

    def _start(self, seconds: float) -> None:
        self._counted_since = monotonic()
        look = self._look if seconds == _WINDOW_S else self._look_again
        self._timer = asyncio.get_running_loop().call_later(seconds, look, context=self._context)

    def _look(self) -> None:
        """A second is over: go on with a line each, unless there were too many."""
        if any(self._counts.values()):
            self._timer = asyncio.get_running_loop().call_later(_SUMMARY_S, self._look_again, context=self._context)
        else:
            self._rest()

    def _look_again(self) -> None:
        """Some seconds of counting are over: say what came of them, and go on so while there are that many."""
        is_busy = sum(self._counts.values()) > MOST_PER_S * _SUMMARY_S
        self._summarise()
        if is_busy:
            self._start(_SUMMARY_S)
        else:
            self._rest()

    def _rest(self) -> None:
        self._timer, self._lines_left = None, MOST_PER_S

    def _summarise(self) -> None:
        """Say how many jobs were counted, and count from 0."""
        counts, self._counts = self._counts, dict.fromkeys(_WORDS, 0)
        seconds, total = monotonic() - self._counted_since, sum(counts.values())
        if not total:
            return
        parts = [f"{count:,} {_WORDS[move]}" for move, count in counts.items() if count]
        fields = {"worker": self._worker_id, "jobs": total, "duration_s": round(seconds, 3)}
        said = "worker %s: %s in the last %.0f s"
        jobs = f"{parts[0].replace(' ', ' jobs ', 1)}{''.join(f', {part}' for part in parts[1:])}"
        log.info(said, self._worker_id, jobs, max(1.0, seconds), extra=fields)
