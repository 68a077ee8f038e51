"""Tests of the job alone, of jobs that run one by one, and of the whole script with a worker."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checksums import __main__ as script
from checksums import tasks
from checksums.tasks import checksum
from schedq import Discard, JobFailed
from schedq.testing import as_job, run_due


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "below").mkdir()
    (tmp_path / "a.txt").write_bytes(b"first")
    (tmp_path / "below" / "b.bin").write_bytes(bytes(range(256)) * 5000)
    (tmp_path / "empty").touch()
    return tmp_path


@contextmanager
def worker() -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "schedq", "worker", "checksums.tasks:queue", "--concurrency", "2"]
    )
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_progress_is_reported_in_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "BLOCK", 1000)

    with as_job() as job:
        found = checksum(folder / "below" / "b.bin")

    assert found == sha256(bytes(range(256)) * 5000)
    assert job.last_progress is not None
    assert (job.last_progress.done, job.last_progress.total, job.last_progress.note) == (1_280_000, 1_280_000, "b.bin")


def test_a_job_that_is_asked_to_stop_stops_reading(folder: Path) -> None:
    with as_job() as job:
        job.cancel()
        with pytest.raises(Discard):
            checksum(folder / "a.txt")


def test_the_result_of_a_job_is_the_checksum(folder: Path) -> None:
    job = checksum.enqueue(folder / "a.txt")

    assert run_due(tasks.queue) == 1
    assert job.result(timeout=5) == sha256(b"first")


def test_a_missing_file_fails_its_job_for_good(folder: Path) -> None:
    job = checksum.enqueue(folder / "nosuch")

    assert run_due(tasks.queue) == 1
    with pytest.raises(JobFailed, match="No such file"):
        job.result(timeout=5)


def test_the_script_prints_the_checksum_of_every_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["checksums", str(folder)])

    with worker():
        code = script.main()

    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{sha256(b'first')}  {folder / 'a.txt'}",
        f"{sha256(bytes(range(256)) * 5000)}  {folder / 'below' / 'b.bin'}",
        f"{sha256(b'')}  {folder / 'empty'}",
    ]


def test_a_deleted_file_is_named_and_the_others_are_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {**script.find_files(folder), folder / "gone": 1}
    monkeypatch.setattr(script, "find_files", lambda _: files)
    monkeypatch.setattr(sys, "argv", ["checksums", str(folder)])

    with worker():
        code = script.main()

    said = capsys.readouterr()
    assert code == 1
    assert len(said.out.splitlines()) == 3
    assert "gone: No such file or directory" in said.err


def test_ctrl_c_cancels_the_jobs_that_are_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks.queue, "gather_results", interrupt)
    monkeypatch.setattr(sys, "argv", ["checksums", str(folder)])

    assert script.main() == 130
    stats = tasks.queue.stats()
    assert (stats["pending_depth"], stats["cancelled_depth"]) == (0, 3)
