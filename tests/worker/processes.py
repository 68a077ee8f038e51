"""Jobs and child processes as the tests of isolation see them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Post

Start = Callable[..., tuple[Post, dict[str, Any]]]
"""Starts a worker of the isolated tasks, and returns it and the tasks."""


def outcome(queue: Handle, job_id: str) -> Any:
    """The record of a job that has ended."""
    return until(lambda: (found := queue.get_job(job_id)).status in ("completed", "failed", "cancelled") and found, 120)


def written_pid(file: Path) -> int:
    """The process id in a file; 0 before it is there."""
    return int(file.read_text() or 0) if file.exists() else 0


def is_alive(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    return state_of(pid) not in ("", "Z")


def freeze(pid: int) -> None:
    """Stop a process, and wait until it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T")


def state_of(pid: int) -> str:
    """The letter for the state of a process in /proc; '' if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
