"""What the deployment files start: it becomes healthy, runs a job, and ends gracefully on SIGTERM."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from schedq import Queue
from tests.metrics.scrape import Scrape
from tests.servers import Server, environment_now, reserve_port
from tests.stories.deployment import files
from tests.stories.processes.scene import Process
from tests.waiting import until

pytestmark = pytest.mark.processes
HONCHO: Final = "from honcho import command, manager; manager.KILL_WAIT = 60; command.main()"
"""Honcho, which kills after 5 s what has not ended; that may be too soon on a busy machine."""
PROGRAMS: Final = Path(sys.executable).parent


class Host:
    """A machine with the application of a page, and a Redis that REDIS_URL names."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.redis = server.url
        self._started: list[Process] = []
        files.save_all(files.saved("project-layout.md"), folder)

    def start(self, command: Sequence[str], **environment: str) -> Process:
        """Start a command line, with programs from this environment."""
        program = PROGRAMS / command[0]
        settings = {"REDIS_URL": self.redis, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", **environment}
        inherited = {name: value for name, value in environment_now().items() if not name.startswith("SCHEDQ_")}
        number = len(self._started)
        process = Process(tuple(command[1:]), self.folder, number, inherited | settings, (str(program),), self.folder)
        self._started.append(process)
        return process

    def runs_a_job(self) -> bool:
        """Whether a job of the application completes."""
        with Queue("mail", redis=self.redis) as queue:
            job_id = queue.enqueue({"task": "send_welcome", "args": ["ada@example.org"]})
            return until(lambda: is_completed(queue, job_id), failing=lambda: self._started)

    def end(self) -> None:
        for process in self._started:
            process.end()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Server() as server:
        made = Host(tmp_path, server)
        try:
            yield made
        finally:
            made.end()


def is_completed(queue: Queue, job_id: str) -> bool:
    job = queue.get_job(job_id)
    return job is not None and job.status == "completed"


def at_a_free_port(command: Sequence[str]) -> tuple[list[str], int]:
    """The command with a port of its own, because 8081 or 9465 may be taken here; and that port."""
    port = reserve_port()
    return [str(port) if word == files.port_of(command) else word for word in command], port


def get(port: int, path: str) -> tuple[int, str]:
    """Status and text of a page; 0 while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""
    except OSError as error:
        return 0, str(error)


def ends_gracefully(process: Process) -> bool:
    """SIGTERM to the process alone ends it and its children, with exit code 0."""
    process.send(signal.SIGTERM)
    assert process.code() == 0, repr(process)
    return until(process.leaves_nothing)


def test_systemds_worker_and_promoter(host: Host) -> None:
    started = []
    for name in ("schedq-worker.service", "schedq-promoter.service"):
        words = shlex.split(files.unit(name)["Service"]["ExecStart"])
        assert words[0] == "/srv/shop/.venv/bin/schedq"
        command = ["schedq", *words[1:]]
        started.append(host.start(at_a_free_port(command)[0] if "worker" in command else command))

    assert host.runs_a_job()
    until(lambda: all("ready for" in process.log for process in started), failing=lambda: started)
    assert all(ends_gracefully(process) for process in started)


def test_the_procfile_under_honcho(host: Host) -> None:
    if not (PROGRAMS / "honcho").exists():
        pytest.skip("honcho is not installed (dev)")
    files.save_all(files.saved("procfile.md") | files.saved("fastapi.md") | {"bookshop/__init__.py": ""}, host.folder)
    port = reserve_port()
    command = ["python", "-c", HONCHO, "--no-colour", "start", "--port", str(port)]
    honcho = host.start(command, PYTHONUNBUFFERED="1")
    until(lambda: get(port, "/openapi.json")[0] == 200, failing=lambda: honcho)

    order, headers = json.dumps({"customer": "ada"}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/orders", order, headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        job = json.load(reply)["job"]
    until(lambda: '"completed"' in get(port, f"/jobs/{job}")[1], failing=lambda: honcho)

    honcho.send(signal.SIGTERM)
    assert honcho.code() == 128 + signal.SIGTERM
    assert re.search(r"worker\.1 \| .*: stopped$", honcho.output, re.MULTILINE), honcho.output
    assert "Application shutdown complete" in honcho.output
    until(honcho.leaves_nothing)


def test_the_image(host: Host) -> None:
    command, port = at_a_free_port(files.image_command())
    asks = [str(port) if word == files.health_command()[-1] else word for word in files.health_command()]
    health = [str(PROGRAMS / asks[0]), *asks[1:]]
    worker = host.start(command)

    assert subprocess.run([*health[:-1], str(reserve_port())], capture_output=True, check=False).returncode == 1
    until(lambda: subprocess.run(health, capture_output=True, check=False).returncode == 0, failing=lambda: worker)
    assert host.runs_a_job()
    assert ends_gracefully(worker)


def test_the_services_of_compose(host: Host) -> None:
    worker = host.start(at_a_free_port(files.services()["worker"]["command"])[0])
    command, port = at_a_free_port(files.services()["dashboard"]["command"])
    dashboard = host.start(command, SCHEDQ_DASHBOARD_TOKEN="a long random token")

    assert host.runs_a_job()
    until(lambda: get(port, "/login")[0] == 200, failing=lambda: dashboard)
    assert ends_gracefully(worker)
    assert ends_gracefully(dashboard)


def test_the_pods_of_kubernetes(host: Host) -> None:
    """Those that keep watch first: with no worker, the query of the autoscaler asks for one."""
    pods = files.containers("schedq-promoter")
    promoter = host.start(pods["promoter"]["args"])
    command, port = at_a_free_port(pods["exporter"]["args"])
    exporter = host.start(command)
    probe = pods["exporter"]["livenessProbe"]["httpGet"]["path"]
    until(lambda: get(port, probe)[0] == 200, failing=lambda: exporter)
    with Queue("mail", redis=host.redis) as queue:
        waiting = queue.enqueue({"task": "send_welcome", "args": ["ada@example.org"]}, delay=0.05)
        until(lambda: asked_for(get(port, "/metrics")[1]) > 0, failing=lambda: (promoter, exporter))

        container = files.containers("schedq-worker")["worker"]
        command, port = at_a_free_port(container["args"])
        worker = host.start(command)

        until(lambda: healthy(container, "livenessProbe", port), failing=lambda: worker)
        until(lambda: healthy(container, "readinessProbe", port), failing=lambda: worker)
        until(lambda: is_completed(queue, waiting), failing=lambda: worker)
    until(lambda: asked_for(get(port, "/metrics")[1]) == 0)
    for process in (worker, promoter, exporter):
        assert ends_gracefully(process)


def healthy(container: dict[str, Any], probe: str, port: int) -> bool:
    return get(port, container[probe]["httpGet"]["path"])[0] == 200


def asked_for(text: str) -> float:
    """The value of the autoscaler's query at a page of metrics; -1 while it is not exported."""
    (resource,) = files.resources("ScaledObject")
    query = resource["spec"]["triggers"][0]["metadata"]["query"]
    found = re.fullmatch(r'max\((\w+)\{(\w+)="(\w+)"\}\)', query)
    assert found, query
    return max((value for _, value in Scrape(text).all(found[1], **{found[2]: found[3]})), default=-1)
