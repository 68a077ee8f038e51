"""Handlers that do not end when asked to: they are interrupted repeatedly, and then their slots count as stuck.

A thread can't be stopped from outside, and a coroutine may suppress its cancellation. The jobs of such handlers are
settled without them, but each handler still holds one of the worker's slots. In place of such threads, up to half as
many as it has slots, the worker starts others with slots of their own. Beyond that it claims only what it can run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from schedq.inspect.display import count as plural
from schedq.logs import log
from schedq.model.times import monotonic
from schedq.worker.attempt import OPEN, Attempt

_FIRST_WAIT_S: Final = 1.0
_AGAIN_S: Final = 60.0
_MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class StuckSlot:
    """One slot whose handler does not end.

    Attributes:
        queue: the name of the job's queue.
        task: the name of its task, or 'handler'.
        job_id: the job.
        why: why the handler was asked to end: 'timed out', 'cancelled' or 'lost its lease'.
        since: when it was asked, on the monotonic clock.
    """

    queue: str
    task: str
    job_id: str
    why: str
    since: float

    @property
    def for_s(self) -> float:
        """Seconds since the handler was asked to end."""
        return monotonic() - self.since


class StuckSlots:
    """The stuck slots of one worker, and their log messages. Any thread may read them.

    Args:
        worker_id: names the worker in the log.
        size: the number of slots of the worker.
        patience: seconds that a handler which was asked to end may continue before its slot is stuck.
        changed: called on the worker's loop whenever a slot becomes stuck or free again.
        too_many: how many stuck slots are too many; None: any number is accepted.

    Attributes:
        lent: how many slots the worker has more, in place of those of stuck threads.
        have_been_too_many: there have been too many stuck slots.
    """

    def __init__(
        self,
        worker_id: str,
        size: int,
        patience: float,
        changed: Callable[[], None] = lambda: None,
        too_many: int | None = None,
    ) -> None:
        self.size = size
        self.patience = patience
        self._worker_id = worker_id
        self._changed = changed
        self.lent = 0
        self.have_been_too_many = False
        self._too_many = too_many
        self._found: dict[Attempt, StuckSlot] = {}
        self._threads: set[Attempt] = set()
        self._are_all_said = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def found(self) -> list[StuckSlot]:
        """The slots that are stuck now."""
        return list(self._found.values())

    @property
    def are_all(self) -> bool:
        """All slots are stuck, so no other job can run."""
        return self.unreplaced >= self.size

    @property
    def unreplaced(self) -> int:
        """The number of stuck slots for which the worker has no other."""
        return len(self._found) - self.lent

    def add(self, attempt: Attempt, slot: StuckSlot) -> None:
        """Add the slot of an attempt, which is stuck, and log it."""
        self._found[attempt] = slot
        if attempt.thread_id is not None and attempt.state not in OPEN:
            self._threads.add(attempt)
        has_more = self._lend()
        if self._is_closed:
            return
        text = "job %s: %s does not end (%s %.0f s ago); its slot is stuck: %d of %d"
        count, most = self.unreplaced, self.size
        if has_more:
            text = "job %s: %s does not end (%s %.0f s ago); another thread takes its place: %d of at most %d"
            count, most = self.lent, self.size // 2
        fields = attempt.fields(f"{slot.why}, does not end")
        log.warning(text, slot.job_id, slot.task, slot.why, slot.for_s, count, most, extra=fields)
        if self.are_all and not self._are_all_said:
            self._are_all_said = True
            self._say_that_all_are()
        if len(self._found) == self._too_many and not self.have_been_too_many:
            self.have_been_too_many = True
            held = plural(len(self._found), "handler does=handlers do")
            log.error("worker %s: %s not end, as many as it may have; stopping", self._worker_id, held)
        self._changed()

    def remove(self, attempt: Attempt) -> None:
        """Remove the slot of an attempt whose handler has ended after all."""
        slot = self._found.pop(attempt, None)
        self._threads.discard(attempt)
        self._lend()
        if slot is None or self._is_closed:
            return
        text = "job %s: %s has ended after all, %.0f s after it was asked to; its slot is free again"
        log.info(text, slot.job_id, slot.task, slot.for_s, extra=attempt.fields())
        if self._are_all_said:
            self._are_all_said = False
            free = self.size - self.unreplaced
            log.warning("worker %s: %d of %d slots are free again", self._worker_id, free, self.size)
        self._changed()

    def _lend(self) -> bool:
        """Lend a slot for each stuck thread, up to half of the slots; return whether these are more than before."""
        before, self.lent = self.lent, min(len(self._threads), self.size // 2)
        return self.lent > before

    def close(self) -> None:
        """Log nothing more, because the worker is stopping."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _say_that_all_are(self) -> None:
        """Log that all slots are stuck, now and once a minute while it lasts."""
        if not self.are_all:
            return
        text = "worker %s: %s; it runs no other job until a slot is free or it is restarted"
        log.error(text, self._worker_id, summary(self.found, self.size))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_AGAIN_S, self._say_that_all_are)


class RepeatedInterrupt:
    """Interrupts one handler again after 1, 2, 4 … s, for as long as the patience lasts.

    Args:
        attempt: the attempt whose handler has just been asked to end.
        loop: the worker's loop.
        why: why it was asked: 'timed out', 'cancelled' or 'lost its lease'.
        patience: seconds until this gives up.
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
        """Stop, because the handler has ended."""
        self._timer.cancel()

    def _next(self) -> asyncio.TimerHandle:
        wait = min(self._wait_s, self._ends_at - monotonic())
        self._wait_s *= 2
        return self._loop.call_later(max(0.0, wait), self._again)

    def _again(self) -> None:
        if monotonic() >= self._ends_at:
            self._give_up(self._attempt)
            return
        if self._attempt.can_be_cancelled:  # a thread can only check `current_job()`; it can't be interrupted
            self._attempt.interrupt()
        self._timer = self._next()


def summary(slots: list[StuckSlot], size: int) -> str:
    """Describe in one line that all slots of a worker are stuck: by which tasks, with one job of each."""
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
