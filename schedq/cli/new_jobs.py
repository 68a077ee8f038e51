"""Which jobs were enqueued or have started since the last look: Redis sends no event of either."""

from __future__ import annotations

from typing import Any, Final

from schedq.model.records import JobRecord
from schedq.queue.queue import Queue

ENQUEUED: Final = "enqueued"
STARTED: Final = "started"
_MOST: Final = 100
"""Jobs of each list that a look reads."""


class NewJobs:
    """Compares the newest pending and running jobs with those of the look before; three bounded reads each time.

    It misses jobs that start and end between two looks, all but the newest hundred of each list, and delayed jobs.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._since_ms = queue.stats()["now_ms"]
        self._seen: set[tuple[str, str]] = set()
        self.look()  # what happened in this millisecond is not new

    def look(self) -> list[dict[str, Any]]:
        """What has happened since the last look, oldest first: id, status, attempts and at_ms, as events have them."""
        stats = self._queue.stats()
        pending = self._queue.list_pending(max(0, stats["pending_depth"] - _MOST), _MOST)
        running = self._queue.list_processing(0, _MOST)
        found = [self._event(record, ENQUEUED, record.enqueued_at_ms, 0) for record in (*pending, *running)]
        found += [self._event(record, STARTED, record.started_at_ms, record.attempts) for record in running]
        recent = {(one["id"], one["status"]): one for one in found if one["at_ms"] >= self._since_ms}
        new = [one for key, one in recent.items() if key not in self._seen]
        self._since_ms, self._seen = stats["now_ms"], set(recent)
        return sorted(new, key=lambda one: one["at_ms"])

    @staticmethod
    def _event(record: JobRecord, status: str, at_ms: int, attempts: int) -> dict[str, Any]:
        return {"id": record.id, "status": status, "attempts": attempts, "at_ms": at_ms}
