"""Tests of the job alone, and of the script with a worker that has child processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mandelbrot import __main__ as script
from mandelbrot.tasks import MOST_STEPS, render, steps
from schedq.testing import as_job


@contextmanager
def worker() -> Iterator[None]:
    command = [sys.executable, "-m", "schedq", "worker", "mandelbrot.tasks:queue", "--memory-limit", "256M"]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_points_inside_never_leave_and_points_outside_do() -> None:
    assert steps(0, 0) == MOST_STEPS
    assert steps(2, 2) == 0


def test_progress_is_reported_in_rows(tmp_path: Path) -> None:
    with as_job() as job:
        size = render(tmp_path / "small.png", 6, 4)

    assert (tmp_path / "small.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (tmp_path / "small.png").stat().st_size == size
    assert job.last_progress is not None
    assert (job.last_progress.done, job.last_progress.total) == (4, 4)


def test_the_script_renders_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["mandelbrot", str(tmp_path / "a.png"), "60", "40"])

    with worker():
        assert script.main() == 0

    assert (tmp_path / "a.png").exists()


def test_a_picture_above_the_memory_limit_fails_at_once_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mandelbrot", str(tmp_path / "large.png"), "6000", "6000"])

    with worker():
        assert script.main() == 1

    assert "used more memory than the memory limit of 268,435,456 bytes" in capsys.readouterr().err
    assert not (tmp_path / "large.png").exists()
