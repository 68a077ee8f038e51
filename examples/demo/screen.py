"""The demo's display: a live panel in a terminal, one plain line per second elsewhere, and the summary."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from demo.checks import Check

MOST_NAMES: Final = 4  # jobs listed per worker; the rest are counted


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker process and the jobs that it holds; a killed worker's jobs are shown until their leases expire."""

    name: str
    jobs: tuple[str, ...]
    is_killed: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the demo at one moment.

    Attributes:
        elapsed_s: since the first job was enqueued.
        pending: jobs waiting for a worker.
        delayed: jobs and retries waiting for their due instant.
        next_due_ms: time until the earliest of these; None if there is none.
        workers: the workers.
        done: completed jobs.
        retried: attempts that failed and were retried, or will be.
        failed: jobs that failed for good.
    """

    elapsed_s: float
    pending: int
    delayed: int
    next_due_ms: int | None
    workers: tuple[WorkerStatus, ...]
    done: int
    retried: int
    failed: int

    @property
    def countdown(self) -> str:
        """Time until the next delayed job is due, as readable text; '' if there is none."""
        if self.next_due_ms is None:
            return ""
        return "next now" if self.next_due_ms <= 0 else f"next in {self.next_due_ms / 1000:.1f} s"


class Screen:
    """Shows snapshots as they arrive, and messages between them.

    In a terminal it redraws in place; elsewhere, and under CI, it prints at most one line per second.

    Attributes:
        total: the number of jobs.
    """

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self.total = total
        self._is_live = console.is_terminal and not os.environ.get("CI")
        self._live = Live(console=console, auto_refresh=False) if self._is_live else None
        self._next_line_at = 0.0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        """Show the current state."""
        if self._live:
            self._live.update(panel(snapshot, self.total), refresh=True)
        elif time.monotonic() >= self._next_line_at:
            self._next_line_at = time.monotonic() + 1
            self._console.print(line(snapshot, self.total), soft_wrap=True, highlight=False, markup=False)

    def say(self, message: str) -> None:
        """Print a permanent message."""
        self._console.print(message, soft_wrap=True, highlight=False, markup=False)


def panel(snapshot: Snapshot, total: int) -> RenderableType:
    """The snapshot as a table."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", width=10)
    table.add_row("pending", str(snapshot.pending))
    table.add_row("delayed", f"{snapshot.delayed:<5}{snapshot.countdown}")
    for worker in snapshot.workers:
        table.add_row(worker.name, Text(_doing(worker), "red" if worker.is_killed else "cyan"))
    table.add_row("done", Text(f"{snapshot.done} of {total}", "green"))
    table.add_row("retried", str(snapshot.retried))
    table.add_row("failed", Text(str(snapshot.failed), "red" if snapshot.failed else ""))
    return Group(Text(f"schedq demo  {snapshot.elapsed_s:.1f} s", "bold"), table)


def line(snapshot: Snapshot, total: int) -> str:
    """The snapshot as one line of text."""
    running = "  ".join(
        f"{worker.name}: {'killed' if worker.is_killed else len(worker.jobs)}" for worker in snapshot.workers
    )
    delayed = f"delayed {snapshot.delayed}" + (f" ({snapshot.countdown})" if snapshot.countdown else "")
    return (
        f"{snapshot.elapsed_s:5.1f} s  pending {snapshot.pending}  {delayed}  running {running}  "
        f"done {snapshot.done} of {total}  retried {snapshot.retried}  failed {snapshot.failed}"
    )


def _doing(worker: WorkerStatus) -> str:
    shown = ", ".join(worker.jobs[:MOST_NAMES]) + (" …" if len(worker.jobs) > MOST_NAMES else "")
    if worker.is_killed:
        return f"killed; waiting for its lease on {shown} to expire" if shown else "killed"
    return shown or "idle"


def print_summary(console: Console, checks: Sequence[Check]) -> None:
    """Print the checks: one row each, with its problems below."""
    table = Table.grid(padding=(0, 2))
    for check in checks:
        mark = "[red]NO[/red]" if check.problems else "[green]ok[/green]"
        table.add_row(mark, f"[bold]{check.title}[/bold]", escape(check.summary))
        for problem in check.problems:
            table.add_row("", "", f"[red]{escape(problem)}[/red]")
        if check.details:
            table.add_row("", "", Columns([Text(detail, "dim") for detail in check.details], padding=(0, 2)))
    console.print()
    console.print(table, highlight=False)
