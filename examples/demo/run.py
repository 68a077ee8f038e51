"""One run of the demo, from the first job to the verdict."""

from __future__ import annotations

import importlib
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console

from demo.checks import Kill, judge
from demo.kill import kill_worker_of
from demo.plan import PlannedJob, planned_jobs
from demo.results import gather, picture_sizes
from demo.sandbox import PICTURES, Child, Sandbox, check_alive, set_up
from demo.screen import Screen, Snapshot, WorkerStatus, print_summary
from schedq.queue.task import Task

TICK_S: Final = 0.1
SPARE_S: Final = 30  # extra time for slow machines before the demo gives up


def run(seconds: float, console: Console) -> bool:
    """Run the demo and print the summary. Returns whether every check passed.

    Raises:
        DemoError: the demo could not be completed.
    """
    jobs = planned_jobs(seconds, picture_sizes(PICTURES))
    refusals = {job.id: job.refusals for job in jobs if job.refusals}
    console.print("Starting a server, two receivers, a promoter and two workers ...")
    with set_up(refusals) as sandbox:
        demo = Demo(sandbox, jobs)
        with Screen(console, len(jobs)) as screen:
            demo.play(screen, most_s=seconds + SPARE_S)
        checks = judge(gather(sandbox, jobs, demo.due_ms, demo.kill))
        print_summary(console, checks)
        is_good = not any(check.problems for check in checks)
        if not is_good:
            _print_logs(console, (sandbox.promoter, *sandbox.workers))
    return is_good


def _print_logs(console: Console, children: Sequence[Child]) -> None:
    for child in children:
        console.print(f"\nThe end of the log of {child.name}:")
        console.print(child.last_words(), markup=False, highlight=False, soft_wrap=True)


class Demo:
    """The running demo.

    Attributes:
        due_ms: job id → due instant on Redis's clock, of the delayed jobs enqueued so far.
        kill: the kill, once it has happened.
    """

    def __init__(self, sandbox: Sandbox, jobs: Sequence[PlannedJob]) -> None:
        self.due_ms: dict[str, int] = {}
        self.kill: Kill | None = None
        self._sandbox = sandbox
        self._ahead = list(jobs)
        self._victim = next(job.id for job in jobs if job.task == "contact_sheet")
        self._is_taken_over = False
        self._began_at = time.monotonic()
        self._began_at_ms = sandbox.now_ms()

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_at

    def play(self, screen: Screen, *, most_s: float) -> None:
        """Run until every job has been enqueued and has finished, or until `most_s` seconds have passed."""
        while self._elapsed_s < most_s:
            self._enqueue_what_is_on()
            self._watch_the_workers(screen)
            snapshot = self._look()
            screen.show(snapshot)
            if not self._ahead and snapshot.done + snapshot.failed == screen.total:
                return
            time.sleep(TICK_S)

    def _enqueue_what_is_on(self) -> None:
        while self._ahead and self._ahead[0].at_s <= self._elapsed_s:
            job = self._ahead.pop(0)
            due_ms = _enqueue(job, self._began_at_ms, self._sandbox)
            if due_ms is not None:
                self.due_ms[job.id] = due_ms

    def _watch_the_workers(self, screen: Screen) -> None:
        """Kill the worker that is in the middle of the long job, and report when another has taken the job over."""
        check_alive((self._sandbox.promoter, *(child for child in self._sandbox.workers if not self._is_killed(child))))
        if self.kill is None:
            self.kill = kill_worker_of(self._victim, self._sandbox)
            if self.kill:
                screen.say(f"Killed {self._name(self.kill.worker)} in the middle of {self._victim} (SIGKILL)")
        elif not self._is_taken_over:
            record = self._sandbox.queue.get_job(self._victim)
            self._is_taken_over = record is not None and record.worker != self.kill.worker
            if record and self._is_taken_over:
                screen.say(f"{self._name(record.worker)} has taken over {self._victim}")

    def _look(self) -> Snapshot:
        stats = self._sandbox.queue.stats()
        due_ms, now_ms = stats["next_due_ms"], stats["now_ms"]
        held: defaultdict[str, list[str]] = defaultdict(list)
        for record in self._sandbox.queue.list_processing():
            held[self._name(record.worker)].append(record.id)
        return Snapshot(
            elapsed_s=self._elapsed_s,
            pending=stats["pending_depth"],
            delayed=stats["delayed_depth"],
            next_due_ms=None if due_ms is None else due_ms - now_ms,
            workers=tuple(
                WorkerStatus(child.name, tuple(held[child.name]), self._is_killed(child))
                for child in self._sandbox.workers
            ),
            done=stats["completed_total"],
            retried=stats["retried_total"],
            failed=stats["failed_total"],
        )

    def _is_killed(self, child: Child) -> bool:
        return self.kill is not None and child.owns(self.kill.worker)

    def _name(self, worker_id: str) -> str:
        return next((child.name for child in self._sandbox.workers if child.owns(worker_id)), worker_id)


def _enqueue(job: PlannedJob, began_at_ms: int, sandbox: Sandbox) -> int | None:
    """Enqueue one job as an application would. Returns its due instant on Redis's clock if it is delayed."""
    task: Task[..., Any] = getattr(importlib.import_module("demo.app"), job.task)
    if job.due_s is None:
        task.options(job_id=job.id).enqueue(**job.arguments)
        return None
    due_ms = began_at_ms + round(job.due_s * 1000)
    if job.task == "remind":
        at = datetime.fromtimestamp(due_ms / 1000, UTC)
        task.options(job_id=job.id, run_at=at).enqueue(**job.arguments)
        return due_ms
    delay_ms = max(0, due_ms - sandbox.now_ms())
    task.options(job_id=job.id, delay=delay_ms / 1000).enqueue(**job.arguments)
    record = sandbox.queue.get_job(job.id)
    return record.enqueued_at_ms + delay_ms if record else None
