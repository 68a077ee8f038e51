"""`schedq dev`: one command starts everything, restarts the worker when code changes, and ends everything."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schedq.cli import dev
from schedq.cli.params import UNDER_DEV
from schedq.embedded import stop_server
from tests.servers import Server
from tests.waiting import until

pytestmark = pytest.mark.processes

APP = """
from schedq import Queue

queue = Queue("dev")
print("version one", flush=True)
@queue.task
def greet() -> None: ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "app.py").write_text(APP)
    yield tmp_path
    stop_server(tmp_path / ".schedq")


def save(file: Path, text: str) -> None:
    """Replace a file's text in one step, which counts as one change, within the second of the change before."""
    draft, before_ns = file.with_suffix(".draft"), file.stat().st_mtime_ns
    draft.write_text(text)
    os.utime(draft, ns=(before_ns ^ 1, before_ns ^ 1))
    draft.replace(file)


@contextmanager
def running(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """`schedq dev`, and what it and its processes have written; at its end it gets SIGINT."""
    plain = {name: value for name, value in os.environ.items() if not name.endswith("REDIS_URL")}
    log = folder / "log"
    with log.open("wb") as out:
        dev = subprocess.Popen(
            [sys.executable, "-m", "schedq", "dev", "app:queue", "--port", "0", *options],
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**plain, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": ""},
        )
    try:
        yield dev, log.read_text
    finally:
        dev.send_signal(signal.SIGINT)
        dev.wait(60)


def test_the_worker_restarts_on_change_survives_a_mistake_and_one_signal_ends_all(folder: Path):
    app = folder / "app.py"
    with running(folder) as (dev, written):
        until(lambda: "ready for dev" in written() and "listening on" in written(), failing=written)

        save(app, app.read_text().replace("version one", "version two"))
        until(lambda: "version two" in written(), failing=written)
        until(lambda: written().count("ready for dev") == 2, failing=written)

        right = app.read_text()
        save(app, right + "import nosuchmodule\n")
        until(lambda: "starts again when a file changes" in written(), failing=written)
        save(app, right)
        until(lambda: written().count("ready for dev") == 3, failing=written)

    assert dev.returncode == 0
    assert written().rstrip().endswith("stopped")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals processes when a pipe is closed")
def test_worker_and_dashboard_stop_when_their_parent_is_killed(tmp_path: Path, server: Server):
    own, shown = server.unix_url, server.unix_url.partition("?")[0] + "?db=15"
    (tmp_path / "app.py").write_text(APP.replace('"dev"', f'"dev", redis="{own}"'))
    with running(tmp_path, "--redis", shown) as (dev, written):
        until(lambda: "ready for dev" in written() and "listening on" in written(), failing=written)
        children = Path(f"/proc/{dev.pid}/task/{dev.pid}/children").read_text().split()
        ends = [os.pidfd_open(int(pid)) for pid in children]

        dev.kill()

        for end in ends:
            assert select.select([end], [], [], 60)[0], written()
            os.close(end)

    assert len(ends) == 2
    assert "stopped" in written()
    assert f"queue dev is on unix://{server.socket_path}, and the dashboard shows {shown}" in written()


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
    for name in ("SCHEDQ_REDIS_URL", UNDER_DEV):
        monkeypatch.setenv(name, "")  # it sets others

    with pytest.raises(RestartedError):
        dev.dev.callback(("app:queue",), "redis://127.0.0.1:1", str(folder), 0)  # type: ignore[misc]
