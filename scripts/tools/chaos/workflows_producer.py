"""Starts runs, batches and chains until it is stopped, and does with each what its plan says.

python -m scripts.tools.chaos.workflows_producer STARTS_PER_SECOND SEED. It records what it has begun and what was
acknowledged, so that one that is started after it was killed continues there:

    begins    t, number                 it starts what the plan of this number says
    asks      t, number, act            it does this act; again after it was killed, or Redis was away
    did       t, number, act, reply     the act is acknowledged
    progress  t, number, status, [completed, failed, total]   what a callback was given
"""

from __future__ import annotations

import heapq
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Final

from schedq import (
    BatchProgress,
    Conflict,
    Job,
    JobGone,
    NotAcknowledged,
    QueueFull,
    SchedqError,
    StoreUnavailable,
    Task,
    UsageError,
)
from schedq.model.placeholder import RESULT
from scripts.tools.chaos import record
from scripts.tools.chaos import workflows_app as app
from scripts.tools.chaos.workflows_draw import drawn
from scripts.tools.chaos.workflows_plan import Plan, flag_of

MOST_WAITING: Final = 500
"""Waiting jobs above which nothing is started: a slow machine gets fewer runs instead of a backlog."""
MOST_OPEN: Final = 40
"""The most plans with something left to do."""
THREADS: Final = 4
_AGAIN_S: Final = 0.3
_FOLLOWS_S: Final = 2.0


class Producer:
    """Carries out plans; several threads, so that waiting for one does not delay the others."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._due: list[tuple[float, int, int]] = []  # when, the plan's number, the act's number
        self._plans: dict[int, Plan] = {}
        self._lock = threading.Lock()
        self.count = 0

    @property
    def open(self) -> int:
        """How many plans have something left to do."""
        return len(self._plans)

    def restore(self, folder: Path) -> None:
        """Take over what a producer that was killed has left."""
        done: dict[int, int] = {}
        for _, line in record.read(folder):
            if line[0] == "begins":
                done.setdefault(line[2], 0)
            elif line[0] == "did":
                done[line[2]] = max(done.get(line[2], 0), line[3] + 1)
        self.count = max(done, default=-1) + 1
        for number, acts in done.items():
            if acts < len(drawn(self._seed, number).acts):
                self._add(number, acts)

    def start(self) -> None:
        """Begin the next plan."""
        app.write("begins", self.count)
        self._add(self.count, 0)
        self.count += 1

    def work(self) -> None:
        """Do what is due, without an end. A mistake in this code ends the process."""
        try:
            self._work()
        finally:
            traceback.print_exc()
            os._exit(1)

    def _work(self) -> None:
        while True:
            with self._lock:
                is_due = self._due and self._due[0][0] <= time.monotonic()
                found = heapq.heappop(self._due) if is_due else None
                plan = self._plans[found[1]] if found else None
            if found is None or plan is None:
                time.sleep(0.02)
                continue
            self._do(plan, found[2])

    def _add(self, number: int, act: int) -> None:
        with self._lock:
            plan = self._plans.setdefault(number, drawn(self._seed, number))
            if act >= len(plan.acts):
                del self._plans[number]
                return
            heapq.heappush(self._due, (time.monotonic() + plan.acts[act][0], number, act))

    def _again(self, number: int, act: int) -> None:
        with self._lock:
            heapq.heappush(self._due, (time.monotonic() + _AGAIN_S, number, act))

    def _do(self, plan: Plan, act: int) -> None:
        app.write("asks", plan.number, act)
        try:
            reply = getattr(Acts(plan), plan.acts[act][1])(*plan.acts[act][2:])
        except (StoreUnavailable, QueueFull, NotAcknowledged):
            reply = None  # whether it was done is open, so the ids are the same
        if reply is None:
            self._again(plan.number, act)
            return
        app.write("did", plan.number, act, reply)
        self._add(plan.number, act + 1)


class Acts:
    """What is done with a plan. Each act returns a word, or None if it has to be tried again."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._what = plan, plan.what

    def start(self) -> str:
        plan, what = self._plan, self._what
        if plan.kind == "run":
            task: Task[..., Any] = app.hurried if what.get("is_hurried") else app.course
            return task.options(job_id=plan.id).enqueue(plan.number, what["program"]).id
        flags, ms = what["flags"], what["ms"]
        if plan.kind == "chain":
            before: list[Any] = [0, *[RESULT] * (what["total"] - 1)]
            calls = [app.link.with_args(it, plan.number, n, flag_of(flags, n), ms) for n, it in enumerate(before)]
            return app.queue.chain(*calls, id=plan.id).id
        options = {name: what[name] for name in ("concurrency", "tolerate", "keep")}
        then, otherwise = (task.with_args(RESULT, plan.number) for task in (app.report, app.alert))
        with app.queue.batch(plan.id, app.child, then=then, otherwise=otherwise, **options) as batch:
            for first in range(0, what["total"], 250):
                page = range(first, min(first + 250, what["total"]))
                batch.add(app.child.with_args(plan.number, "", n, flag_of(flags, n), ms) for n in page)
        return batch.id

    def send(self, topic: str, n: int) -> bool:
        return self._job().send(topic, [topic, n], id=f"{topic}-{n}")

    def cancel(self) -> str:
        if self._plan.kind == "run":
            return str(self._job().cancel())
        return str(app.queue.batch(self._plan.id).cancel())

    def expect(self, status: str) -> str | None:
        """Wait for a status."""
        if self._plan.kind == "run":
            return status if self._job().status() == status else None
        batch = app.queue.batch(self._plan.id)
        if batch.progress().status != status:
            return None
        # A retry takes the failures away that the call at the end reads.
        return status if self._plan.kind == "chain" or batch.then_job().status() == "completed" else None

    def mend(self) -> str:
        app.marker(f"mended-{self._plan.number}").touch()
        return "mended"

    def requeue(self) -> bool:
        return self._job().requeue()

    def retry(self) -> int | str:
        try:
            return app.queue.batch(self._plan.id).retry()
        except (UsageError, Conflict) as error:  # it was done, and the reply was lost
            return str(error)

    def follow(self) -> str | None:
        """Wait a while for the end of a batch."""
        try:
            has_ended = app.queue.batch(self._plan.id).wait(_FOLLOWS_S, on_progress=self._note)
        except JobGone:
            return "gone"
        return "ended" if has_ended else None

    def _note(self, found: BatchProgress) -> None:
        counts = [found.completed, found.failed, found.total]
        app.write("progress", self._plan.number, found.status, counts)

    def _job(self) -> Job[Any]:
        return app.queue.job(self._plan.id)


def main() -> None:
    rate, producer = float(sys.argv[1]), Producer(int(sys.argv[2]))
    is_stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: is_stopped.append(number))
    producer.restore(Path(os.environ["CHAOS_FOLDER"]))
    for _ in range(THREADS):
        threading.Thread(target=producer.work, daemon=True).start()
    print("ready", flush=True)
    while not is_stopped:
        time.sleep(1 / rate)
        try:
            found = app.queue.stats()
        except SchedqError:
            continue
        if producer.open < MOST_OPEN and found["pending_depth"] + found["delayed_depth"] < MOST_WAITING:
            producer.start()
    while producer.open:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
