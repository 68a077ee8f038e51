"""`schedq watch`: notices reach a web server or a program, and none is lost."""

from __future__ import annotations

import http.server
import json
import os
import signal
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from schedq import Queue
from tests.cli.conftest import Run, Said
from tests.servers import Server, release_port, reserve_port
from tests.waiting import until

NOISE = ("no-persistence", "snapshots-only", "version-known-bad", "clock-jump", "clock-offset", "latency-high")
IGNORED = [word for code in (*NOISE, "latency-stalls", "scripts-slow", "no-promoter") for word in ("--ignore", code)]


class Site(http.server.ThreadingHTTPServer):
    """A web server that keeps what is posted to it."""

    daemon_threads = True

    def __init__(self, status: int = 204, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", port), Hook)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.status = status
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.is_slow = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def notices(self) -> list[tuple[str, str]]:
        """Code and state of each notice, in order."""
        return [(found["code"], found["state"]) for _, _, found in self.requests]


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        site: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        site.requests.append((self.path, dict(self.headers), json.loads(body)))
        if site.is_slow.is_set():
            for _ in range(100):  # a byte now and then, which no timeout of a socket notices
                self.wfile.write(b"H")
                time.sleep(0.1)
        self.send_response(site.status)
        self.send_header("Location", f"{site.url}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.shutdown()
    site.server_close()


Once = Callable[..., Said]


@pytest.fixture
def once(run: Run, tmp_path: Path) -> Once:
    """Looks once and delivers; with the same state each time."""

    def once(*words: str) -> Said:
        return run("watch", *words, "--once", "--state", str(tmp_path / "watch.json"), *IGNORED)

    return once


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    """Makes a program of a shell script."""

    def program(script: str) -> str:
        path = tmp_path / "notify"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return program


# -- webhooks


def test_a_web_server_gets_a_finding_when_it_appears_and_nothing_while_it_lasts(once: Once, site: Site, queue: Queue):
    queue.enqueue(1)

    first, second = once("--webhook", f"{site.url}/hook?key=s3cret"), once("--webhook", f"{site.url}/hook?key=s3cret")

    assert (first.code, second.code) == (0, 0)
    ((path, headers, notice),) = site.requests
    assert path == "/hook?key=s3cret"
    assert headers["Content-Type"] == "application/json"
    assert "Authorization" not in headers
    assert (notice["code"], notice["queue"], notice["severity"], notice["state"], notice["value"]) == (
        "no-worker",
        "mail",
        "warning",
        "appeared",
        1,
    )
    assert notice["text"] == "no worker is alive; 1 pending, 0 delayed, 0 running"
    assert notice["remedy"] == "start one: schedq worker MODULE:QUEUE"


def test_the_log_has_a_line_per_notice_and_no_secret(
    once: Once, site: Site, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SCHEDQ_WEBHOOK_AUTHORIZATION", "Bearer t0ken")
    queue.enqueue(1)

    said = once("--webhook", f"{site.url}/hook?key=s3cret")

    assert said.complaint.endswith(f" INFO    notice: no-worker of queue mail appeared: sent to {site.url}")
    assert site.requests[0][1]["Authorization"] == "Bearer t0ken"


@pytest.mark.parametrize("status", [301, 307, 404, 500])
def test_what_a_web_server_does_not_accept_is_kept(status: int, once: Once, site: Site, queue: Queue, tmp_path: Path):
    queue.enqueue(1)
    site.status = status

    said = once("--webhook", site.url)

    assert said.code == 1
    assert f"{site.url}: status {status}" in said.err
    assert [path for path, _, _ in site.requests] == ["/"]  # no redirect is followed
    forget_pause(tmp_path)
    site.status = 200
    assert once("--webhook", site.url).code == 0
    first, second = site.requests
    assert first[2] == second[2]  # with the same id


def forget_pause(folder: Path) -> None:
    """Let a notice that has failed be due now."""
    state = json.loads((folder / "watch.json").read_text())
    for found in state["findings"]:
        found["notice"]["next_s"] = 0
    (folder / "watch.json").write_text(json.dumps(state))


def test_a_notice_that_does_not_arrive_is_sent_after_a_restart_although_the_finding_has_gone(
    once: Once, queue: Queue, tmp_path: Path
):
    job_id = queue.enqueue(1)
    port = reserve_port()
    try:
        assert once("--webhook", f"http://127.0.0.1:{port}").code == 1
        queue.cancel(job_id)
        forget_pause(tmp_path)
        site = Site(port=port)
        assert once("--webhook", site.url).code == 0
        site.shutdown()
        site.server_close()
    finally:
        release_port(port)

    assert site.notices == [("no-worker", "appeared")]


def test_many_notices_for_a_server_that_is_down_cost_one_try(once: Once, make_queue: Callable[..., Queue]):
    for number in range(20):
        make_queue(f"q{number}").enqueue(1)

    said = once("--webhook", "http://127.0.0.1:1")

    assert said.code == 1
    assert said.err.count("not sent") == 1


def test_a_web_server_that_sends_a_byte_now_and_then_is_left(once: Once, site: Site, queue: Queue):
    queue.enqueue(1)
    site.is_slow.set()

    began = time.monotonic()
    said = once("--webhook", site.url, "--limit", "300ms")

    assert said.code == 1
    assert time.monotonic() - began < 8  # the whole reply would take 10 s
    assert "not sent" in said.err


def test_a_certificate_is_verified(once: Once, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    queue.enqueue(1)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    site = Site(context=context)
    url = site.url.replace("http://127.0.0.1", "https://localhost")

    said = once("--webhook", url)
    assert said.code == 1
    assert "CERTIFICATE_VERIFY_FAILED" in said.err
    forget_pause(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    said = once("--webhook", url)
    site.shutdown()
    site.server_close()

    assert said.code == 0
    assert site.notices == [("no-worker", "appeared")]


# -- programs


def test_a_program_gets_the_notice_on_its_standard_input(once: Once, queue: Queue, program: Any, tmp_path: Path):
    queue.enqueue(1)

    said = once("--exec", f"{program('cat > $1')} '{tmp_path / 'the notice'}'")

    assert said.code == 0
    notice = json.loads((tmp_path / "the notice").read_text())
    assert (notice["code"], notice["state"]) == ("no-worker", "appeared")


def test_a_program_that_fails_is_started_again(once: Once, queue: Queue, program: Any, tmp_path: Path):
    queue.enqueue(1)

    assert once("--exec", program("exit 3")).code == 1
    assert once("--exec", program("exit 0")).code == 0  # not due yet
    forget_pause(tmp_path)
    assert once("--exec", program(f"cat > {tmp_path}/notice")).code == 0

    assert json.loads((tmp_path / "notice").read_text())["code"] == "no-worker"


def test_a_program_that_hangs_is_killed_with_what_it_started(once: Once, queue: Queue, program: Any, tmp_path: Path):
    queue.enqueue(1)

    began = time.monotonic()
    said = once("--exec", program(f"sleep 60 & echo $! > {tmp_path}/pid; wait"), "--limit", "1s")

    assert said.code == 1
    assert time.monotonic() - began < 20
    assert "killed, as it took more than 1 s" in said.err
    child = int((tmp_path / "pid").read_text())
    until(lambda: not is_running(child), within=20)


def is_running(pid: int) -> bool:
    """Whether a process has not ended; one that was not waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# -- the server


def test_a_redis_that_is_down_is_a_finding(once: Once, site: Site):
    said = once("--webhook", site.url, "--redis", "redis://127.0.0.1:1/0")

    assert said.code == 0
    assert site.notices == [("redis-unavailable", "appeared")]


def test_a_viewer_is_enough(site: Site, run: Run, tmp_path: Path):
    with Server(users={}, topology="single") as server, Queue("mail", redis=server.own_url) as queue:
        queue.enqueue(1)
        (line,) = run("doctor", "--acl", "--role", "viewer", "--user", "eye").out.splitlines()
        with server.client() as client:
            client.execute_command(*line.split())
            client.execute_command("ACL", "SETUSER", "eye", ">eye")
        words = ("--webhook", site.url, "--once", "--state", str(tmp_path / "watch.json"), *IGNORED)

        said = run("watch", *words, "--redis", server.url_as("eye"))

    assert said.code == 0
    assert site.notices == [("no-worker", "appeared")]


# -- the file


def test_a_damaged_file_is_kept_and_everything_is_reported_again(once: Once, site: Site, queue: Queue, tmp_path: Path):
    queue.enqueue(1)
    (tmp_path / "watch.json").write_text("{")

    said = once("--webhook", site.url)

    assert said.code == 0
    assert site.notices == [("no-worker", "appeared")]
    assert (tmp_path / "watch.json.damaged").read_text() == "{"
    assert "is damaged" in said.err


def test_by_default_the_file_is_in_the_users_folder_one_for_each_choice_of_queues(
    run: Run, site: Site, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    queue.enqueue(1)

    for names in ([], ["mail"], ["mail"]):
        assert run("watch", *names, "--webhook", site.url, "--once", *IGNORED).code == 0

    assert len(list((tmp_path / "schedq").glob("watch-*.json"))) == 2
    assert site.notices == [("no-worker", "appeared")] * 2


# -- as a process


def started(desk: Server, site: Site, state: Path) -> subprocess.Popen[str]:
    """The command, which looks every second."""
    words = ("watch", "--webhook", site.url, "--every", "1s", "--state", str(state), *IGNORED)
    environment = os.environ | {"SCHEDQ_REDIS_URL": desk.unix_url}
    return subprocess.Popen(
        [sys.executable, "-m", "schedq", *words], stderr=subprocess.PIPE, text=True, env=environment
    )


@pytest.mark.processes
def test_it_survives_an_outage_and_stops_when_asked_to(site: Site, tmp_path: Path):
    with Server() as server, Queue("mail", redis=server.unix_url) as queue:
        queue.enqueue(1)
        with started(server, site, tmp_path / "watch.json") as process:
            until(lambda: site.notices == [("no-worker", "appeared")], within=60)
            server.kill()
            until(lambda: ("redis-unavailable", "appeared") in site.notices, within=60)
            other = started(server, site, tmp_path / "watch.json")
            _, complaint = other.communicate(timeout=60)
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=60)

    assert process.returncode == 0
    assert "Traceback" not in log
    assert log.count("notice: ") == 2
    assert (other.returncode, complaint.strip()) == (1, f"schedq: another schedq watch uses {tmp_path / 'watch.json'}")


# -- mistakes


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--every", "5"], "give either --webhook URL or --exec COMMAND"),
        (["--webhook", "http://h", "--exec", "cat"], "give either --webhook URL or --exec COMMAND"),
        (["--webhook", "ftp://h"], "must be http://HOST or https://HOST"),
        (["--webhook", "http:///x"], "must be http://HOST or https://HOST"),
        (["--webhook", "http://h:x"], "the URL of the webhook is invalid"),
        (["--webhook", "http://h/a b"], "percent-encoded"),
        (["--webhook", "http://ada:pw@h/"], "must not contain a password"),
        (["--exec", "'"], "can't be split into words"),
        (["--exec", ""], "must not be empty"),
        (["--exec", "no-such-program --x"], "there is no program 'no-such-program'"),
        (["--exec", "cat", "--every", "100ms"], "--every must be at least 1s"),
        (["--exec", "cat", "--limit", "0"], "--limit must be more than 0"),
        (["--exec", "cat", "a b"], "queue name 'a b'"),
        (["--exec", "cat", "--redis", "http://x"], "unknown Redis URL scheme"),
        (["--exec", "cat", "--level", "bad"], "is not one of"),
    ],
)
def test_mistakes_are_one_line(words: list[str], says: str, run: Run):
    said = run("watch", *words)

    assert said.code == 2
    assert says in said.complaint
    assert "pw" not in said.err


def test_a_header_of_two_lines_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SCHEDQ_WEBHOOK_AUTHORIZATION", "Bearer a\nX: b")

    said = run("watch", "--webhook", "http://h")

    assert said.code == 2
    assert "SCHEDQ_WEBHOOK_AUTHORIZATION must be printable ASCII" in said.complaint


def test_a_folder_that_can_not_be_written_is_one_line(run: Run, tmp_path: Path):
    (tmp_path / "file").touch()

    said = run("watch", "--exec", "cat", "--once", "--state", str(tmp_path / "file" / "watch.json"))

    assert said.code == 1
    assert "can't be used" in said.complaint
