"""`schedq dev`: one command starts everything, restarts the worker when code changes, and ends everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedq.embedded import stop_server
from tests.waiting import until

pytestmark = pytest.mark.processes

APP = """
from schedq import Queue

queue = Queue("dev")
print("version one", flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "app.py").write_text(APP + "@queue.task\ndef greet() -> None: ...\n")
    yield tmp_path
    stop_server(tmp_path / ".schedq")


def test_the_worker_restarts_on_change_survives_a_mistake_and_one_signal_ends_all(folder: Path):
    plain = {name: value for name, value in os.environ.items() if not name.endswith("REDIS_URL")}
    log, app = folder / "log", folder / "app.py"
    with log.open("wb") as out:
        dev = subprocess.Popen(
            [sys.executable, "-m", "schedq", "dev", "app:queue", "--port", "0"],
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**plain, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
    try:
        until(lambda: "ready for dev" in log.read_text() and "listening on" in log.read_text(), failing=log.read_text)

        app.write_text(app.read_text().replace("version one", "version two"))
        until(lambda: "version two" in log.read_text(), failing=log.read_text)
        until(lambda: log.read_text().count("ready for dev") == 2, failing=log.read_text)

        right = app.read_text()
        app.write_text(right + "import nosuchmodule\n")
        until(lambda: "starts again when a file changes" in log.read_text(), failing=log.read_text)
        app.write_text(right)
        until(lambda: log.read_text().count("ready for dev") == 3, failing=log.read_text)
    finally:
        dev.send_signal(signal.SIGINT)
        code = dev.wait(60)

    assert code == 0
    assert log.read_text().rstrip().endswith("stopped")
