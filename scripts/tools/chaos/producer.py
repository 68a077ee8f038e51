"""A producer: enqueues by both doors, acts on what it has enqueued, and writes down what was asked and what answered.

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
"""Jobs in `pending` above which a producer waits: a slow machine gets fewer, not a backlog."""
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


class Wish:
    """One job to be enqueued; `delay_ms` None for at once."""

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
    """What the threads of a producer share."""

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

    def wishes(self, count: int) -> list[Wish]:
        return [Wish(next(self._numbers), self.name, self._rng) for _ in range(count)]

    def asked(self, verb: str, what: list[Any]) -> int:
        """Write down what is asked for, before it is."""
        number = next(self._requests)
        self._write("do", now(), number, verb, what)
        return number

    def told(self, number: int, answer: Any) -> None:
        """Write down what was answered; None: that is not known."""
        self._write("did", now(), number, answer)

    def do(self, verb: str, what: list[Any], act: Callable[[], Any]) -> Any:
        """Ask, and write down both."""
        number = self.asked(verb, what)
        try:
            answer = act()
        except QueueFull:
            answer = "full"
        except SchedqError:
            answer = None
        self.told(number, answer)
        return answer

    def pick(self) -> Queue:
        return self._rng.choice(self.queues)

    def run_blocking(self) -> None:
        """One by one and in batches, and what operators do."""
        while not self.stopped.is_set():
            began, queue = time.monotonic(), self.pick()
            count = self._rng.choice((1, 1, 1, 1, 8))
            wishes = self.wishes(count)
            if count > 1:
                jobs = [wish.as_job() for wish in wishes]
                self.do("enqueue", [wish.note() for wish in wishes], lambda q=queue, j=jobs: _many(q, j))  # type: ignore[misc]
            else:
                self._one(queue, wishes[0])
            while self._later and self._later[0][0] <= time.monotonic():
                self._later.popleft()[1]()
            self.pause(began, count)

    def _one(self, queue: Queue, wish: Wish) -> None:
        job = wish.as_job()
        is_plan = wish.task in ("brief", "quick") and self._rng.random() < 0.12
        if is_plan:  # an operator will have something to do with it
            wish.delay_ms = 60_000 if self._rng.random() < 0.7 else None
        delay = None if wish.delay_ms is None else wish.delay_ms / 1000
        options: dict[str, Any] = {"delay": delay, "job_id": job.job_id, "max_attempts": job.max_attempts}
        found = self.do("enqueue", [wish.note()], lambda: [queue.enqueue(job.payload, **options)])
        if not isinstance(found, list):
            return
        if is_plan or (wish.task in ("hopeless", "nap", "doze") and self._rng.random() < 0.3):
            self._later.append(
                (time.monotonic() + self._rng.uniform(0.5, 3), lambda: self._operate(queue, wish, found[0]))
            )

    def _operate(self, queue: Queue, wish: Wish, job_id: str) -> None:
        """One act per job: a request that is held up in the network may be carried out after the next one was."""
        if wish.task == "hopeless":
            self.do("requeue", [[job_id]], lambda: queue.requeue(job_id))
        elif wish.delay_ms == 60_000 and (draw := self._rng.random()) < 0.6:
            delay_ms = 0 if draw < 0.3 else 700
            self.do("reschedule", [[job_id, delay_ms]], lambda: queue.reschedule(job_id, delay=delay_ms / 1000))
        else:
            self.do("cancel", [[job_id]], lambda: queue.cancel(job_id))

    async def run_asyncio(self) -> None:
        """By the other door."""
        queues = [queue.aio for queue in self.queues]
        while not self.stopped.is_set():
            began, queue = time.monotonic(), self._rng.choice(queues)
            wishes = self.wishes(self._rng.choice((1, 1, 4)))
            number = self.asked("enqueue", [wish.note() for wish in wishes])
            try:
                self.told(number, await queue.enqueue_many([wish.as_job() for wish in wishes]))
            except QueueFull as error:
                self.told(number, ["full"] * len(wishes) if not error.stored else None)
            except SchedqError:
                self.told(number, None)
            await asyncio.to_thread(self.pause, began, len(wishes))
        for queue in queues:
            await queue.aclose()

    def pause(self, began: float, count: int) -> None:
        """Keep to the rate; each of the two ways does half of it."""
        self.stopped.wait(max(0.0, began + 2 * count / self.rate - time.monotonic()))
        while self.waits.is_set() and not self.stopped.is_set():
            self.stopped.wait(0.05)

    def look(self) -> None:
        """Wait when much is waiting."""
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
            return None  # some of them; which of the fresh ones is not looked at here
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
