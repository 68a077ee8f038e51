"""`schedq dashboard`: where it listens, what it refuses, how it ends."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from schedq import Queue, UsageError
from schedq.cli import main
from schedq.dashboard.serving import address_of, bound
from tests.dashboard.conftest import TOKEN
from tests.servers import Server

pytestmark = pytest.mark.processes


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command line that does not last; its exit code, and its one line on stderr."""
    monkeypatch.delenv("SCHEDQ_DASHBOARD_TOKEN", raising=False)

    def run(*words: str) -> tuple[object, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["dashboard", *words])
        (line,) = capsys.readouterr().err.splitlines()
        return ended.value.code, line

    return run


@pytest.fixture
def process(store: Server) -> Iterator[subprocess.Popen[str]]:
    """The running command, with a token; its first line has been read."""
    environment = os.environ | {"SCHEDQ_REDIS_URL": store.own_url, "SCHEDQ_DASHBOARD_TOKEN": TOKEN}
    words = [sys.executable, "-m", "schedq", "dashboard", "--port", "0"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_that_others_reach_needs_a_token(host: str, run: Any):
    code, line = run("--host", host)

    assert code == 2
    assert "can be reached from other machines: set a token" in line


def test_with_a_token_it_may_be_any_address():
    for host in ("0.0.0.0", "127.0.0.1", "localhost"):
        bound(host, 0, is_protected=True).close()
    with pytest.raises(UsageError, match="has no address"):
        bound("no such host", 0, is_protected=True)


def test_an_empty_token_is_refused(run: Any):
    assert run("--host", "0.0.0.0", "--token", "")[0] == 2
    assert run("--token", " ")[0] == 2


def test_a_port_that_is_taken_is_reported(run: Any):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, line = run("--port", str(taken.getsockname()[1]))

    assert (code, "can't listen on 127.0.0.1 port" in line) == (1, True)


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "a b"],
        ["--allow-host", "http://x"],
        ["--redis", "http://x"],
        ["--user-header", "X-User"],
        ["--trusted-proxy", "10.0.0.0/8"],
        ["--user-header", "X-User", "--trusted-proxy", "proxy"],
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], run: Any):
    assert run("--port", "0", *words)[0] == 2


def test_without_the_extra_it_says_how_to_get_it(run: Any, monkeypatch: pytest.MonkeyPatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "jinja2" else found(name))

    code, line = run()

    assert code == 1
    assert line.endswith("the dashboard needs jinja2: pip install 'schedq[dashboard]'")


def test_the_package_does_not_need_the_extra():
    check = """
import sys
class Missing:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in ("starlette", "uvicorn", "jinja2"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
import schedq, schedq.cli
try:
    import schedq.dashboard
except ImportError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True)

    assert said.stdout.strip() == "the dashboard needs starlette: pip install 'schedq[dashboard]'"


def test_it_serves_until_it_is_asked_to_stop_even_while_a_browser_is_connected(process: Any, store: Server):
    with Queue("mail", redis=store.own_url) as queue:
        queue.enqueue(1)
    line = process.stdout.readline()
    url = line.split()[-1]
    assert line == f"schedq dashboard: listening on {url}\n"
    headers = {"authorization": f"Bearer {TOKEN}", "accept": "text/event-stream"}

    with httpx.stream("GET", f"{url}/queues/mail", headers=headers, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        for _ in lines:
            pass

    assert process.stderr.read() == ""


def test_without_redis_it_starts_and_its_pages_say_so():
    environment = os.environ | {"SCHEDQ_REDIS_URL": "redis://127.0.0.1:1/0"}
    words = [sys.executable, "-m", "schedq", "dashboard", "--port", "0"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            answer = httpx.get(process.stdout.readline().split()[-1], timeout=60)
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(60)

    assert (answer.status_code, code) == (503, 0)


def test_the_address_is_printed_in_the_form_that_browsers_need():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert address_of(listening) == f"http://127.0.0.1:{listening.getsockname()[1]}"
