"""A producer of jobs of all kinds, and the record of their outcomes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any

from schedq import Fixed, Queue, current_job
from schedq.model.records import JobRecord
from tests.servers import Server
from tests.state import State
from tests.waiting import until
from tests.worker.crew import Post


class Load:
    """Immediate, delayed and retried jobs, enqueued through both clients.

    Attributes:
        accepted: ids that `enqueue` returned.
        starts: number of starts of each job.
        errors: what `enqueue` raised.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.accepted: set[str] = set()
        self.starts: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        queue.task(name="once", max_attempts=20)(self._once)
        queue.task(name="twice", max_attempts=20, backoff=Fixed(0.05))(self._twice)

    def start(self) -> None:
        """Enqueue until `stop`: one thread with the blocking client, another with the asyncio client."""
        self._stopping.clear()
        self._threads = [
            threading.Thread(target=self._produce, daemon=True),
            threading.Thread(target=lambda: asyncio.run(self._produce_awaiting()), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop enqueueing; all calls have returned."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def send(self, count: int) -> None:
        """Enqueue some jobs at once."""
        self.accepted.update(self.queue.enqueue_many([{"task": "once"}] * count))

    def is_done(self) -> bool:
        """Every accepted job has started, and nothing is left to do."""
        stats = self.queue.stats()
        return (
            self.accepted <= self.starts.keys()
            and not stats["pending_depth"] + stats["delayed_depth"] + stats["processing_depth"]
        )

    def grows(self, by: int = 20) -> None:
        """Wait until more jobs have been accepted."""
        goal = len(self.accepted) + by
        until(lambda: len(self.accepted) >= goal, within=60)

    def check(self, node: Server) -> None:
        """Every accepted job is completed, and the laws hold on the server that has the queue."""
        assert self.errors == []
        with node.client() as client:
            state = State.of(client, self.queue.settings.keys)
        places = state.places()
        assert set(places) == {"completed"}, places
        assert set(places["completed"]) == self.accepted
        assert state.broken_laws() == {}

    def completed(self) -> list[JobRecord]:
        """The records of the completed jobs."""
        found: list[JobRecord] = []
        while page := self.queue.list_completed(offset=len(found), limit=1000):
            found += page
        return found

    def _once(self) -> None:
        self.starts[current_job().id] += 1

    def _twice(self) -> None:
        job = current_job()
        self.starts[job.id] += 1
        if job.attempts == 1:
            raise ValueError("again")

    def _kind(self, number: int) -> dict[str, Any]:
        return {"task": "twice" if number % 5 == 0 else "once"}

    def _produce(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            try:
                self.accepted.add(self.queue.enqueue(self._kind(number), delay=0.1 if number % 3 == 0 else None))
            except Exception as error:
                self.errors.append(error)
            time.sleep(0.01)

    async def _produce_awaiting(self) -> None:
        number = 0
        twin = Queue(self.queue.name, redis=self._url, retry_for=self.queue.settings.retry_for)
        async with twin.aio as queue:
            while not self._stopping.is_set():
                number += 1
                try:
                    self.accepted.add(await queue.enqueue(self._kind(number), delay=0.1 if number % 3 == 0 else None))
                except Exception as error:
                    self.errors.append(error)
                await asyncio.sleep(0.01)
        twin.close()

    @property
    def _url(self) -> str:
        return self.queue.address.label


def done(*loads: Load, post: Post) -> None:
    """Wait until everything is done, while the worker works."""

    def look() -> bool:
        assert post.is_working, post.error
        return all(load.is_done() for load in loads)

    until(look)
