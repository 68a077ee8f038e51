"""Counts the attempts that a worker has settled, by task, until a heartbeat stores the counts in Redis."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from schedq.errors import SchedqError
from schedq.model.settings import Settings
from schedq.model.task_stats import BINS, bin_of, bins_text
from schedq.model.tasks import is_task_call
from schedq.transitions import Operation
from schedq.transitions.count_tasks import chunks, count_tasks
from schedq.worker.attempt import Attempt

_PLACES: Final = {"complete": 0, "fail": 1, "retry": 2, "undo": 2}
_CANCELLED: Final = 3
_RUN_MS: Final = 4
_MOST_UNSENT: Final = 20
"""Reports that are kept while Redis refuses them, so that they don't fill the memory."""


class _Count:
    """What was counted of one task: sums and longest times in the order of `Counts`, and two histograms by bin."""

    __slots__ = ("lateness", "latest_ms", "longest_ms", "run", "sums")

    def __init__(self) -> None:
        self.sums = [0, 0, 0, 0, 0]
        self.longest_ms = self.latest_ms = 0
        self.run = [0] * BINS
        self.lateness = [0] * BINS

    def text(self) -> str:
        sums = " ".join(map(str, self.sums))
        return f"{sums}|{self.longest_ms} {self.latest_ms}|{_bins_text(self.run)}|{_bins_text(self.lateness)}"


def _bins_text(bins: list[int]) -> str:
    return bins_text({number: count for number, count in enumerate(bins) if count})


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
        """Count attempts that Redis has just settled. It takes a microsecond for each, so it saves every look-up."""
        with self._lock:
            counts, places = self._counts, _PLACES
            for attempt in attempts:
                place = places.get(attempt.settlement.move)  # type: ignore[union-attr]  # settled, so there is one
                began_at = attempt.began_at
                if place is None or not began_at:
                    continue  # put back, or never begun
                name, job = attempt.name, attempt.job
                if name == "handler" and not is_task_call(job.payload):
                    name = ""
                try:
                    count = counts[name]
                except KeyError:
                    count = counts[name] = _Count()
                count.sums[_CANCELLED if place and attempt.is_stop_requested else place] += 1
                ran_s, due_at_ms = attempt.ended_at - began_at, job.run_at_ms or job.enqueued_at_ms
                if ran_s < 0.001:
                    count.run[0] += 1
                else:
                    ran_ms = int(ran_s * 1000)
                    count.run[bin_of(ran_ms)] += 1
                    count.sums[_RUN_MS] += ran_ms
                    if ran_ms > count.longest_ms:
                        count.longest_ms = ran_ms
                late_ms = job.claimed_at_ms - due_at_ms if due_at_ms else 0
                count.lateness[bin_of(late_ms) if late_ms > 0 else 0] += 1
                if late_ms > count.latest_ms:
                    count.latest_ms = late_ms

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
