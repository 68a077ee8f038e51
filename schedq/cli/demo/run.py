"""One run of the demo, from the first job to the verdict."""

from __future__ import annotations

import importlib
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from schedq.cli.demo.evidence import gather, picture_sizes
from schedq.cli.demo.killing import kill_worker_of
from schedq.cli.demo.programme import Errand, programme
from schedq.cli.demo.show import Display, Hand, Snapshot, print_summary
from schedq.cli.demo.stage import Child, Stage, check_alive, set_up
from schedq.cli.demo.verdict import Kill, judge
from schedq.task import Task

TICK_S: Final = 0.1
SPARE_S: Final = 30  # a slow machine may take this much longer before the demo gives up


def run(examples: Path, seconds: float, console: Console) -> bool:
    """Do it all and print the summary; whether everything was as it should be.

    Raises:
        Mishap: the demo could not be carried through.
    """
    errands = programme(seconds, picture_sizes(examples / "pictures"))
    refusals = {errand.id: errand.refusals for errand in errands if errand.refusals}
    console.print("Starting a server, two receivers, a promoter and two workers ...")
    with set_up(examples, refusals) as stage:
        performance = Performance(stage, errands)
        with Display(console, len(errands)) as display:
            performance.play(display, most_s=seconds + SPARE_S)
        findings = judge(gather(stage, errands, performance.due_ms, performance.kill))
        print_summary(console, findings)
        is_good = not any(finding.problems for finding in findings)
        if not is_good:
            _print_logs(console, (stage.promoter, *stage.workers))
    return is_good


def _print_logs(console: Console, children: Sequence[Child]) -> None:
    for child in children:
        console.print(f"\nThe end of the log of {child.name}:")
        console.print(child.last_words(), markup=False, highlight=False, soft_wrap=True)


class Performance:
    """The run under way.

    Attributes:
        due_ms: job id → due instant on Redis's clock, of the delayed jobs enqueued so far.
        kill: the kill, once it was done.
    """

    def __init__(self, stage: Stage, errands: Sequence[Errand]) -> None:
        self.due_ms: dict[str, int] = {}
        self.kill: Kill | None = None
        self._stage = stage
        self._ahead = list(errands)
        self._victim = next(errand.id for errand in errands if errand.task == "contact_sheet")
        self._is_taken_over = False
        self._began_at = time.monotonic()
        self._began_at_ms = stage.now_ms()

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_at

    def play(self, display: Display, *, most_s: float) -> None:
        """Go on until every job has been enqueued and is finished, or `most_s` are over."""
        while self._elapsed_s < most_s:
            self._enqueue_what_is_on()
            self._watch_the_workers(display)
            snapshot = self._look()
            display.show(snapshot)
            if not self._ahead and snapshot.done + snapshot.failed == display.total:
                return
            time.sleep(TICK_S)

    def _enqueue_what_is_on(self) -> None:
        while self._ahead and self._ahead[0].at_s <= self._elapsed_s:
            errand = self._ahead.pop(0)
            due_ms = _enqueue(errand, self._began_at_ms, self._stage)
            if due_ms is not None:
                self.due_ms[errand.id] = due_ms

    def _watch_the_workers(self, display: Display) -> None:
        """Kill the one that is in the middle of the long job, and tell when another has taken that over."""
        check_alive((self._stage.promoter, *(child for child in self._stage.workers if not self._is_killed(child))))
        if self.kill is None:
            self.kill = kill_worker_of(self._victim, self._stage)
            if self.kill:
                display.say(f"Killed {self._name(self.kill.worker)} in the middle of {self._victim} (SIGKILL)")
        elif not self._is_taken_over:
            record = self._stage.queue.get_job(self._victim)
            self._is_taken_over = record is not None and record.worker != self.kill.worker
            if record and self._is_taken_over:
                display.say(f"{self._name(record.worker)} has taken over {self._victim}")

    def _look(self) -> Snapshot:
        stats = self._stage.queue.stats()
        due_ms, now_ms = stats["next_due_ms"], stats["now_ms"]
        held: defaultdict[str, list[str]] = defaultdict(list)
        for record in self._stage.queue.list_processing():
            held[self._name(record.worker)].append(record.id)
        return Snapshot(
            elapsed_s=self._elapsed_s,
            pending=stats["pending_depth"],
            delayed=stats["delayed_depth"],
            next_due_ms=None if due_ms is None else due_ms - now_ms,
            hands=tuple(
                Hand(child.name, tuple(held[child.name]), self._is_killed(child)) for child in self._stage.workers
            ),
            done=stats["completed_total"],
            retried=stats["retried_total"],
            failed=stats["failed_total"],
        )

    def _is_killed(self, child: Child) -> bool:
        return self.kill is not None and child.owns(self.kill.worker)

    def _name(self, worker_id: str) -> str:
        return next((child.name for child in self._stage.workers if child.owns(worker_id)), worker_id)


def _enqueue(errand: Errand, began_at_ms: int, stage: Stage) -> int | None:
    """Enqueue one job as an application would; its due instant on Redis's clock, if it is delayed."""
    task: Task[..., Any] = getattr(importlib.import_module("app"), errand.task)
    if errand.due_s is None:
        task.options(job_id=errand.id).enqueue(**errand.arguments)
        return None
    due_ms = began_at_ms + round(errand.due_s * 1000)
    if errand.task == "remind":
        at = datetime.fromtimestamp(due_ms / 1000, UTC)
        task.options(job_id=errand.id, run_at=at).enqueue(**errand.arguments)
        return due_ms
    delay_ms = max(0, due_ms - stage.now_ms())
    task.options(job_id=errand.id, delay=delay_ms / 1000).enqueue(**errand.arguments)
    record = stage.queue.get_job(errand.id)
    return record.enqueued_at_ms + delay_ms if record else None
