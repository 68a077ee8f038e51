"""`examples/demo_server.py`: its page works with real jobs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from schedq import Queue
from tests.servers import Server, reserve_port

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[3] / "examples"
PATIENCE_S = 60.0
LEASE_MS = 3000


class Browser:
    """Acts like the page's script: sends JSON requests from the page's own origin."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.own = f"127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Status and response."""
        said = {"Host": self.own, "Origin": f"http://{self.own}", "Content-Type": "application/json"}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, json.dumps(body or {}) if method == "POST" else None, said)
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if is_json else text
        finally:
            connection.close()

    def act(self, path: str, body: object = None) -> Any:
        """The response to an action that must succeed."""
        status, facts = self.ask("POST", f"/api/{path}", body)
        assert status == 200, facts
        return facts

    def wait_for(self, what: Callable[[dict[str, Any]], object]) -> Any:
        """The first state for which the condition holds."""
        until = time.monotonic() + PATIENCE_S
        while True:
            _, state = self.ask("GET", "/api/state")
            if what(state):
                return state
            assert time.monotonic() < until, state
            time.sleep(0.02)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture(scope="module")
def demo(server: Server) -> Iterator[Browser]:
    port = server.url.rpartition(":")[2].partition("/")[0]
    where = ["--port", "0", "--redis-host", "127.0.0.1", "--redis-port", port, "--visibility-ms", str(LEASE_MS)]
    command = [sys.executable, str(EXAMPLES / "demo_server.py"), *where, "--queue-name", "shown"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            lines = [process.stdout.readline().strip() for _ in range(3)]
            listening, address = lines[0].rsplit(" ", 1)
            assert listening == "Redis job-queue demo server listening on"
            assert lines[1:] == [f"Using Redis at 127.0.0.1:{port}", f"Visibility timeout: {LEASE_MS} ms"]
            yield Browser(int(address.rpartition(":")[2]))
        finally:
            process.terminate()


@pytest.fixture(autouse=True)
def empty(demo: Browser) -> Iterator[None]:
    yield
    rest(demo)
    demo.act("purge")


def rest(demo: Browser) -> None:
    demo.act("workers/stop")
    demo.wait_for(lambda state: state["pool"]["running"] == 0)


def has_running(state: dict[str, Any], size: int) -> bool:
    return bool(state["pool"]["running"] == size)


def tune(demo: Browser, **values: float) -> None:
    demo.act("workers/tune", {"size": 2, "latency_ms": 0, "failure_rate": 0, "hang_rate": 0} | values)


@pytest.mark.parametrize("kind", ["email", "webhook", "thumbnail", "invoice"])
def test_a_batch_of_each_kind_is_enqueued_and_worked_on(demo: Browser, kind: str):
    enqueued = demo.act("enqueue", {"kind": kind, "count": 7})["enqueued"]
    waiting = demo.wait_for(lambda state: state["stats"]["pending_depth"] == 7)
    assert {row["payload"]["kind"] for row in waiting["lists"]["pending"]} == {kind}

    tune(demo)
    demo.act("workers/start")

    done = demo.wait_for(lambda state: len(state["lists"]["completed"]) == 7)
    assert {row["id"] for row in done["lists"]["completed"]} == set(enqueued)


def test_a_delayed_batch_waits_with_a_countdown_and_then_runs(demo: Browser):
    tune(demo)
    demo.act("workers/start")

    demo.act("enqueue", {"kind": "email", "count": 3, "delay": 1.5})

    _, state = demo.ask("GET", "/api/state")
    seen = state["lists"]["delayed"] + state["lists"]["completed"]
    assert all(row["run_at_ms"] > 0 for row in seen)
    assert demo.wait_for(lambda state: state["stats"]["completed_depth"] == 3)


def test_jobs_fail_as_often_as_configured_and_are_retried_after_a_delay(demo: Browser):
    demo.act("enqueue", {"kind": "invoice", "count": 4})

    tune(demo, failure_rate=1)
    demo.act("workers/start")

    state = demo.wait_for(lambda state: len(state["lists"]["delayed"]) == 4)
    assert {row["error"] for row in state["lists"]["delayed"]} == {"mock failure, as tuned"}


def test_a_hung_job_is_taken_back_and_completed_by_a_worker_that_does_not_hang(demo: Browser):
    (job_id,) = demo.act("enqueue", {"kind": "webhook", "count": 1})["enqueued"]
    tune(demo, hang_rate=1)
    demo.act("workers/start")
    demo.wait_for(lambda state: state["stats"]["processing_depth"] and state["pool"]["hung"])
    rest(demo)

    found: list[str] = []
    until = time.monotonic() + PATIENCE_S
    while not found and time.monotonic() < until:
        found = demo.act("reclaim")["reclaimed"]
        time.sleep(0.05)
    assert found == [job_id]

    tune(demo)
    demo.act("workers/start")
    done = demo.wait_for(lambda state: state["lists"]["completed"])
    assert done["lists"]["completed"][0]["attempts"] == 2


def test_the_pool_grows_and_shrinks_while_it_runs(demo: Browser):
    tune(demo, size=1)
    demo.act("workers/start")

    for size in (5, 2, 0, 3):
        tune(demo, size=size)
        demo.act("workers/start")
        running = partial(has_running, size=size)
        assert demo.wait_for(running)


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("enqueue", {"kind": "parcel"}, "parcel"),
        ("enqueue", {"kind": "email", "count": 0}, "got 0"),
        ("enqueue", {"kind": "email", "delay": -1}, "got -1"),
        ("workers/tune", {"size": 1000}, "got 1000"),
        ("workers/tune", {"failure_rate": 2}, "got 2"),
        ("workers/tune", {"speed": 1}, "speed"),
        ("enqueue", [1], "object"),
    ],
)
def test_invalid_values_are_refused_by_name(demo: Browser, path: str, body: object, named: str):
    status, facts = demo.ask("POST", f"/api/{path}", body)

    assert status == 400
    assert named in facts["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": ""}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Content_Type": "text/plain"}, 415),
    ],
)
def test_another_site_can_do_nothing(demo: Browser, headers: dict[str, str], status: int):
    assert demo.ask("POST", "/api/enqueue", {"kind": "email"}, **headers)[0] == status

    assert demo.ask("GET", "/api/state")[1]["stats"]["pending_depth"] == 0


def test_a_page_under_a_foreign_name_is_not_served(demo: Browser):
    assert demo.ask("GET", "/", Host="evil.example")[0] == 421


def test_the_page_brings_its_own_files_and_nothing_else_is_read(demo: Browser):
    status, page = demo.ask("GET", "/")

    assert status == 200
    assert "<form" in page
    assert "//" not in page.replace("<!doctype", "")
    for name in ("demo_server.js", "demo_server.css", "demo_server.svg"):
        assert name in page
        assert demo.ask("GET", f"/{name}")[0] == 200
    assert demo.ask("GET", "/demo_server.py")[0] == 404


def test_without_a_redis_it_reports_that_in_one_line():
    port = str(reserve_port())  # nothing listens there
    command = [sys.executable, str(EXAMPLES / "demo_server.py"), "--port", "0", "--redis-port", port]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert port in ended.stderr


def test_redis_url_says_where_redis_is(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import demo_server

    monkeypatch.setenv("REDIS_URL", "redis://:secret@queue.example:7000/3")

    url = demo_server.redis_url(demo_server.arguments([]))
    assert url == "redis://:secret@queue.example:7000/3"
    assert demo_server.place(url) == "queue.example:7000"
    assert demo_server.redis_url(demo_server.arguments(["--redis-host", "other"])) == "redis://other:6379"


def test_its_jobs_are_those_of_any_other_client(server: Server, demo: Browser):
    (job_id,) = demo.act("enqueue", {"kind": "thumbnail", "count": 1})["enqueued"]

    with Queue("shown", redis=server.url) as queue:
        found = queue.get_job(job_id)

    assert found is not None
    assert found.payload["kind"] == "thumbnail"
