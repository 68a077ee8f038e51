"""Handlers that do not end when they are told to: they are told again, and then their slots count as stuck.

A thread can't be ended from outside, and a coroutine may swallow its cancellation. Their jobs are settled without them,
but each of them still holds one of the worker's slots.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from schedq.logs import log
from schedq.model.times import monotonic
from schedq.worker.attempt import Attempt

_FIRST_WAIT_S: Final = 1.0
_AGAIN_S: Final = 60.0
_MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class StuckSlot:
    """One slot whose handler does not end.

    Attributes:
        queue: name of the job's queue.
        task: name of its task, or 'handler'.
        job_id: the job.
        why: the handler was told to end: 'timed out', 'cancelled' or 'lost its lease'.
        since: when it was, on the monotonic clock.
    """

    queue: str
    task: str
    job_id: str
    why: str
    since: float

    @property
    def for_s(self) -> float:
        """Seconds that have passed since."""
        return monotonic() - self.since


class StuckSlots:
    """The stuck slots of one worker, and what the log says of them. Any thread may read.

    Args:
        worker_id: names the worker in the log.
        size: slots that the worker has.
        patience: seconds that a handler which was told to end may go on before its slot is stuck.
        changed: called on the worker's loop whenever a slot is stuck, or free again.
    """

    def __init__(self, worker_id: str, size: int, patience: float, changed: Callable[[], None] = lambda: None) -> None:
        self.size = size
        self.patience = patience
        self._worker_id = worker_id
        self._changed = changed
        self._found: dict[Attempt, StuckSlot] = {}
        self._are_all_said = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def found(self) -> list[StuckSlot]:
        """The stuck slots now."""
        return list(self._found.values())

    @property
    def are_all(self) -> bool:
        """No slot is left for other jobs."""
        return len(self._found) >= self.size

    def add(self, attempt: Attempt, slot: StuckSlot) -> None:
        """The slot of this attempt is stuck."""
        self._found[attempt] = slot
        if self._is_closed:
            return
        text = "job %s: %s does not end (%s %.0f s ago); its slot is stuck: %d of %d"
        fields = attempt.fields(f"{slot.why}, does not end")
        log.warning(text, slot.job_id, slot.task, slot.why, slot.for_s, len(self._found), self.size, extra=fields)
        if self.are_all and not self._are_all_said:
            self._are_all_said = True
            self._say_that_all_are()
        self._changed()

    def remove(self, attempt: Attempt) -> None:
        """The handler of this attempt has ended after all."""
        slot = self._found.pop(attempt, None)
        if slot is None or self._is_closed:
            return
        text = "job %s: %s has ended after all, %.0f s after it was told to; its slot is free again"
        log.info(text, slot.job_id, slot.task, slot.for_s, extra=attempt.fields())
        if self._are_all_said:
            self._are_all_said = False
            free = self.size - len(self._found)
            log.warning("worker %s: %d of %d slots are free again", self._worker_id, free, self.size)
        self._changed()

    def close(self) -> None:
        """The worker leaves: log nothing further."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _say_that_all_are(self) -> None:
        """Say so now, and once a minute while it lasts."""
        if not self.are_all:
            return
        text = "worker %s: %s; it runs no other job until a slot is free or it is restarted"
        log.error(text, self._worker_id, summary(self.found, self.size))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_AGAIN_S, self._say_that_all_are)


class RepeatedInterrupt:
    """Tells one handler to end again, after 1, 2, 4 … s, for as long as the patience lasts.

    Args:
        attempt: whose handler has just been told to end.
        loop: the worker's.
        why: it was told to: 'timed out', 'cancelled' or 'lost its lease'.
        patience: seconds until it is given up.
        give_up: called then.
    """

    def __init__(
        self,
        attempt: Attempt,
        loop: asyncio.AbstractEventLoop,
        why: str,
        patience: float,
        give_up: Callable[[Attempt], Any],
    ) -> None:
        self.since = monotonic()
        self.why = why
        self._attempt = attempt
        self._loop = loop
        self._ends_at = self.since + patience
        self._give_up = give_up
        self._wait_s = _FIRST_WAIT_S
        self._timer = self._next()

    def end(self) -> None:
        """The handler has ended."""
        self._timer.cancel()

    def _next(self) -> asyncio.TimerHandle:
        wait = min(self._wait_s, self._ends_at - monotonic())
        self._wait_s *= 2
        return self._loop.call_later(max(0.0, wait), self._again)

    def _again(self) -> None:
        if monotonic() >= self._ends_at:
            self._give_up(self._attempt)
            return
        if self._attempt.thread_id is None:  # a thread can see it in `current_job()`, and nothing else can be done
            self._attempt.interrupt()
        self._timer = self._next()


def summary(slots: list[StuckSlot], size: int) -> str:
    """All slots of a worker are stuck, in one line: by which tasks, and one job of each."""
    counts = Counter((slot.queue, slot.task, slot.why) for slot in slots)
    jobs = {(slot.queue, slot.task, slot.why): slot.job_id for slot in reversed(slots)}
    named = [
        f"{task} of queue {queue} ({why}{f', {count} times' if count > 1 else ''}, job {jobs[queue, task, why]})"
        for (queue, task, why), count in counts.most_common(_MOST_NAMED)
    ]
    more = len(counts) - len(named)
    which = ", ".join([*named, *([f"{more} more"] if more else [])])
    held = (
        "its only slot is held by a handler that does not end"
        if size == 1
        else (f"all {size} slots are held by handlers that do not end")
    )
    return f"{held}: {which}"
