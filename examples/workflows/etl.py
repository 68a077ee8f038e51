"""Ten thousand files: each is a job of its own. When the last one has ended, another job adds them up."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from schedq import RESULT, Batch, BatchResults
from workflows.queues import queue


@dataclass(frozen=True)
class Sales:
    """The lines of a file, or of all of them, and the sum of their amounts."""

    lines: int
    cents: int


@queue.task(timeout=60)
def read(file: Path) -> Sales:
    """Read one file."""
    with file.open(newline="") as lines:
        amounts = [int(line["cents"]) for line in csv.DictReader(lines)]
    return Sales(len(amounts), sum(amounts))


@queue.task
def add_up(parts: BatchResults[dict[str, int]], folder: Path) -> Sales:
    """Add up what was read, and write it next to the files. Results are read 1,000 at a time, as JSON has them."""
    lines = cents = 0
    for part in parts:
        lines, cents = lines + part["lines"], cents + part["cents"]
    (folder / "total.txt").write_text(f"{lines} lines, {cents / 100:.2f}\n")
    return Sales(lines, cents)


def load(name: str, folder: Path) -> Batch:
    """Read all files of a folder, at most 200 at a time. One in a hundred may be unreadable.

    A program that died in here runs again with the same name: files that were added are passed over.
    """
    with queue.batch(name, read, concurrency=200, tolerate=0.01, then=add_up.with_args(RESULT, folder)) as batch:
        batch.add(sorted(folder.glob("*.csv")))
    return batch
