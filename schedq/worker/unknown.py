"""What a worker does with jobs whose task it does not have: puts them back for others, and says so now and then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schedq import outcome
from schedq.application import Application
from schedq.clocks import monotonic
from schedq.job import Settlement
from schedq.logger import log
from schedq.operations.directory import WorkerRecord
from schedq.payload import clean_text
from schedq.registry import NoHandler
from schedq.worker.held import Attempt

_QUIET_S: Final = 60.0
"""Seconds between two lines of the log about one task."""
_MOST_REMEMBERED: Final = 1000
_MOST_NAMED: Final = 20


class UnknownTasks:
    """The tasks that jobs of one queue asked for and that this process lacks: perhaps a deploy is under way."""

    def __init__(self, queue: Application) -> None:
        self._queue = queue
        self._said_at: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}
        self._elsewhere: frozenset[str] = frozenset()
        self._met_at = -_QUIET_S

    @property
    def is_curious(self) -> bool:
        """Such a job came of late, so that it matters which tasks other workers have. Any thread may ask."""
        return monotonic() - self._met_at < _QUIET_S

    def learn(self, me: str, crew: Sequence[WorkerRecord]) -> None:
        """Take in which tasks the other live workers have. Any thread may call it."""
        others = [worker for worker in crew if worker.id != me and not worker.is_stopping]
        names = {task for worker in others for task in worker.tasks}
        self._elsewhere = frozenset(names | {""} if any(worker.has_handler for worker in others) else names)

    def put_back(self, attempt: Attempt, missing: NoHandler) -> Settlement:
        """How such an attempt ends; says so at most once a minute for each task."""
        if not self.is_curious:
            self._elsewhere = frozenset()  # what was known of others is old
        self._met_at = monotonic()
        is_elsewhere = missing.task in self._elsewhere
        job, settings = attempt.job, self._queue.settings
        settlement = outcome.unknown(job, str(missing), settings, is_known_elsewhere=is_elsewhere)
        if settlement.move == "fail":
            log.error("job %s: %s; failed", job.id, settlement.note, extra=attempt.fields(settlement.note))
        else:
            self._say(attempt, missing, is_elsewhere=is_elsewhere)
        return settlement

    def _say(self, attempt: Attempt, missing: NoHandler, *, is_elsewhere: bool) -> None:
        now, name = monotonic(), missing.task
        if now - self._said_at.get(name, -_QUIET_S) < _QUIET_S:
            self._unsaid[name] = self._unsaid.get(name, 0) + 1
            return
        if len(self._said_at) >= _MOST_REMEMBERED:
            self._said_at = {task: at for task, at in self._said_at.items() if now - at < _QUIET_S}
            self._unsaid = {task: count for task, count in self._unsaid.items() if task in self._said_at}
            if len(self._said_at) >= _MOST_REMEMBERED:
                return  # names without end are no tasks, and must not fill the log
        self._said_at[name] = now
        more = self._unsaid.pop(name, 0)
        log.warning(
            "job %s: %s%s; put back for up to %g s without spending attempts (%s); this worker's tasks: %s",
            attempt.job.id,
            clean_text(str(missing), 500),
            f", nor for {more:,} put back before it" if more else "",
            self._queue.settings.unknown_for,
            "another live worker has it" if is_elsewhere else "is a deploy under way?",
            self._own(),
            extra=attempt.fields(clean_text(str(missing), 500)),
        )

    def _own(self) -> str:
        """The names of this worker's tasks."""
        names = sorted(self._queue.registry.names)
        rest = len(names) - _MOST_NAMED
        shown = ", ".join(names[:_MOST_NAMED]) or "none"
        return f"{shown} and {rest} more" if rest > 0 else shown
