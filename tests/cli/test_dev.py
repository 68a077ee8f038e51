"""`schedq dev`: one command starts everything, restarts the worker when code changes, and ends everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from schedq.cli import dev
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


def save(file: Path, text: str) -> None:
    """Replace a file's text in one step, which counts as one change, within the second of the change before."""
    draft, before_ns = file.with_suffix(".draft"), file.stat().st_mtime_ns
    draft.write_text(text)
    os.utime(draft, ns=(before_ns ^ 1, before_ns ^ 1))
    draft.replace(file)


def test_the_worker_restarts_on_change_survives_a_mistake_and_one_signal_ends_all(folder: Path):
    plain = {name: value for name, value in os.environ.items() if not name.endswith("REDIS_URL")}
    log, app = folder / "log", folder / "app.py"
    with log.open("wb") as out:
        dev = subprocess.Popen(
            [sys.executable, "-m", "schedq", "dev", "app:queue", "--port", "0"],
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**plain, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": ""},
        )
    try:
        until(lambda: "ready for dev" in log.read_text() and "listening on" in log.read_text(), failing=log.read_text)

        save(app, app.read_text().replace("version one", "version two"))
        until(lambda: "version two" in log.read_text(), failing=log.read_text)
        until(lambda: log.read_text().count("ready for dev") == 2, failing=log.read_text)

        right = app.read_text()
        save(app, right + "import nosuchmodule\n")
        until(lambda: "starts again when a file changes" in log.read_text(), failing=log.read_text)
        save(app, right)
        until(lambda: log.read_text().count("ready for dev") == 3, failing=log.read_text)
    finally:
        dev.send_signal(signal.SIGINT)
        code = dev.wait(60)

    assert code == 0
    assert log.read_text().rstrip().endswith("stopped")


class RestartedError(Exception):
    """The worker was restarted."""


class Starting:
    """A process during whose start a file of the application is saved."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        self._looks = 0
        if name == "worker":
            app = Path(arguments[arguments.index("--app-dir") + 1]) / "app.py"
            save(app, app.read_text() + "# saved once more\n")

    @property
    def has_ended(self) -> bool:
        self._looks += 1
        assert self._looks < 3, "the change was not noticed"
        return False

    def restart(self, changed: Iterable[str]) -> None:
        raise RestartedError

    def ask_to_stop(self) -> None: ...

    def wait(self) -> None: ...


def test_a_change_while_the_worker_starts_restarts_it_too(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dev, "_Process", Starting)
    monkeypatch.setattr(dev, "_LOOK_S", 0.01)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("SCHEDQ_REDIS_URL", "")  # it sets another one

    with pytest.raises(RestartedError):
        dev.dev.callback(("app:queue",), "redis://127.0.0.1:1", str(folder), 0)  # type: ignore[misc]
