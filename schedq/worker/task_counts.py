"""Counts the attempts that a worker has settled, by task, until a heartbeat stores the counts in Redis."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from schedq.errors import SchedqError
from schedq.model.settings import Settings
from schedq.model.task_stats import bin_of, bins_text
from schedq.model.tasks import is_task_call
from schedq.transitions import Operation
from schedq.transitions.count_tasks import chunks, count_tasks
from schedq.worker.attempt import Attempt

_PLACES: Final = {"complete": 0, "fail": 1, "retry": 2}
_CANCELLED: Final = 3
_RUN_MS: Final = 4
_MOST_UNSENT: Final = 20
"""Reports that are kept while Redis refuses them, so that they don't fill the memory."""


class _Count:
    """What was counted of one task: sums and longest times in the order of `Counts`, and two histograms."""

    __slots__ = ("lateness", "longest", "numbers", "run")

    def __init__(self) -> None:
        self.numbers = [0, 0, 0, 0, 0]
        self.longest = [0, 0]
        self.run: dict[int, int] = {}
        self.lateness: dict[int, int] = {}

    def text(self) -> str:
        sums, longest = (" ".join(map(str, numbers)) for numbers in (self.numbers, self.longest))
        return f"{sums}|{longest}|{bins_text(self.run)}|{bins_text(self.lateness)}"


class TaskCounts:
    """The counts of one queue since the last report. The worker's loop adds to them, and another thread takes them.

    A worker that is killed takes its last counts along, those of at most 10 s: to write them for each job would cost
    more than the rest of its settlement.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, _Count] = {}
        self._unsent: list[tuple[int, dict[str, str]]] = []
        self._number = 0

    def add(self, attempts: Iterable[Attempt]) -> None:
        """Count attempts that Redis has just settled."""
        with self._lock:
            counts = self._counts
            for attempt in attempts:
                settlement, job = attempt.settlement, attempt.job
                place = _PLACES.get(settlement.move) if settlement is not None else None
                if place is None or not attempt.began_at:
                    continue  # put back, or never begun
                name = attempt.name
                if name == "handler" and not is_task_call(job.payload):
                    name = ""
                count = counts.get(name)
                if count is None:
                    count = counts[name] = _Count()
                ran_ms = int((attempt.ended_at - attempt.began_at) * 1000)
                late_ms = job.claimed_at_ms - (job.run_at_ms or job.enqueued_at_ms or job.claimed_at_ms)
                numbers, longest, run, lateness = count.numbers, count.longest, count.run, count.lateness
                numbers[_CANCELLED if place and attempt.is_stop_requested else place] += 1
                numbers[_RUN_MS] += ran_ms
                if ran_ms > longest[0]:
                    longest[0] = ran_ms
                if late_ms > longest[1]:
                    longest[1] = late_ms
                number = bin_of(ran_ms)
                run[number] = run.get(number, 0) + 1
                number = bin_of(late_ms) if late_ms > 0 else 0
                lateness[number] = lateness.get(number, 0) + 1

    def report(self, queue: Settings, worker_id: str) -> list[Operation[bool]]:
        """Return what to send, which includes what could not be stored before. `confirm` takes the replies."""
        with self._lock:
            counts, self._counts = self._counts, {}
        for some in chunks({task: count.text() for task, count in counts.items()}):
            self._number += 1
            self._unsent.append((self._number, some))
        del self._unsent[:-_MOST_UNSENT]
        return [count_tasks(queue, worker_id, number, some) for number, some in self._unsent]

    def confirm(self, replies: Iterable[bool | SchedqError]) -> SchedqError | None:
        """Forget what was stored; return why Redis refused the rest."""
        refused: SchedqError | None = None
        left = []
        for unsent, reply in zip(self._unsent, replies, strict=True):
            if isinstance(reply, SchedqError):
                refused = reply
                left.append(unsent)
        self._unsent = left
        return refused
