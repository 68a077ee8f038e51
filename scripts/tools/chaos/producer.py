"""A producer: enqueues through both clients, acts on its jobs, and records each request and reply.

python -m scripts.tools.chaos.producer NAME URL JOBS_PER_SECOND SEED
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from schedq import NewJob, Queue, QueueFull, SchedqError
from scripts.tools.chaos.app import NAMES, made, recorder
from scripts.tools.chaos.record import Recorder, now

MOST_WAITING: Final = 400
"""Jobs in `pending` above which a producer pauses: a slow machine gets fewer jobs instead of a backlog."""
_KINDS: Final = {
    # task: (weight, its arguments, its options)
    "brief": (34, (), ()),
    "quick": (16, (), ()),
    "fails": (8, (1, 2), ()),
    "sleepy": (7, (), ()),
    "hopeless": (3, (), (2,)),
    "refused": (2, (), ()),
    "nap": (1.2, (0.3, 2.0, 6.0), ()),
    "doze": (0.8, (0.3, 2.0, 5.0), ()),
    "single": (0.8, (2.0, 4.0), (1,)),
    "overrun": (0.15, (), (2,)),
    "newcomer": (0.6, (), ()),
}
_POISON: Final = 0.0002


class JobSpec:
    """One job to be enqueued; `delay_ms` is None for an immediate job."""

    def __init__(self, number: int, name: str, rng: random.Random) -> None:
        self.tag = f"{name}-{number}"
        kinds = list(_KINDS)
        self.task = "poison" if rng.random() < _POISON else rng.choices(kinds, [_KINDS[kind][0] for kind in kinds])[0]
        _, arguments, attempts = _KINDS.get(self.task, (0, (), (2,)))
        self.args = [self.tag, *([rng.choice(arguments)] if arguments else [])]
        self.max_attempts = attempts[0] if attempts else None
        self.delay_ms = rng.choice((50, 300, 1000, 2500)) if rng.random() < 0.3 else None
        self.has_own_id = rng.random() < 0.3

    def as_job(self) -> NewJob:
        return NewJob(
            {"task": self.task, "args": self.args},
            delay=None if self.delay_ms is None else self.delay_ms / 1000,
            job_id=self.tag if self.has_own_id else None,
            max_attempts=self.max_attempts,
        )

    def note(self) -> list[Any]:
        return [self.tag, self.delay_ms, self.task, self.max_attempts]


class Producer:
    """The state shared by the threads of a producer."""

    def __init__(self, name: str, url: str, rate: float, seed: int, record: Recorder) -> None:
        self.name = name
        self.queues = [made(queue, url) for queue in NAMES]
        self.rate = rate
        self.stopped = threading.Event()
        self.waits = threading.Event()
        self._rng = random.Random(f"{name} {seed}")
        self._numbers = itertools.count()
        self._requests = itertools.count()
        self._write = record.write
        self._later: deque[tuple[float, Callable[[], None]]] = deque()

    def specs(self, count: int) -> list[JobSpec]:
        return [JobSpec(next(self._numbers), self.name, self._rng) for _ in range(count)]

    def record_request(self, verb: str, what: list[Any]) -> int:
        """Record a request before it is sent."""
        number = next(self._requests)
        self._write("do", now(), number, verb, what)
        return number

    def record_reply(self, number: int, reply: Any) -> None:
        """Record the reply; None if it is unknown."""
        self._write("did", now(), number, reply)

    def do(self, verb: str, what: list[Any], act: Callable[[], Any]) -> Any:
        """Send a request, and record it and its reply."""
        number = self.record_request(verb, what)
        try:
            reply = act()
        except QueueFull:
            reply = "full"
        except SchedqError:
            reply = None
        self.record_reply(number, reply)
        return reply

    def pick(self) -> Queue:
        return self._rng.choice(self.queues)

    def run_blocking(self) -> None:
        """Enqueue one at a time and in batches, and act as an operator."""
        while not self.stopped.is_set():
            began, queue = time.monotonic(), self.pick()
            count = self._rng.choice((1, 1, 1, 1, 8))
            specs = self.specs(count)
            if count > 1:
                jobs = [spec.as_job() for spec in specs]
                self.do("enqueue", [spec.note() for spec in specs], lambda q=queue, j=jobs: _many(q, j))  # type: ignore[misc]
            else:
                self._one(queue, specs[0])
            while self._later and self._later[0][0] <= time.monotonic():
                self._later.popleft()[1]()
            self.pause(began, count)

    def _one(self, queue: Queue, spec: JobSpec) -> None:
        job = spec.as_job()
        is_plan = spec.task in ("brief", "quick") and self._rng.random() < 0.12
        if is_plan:  # an operator will act on it
            spec.delay_ms = 60_000 if self._rng.random() < 0.7 else None
        delay = None if spec.delay_ms is None else spec.delay_ms / 1000
        options: dict[str, Any] = {"delay": delay, "job_id": job.job_id, "max_attempts": job.max_attempts}
        found = self.do("enqueue", [spec.note()], lambda: [queue.enqueue(job.payload, **options)])
        if not isinstance(found, list):
            return
        if is_plan or (spec.task in ("hopeless", "nap", "doze") and self._rng.random() < 0.3):
            self._later.append(
                (time.monotonic() + self._rng.uniform(0.5, 3), lambda: self._operate(queue, spec, found[0]))
            )

    def _operate(self, queue: Queue, spec: JobSpec, job_id: str) -> None:
        """One action per job: a request delayed in the network may be executed after the next one."""
        if spec.task == "hopeless":
            self.do("requeue", [[job_id]], lambda: queue.requeue(job_id))
        elif spec.delay_ms == 60_000 and (draw := self._rng.random()) < 0.6:
            delay_ms = 0 if draw < 0.3 else 700
            self.do("reschedule", [[job_id, delay_ms]], lambda: queue.reschedule(job_id, delay=delay_ms / 1000))
        else:
            self.do("cancel", [[job_id]], lambda: queue.cancel(job_id))

    async def run_asyncio(self) -> None:
        """The same through the asyncio client."""
        queues = [queue.aio for queue in self.queues]
        while not self.stopped.is_set():
            began, queue = time.monotonic(), self._rng.choice(queues)
            specs = self.specs(self._rng.choice((1, 1, 4)))
            number = self.record_request("enqueue", [spec.note() for spec in specs])
            try:
                self.record_reply(number, await queue.enqueue_many([spec.as_job() for spec in specs]))
            except QueueFull as error:
                self.record_reply(number, ["full"] * len(specs) if not error.stored else None)
            except SchedqError:
                self.record_reply(number, None)
            await asyncio.to_thread(self.pause, began, len(specs))
        for queue in queues:
            await queue.aclose()

    def pause(self, began: float, count: int) -> None:
        """Keep to the rate; each of the two clients produces half of it."""
        self.stopped.wait(max(0.0, began + 2 * count / self.rate - time.monotonic()))
        while self.waits.is_set() and not self.stopped.is_set():
            self.stopped.wait(0.05)

    def look(self) -> None:
        """Pause while many jobs are waiting."""
        while not self.stopped.wait(0.5):
            try:
                waiting = max(queue.stats()["pending_depth"] for queue in self.queues)
            except SchedqError:
                continue
            (self.waits.set if waiting > MOST_WAITING else self.waits.clear)()


def _many(queue: Queue, jobs: list[NewJob]) -> Any:
    try:
        return queue.enqueue_many(jobs)
    except QueueFull as error:
        if error.stored:
            return None  # some were stored; which of them is not determined here
        raise


def main(name: str, url: str, rate: str, seed: str) -> None:
    assert isinstance(recorder, Recorder)
    producer = Producer(name, url, float(rate), int(seed), recorder)
    signal.signal(signal.SIGTERM, lambda *_: producer.stopped.set())
    threads = [
        threading.Thread(target=run, daemon=True)
        for run in (producer.run_blocking, producer.look, lambda: asyncio.run(producer.run_asyncio()))
    ]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main(*sys.argv[1:])
