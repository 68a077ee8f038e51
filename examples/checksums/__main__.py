"""`python -m checksums FOLDER`: enqueue a job per file, wait for all of them, print the checksums.

The exit code is 1 if a file could not be read. Ctrl-C cancels the remaining jobs.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from checksums.tasks import checksum, queue
from schedq import SchedqError


class TotalBar:
    """One bar, on stderr, over the bytes of all jobs. It follows the events of the queue in a thread.

    Args:
        sizes: bytes of each job's file.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._left = dict(sizes)
        self._done = dict.fromkeys(sizes, 0)
        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
        console = Console(stderr=True)
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._row = self._bar.add_task("reading", total=sum(sizes.values()))
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._bar.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def _follow(self) -> None:
        for event in queue.events():
            job_id = event["id"]
            if job_id not in self._left:
                continue
            if event["status"] == "progress":
                self._done[job_id] = event["done"]
            elif event["status"] in ("completed", "failed", "cancelled"):
                self._done[job_id] = self._left[job_id]
            self._bar.update(self._row, completed=sum(self._done.values()))


def find_files(folder: Path) -> dict[Path, int]:
    """All files below a folder, in order, with their sizes."""
    return {path: path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}


def gather(files: Mapping[Path, int]) -> list[str | Exception]:
    """Return the checksum of each file, or why there is none. An interrupt cancels the remaining jobs."""
    jobs = checksum.enqueue_many([checksum.with_args(path.absolute()) for path in files])
    try:
        with TotalBar({job.id: size for job, size in zip(jobs, files.values(), strict=True)}):
            return queue.gather_results(jobs, return_exceptions=True)
    except KeyboardInterrupt:
        for job in jobs:
            job.cancel()
        raise


def main() -> int:
    """Run the script; returns its exit code."""
    parser = argparse.ArgumentParser(prog="checksums", description="Print the SHA-256 of each file in a folder.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    files = find_files(folder)
    try:
        results = gather(files)
    except KeyboardInterrupt:
        return 130
    except SchedqError as error:
        print(f"checksums: {error}", file=sys.stderr)
        return 1
    for path, result in zip(files, results, strict=True):
        if isinstance(result, str):
            print(f"{result}  {path}")
        else:
            print(f"checksums: {result}", file=sys.stderr)
    return int(any(not isinstance(result, str) for result in results))


if __name__ == "__main__":
    sys.exit(main())
