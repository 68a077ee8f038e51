"""Monitored workers: metrics, health and logs as a monitoring system receives them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.metrics.scrape import Scrape
from tests.stories.processes import app
from tests.stories.processes.scene import APP, ROOT, Process, Scene, call
from tests.stories.processes.stage import MakeScene, Together

pytestmark = pytest.mark.processes
together = Together()
SITE = re.compile(r"http://127\.0\.0\.1:\d+(?=/(?:metrics|healthz))")


def site(scene: Scene, process: Process) -> str:
    """The URL that a process serves, once it has logged it."""
    scene.until(lambda: SITE.search(process.log))
    found = SITE.search(process.log)
    assert found is not None
    return found[0]


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def health(url: str, path: str = "/healthz") -> tuple[int, dict[str, Any]]:
    code, text = get(url + path)
    return code, json.loads(text)


def scrape(url: str) -> Scrape:
    code, text = get(f"{url}/metrics")
    assert code == 200, text
    return Scrape(text)


@together()
def test_a_worker_serves_metrics_and_health_on_one_port(make_scene: MakeScene):
    scene = make_scene(visibility_ms=30_000)
    worker = scene.worker("--metrics-port", "0")
    url = site(scene, worker)
    job_id = scene.add("brief")
    scene.until(lambda: scene.is_completed(job_id))

    scene.until(lambda: scrape(url).value("schedq_attempts_total", task="brief", outcome="completed") == 1)

    found = scrape(url)
    assert found.value("schedq_worker_slots") == 10
    assert found.value("schedq_worker_up") == 1
    scene.until(lambda: scrape(url).value("schedq_worker_healthy") == 1)
    scene.until(lambda: scrape(url).value("schedq_queue_readable", queue=app.NAME) == 1)
    assert found.value("process_start_time_seconds") > 0
    scene.until(lambda: health(url)[0] == 200)
    scene.until(lambda: probe(url) == (0, "ok\n", ""))


@together()
def test_a_fleet_serves_all_its_processes_on_one_port(make_scene: MakeScene):
    scene = make_scene(visibility_ms=30_000)
    fleet = scene.worker("--processes", "2", "--metrics-port", "0")
    url = site(scene, fleet)
    scene.until(lambda: scene.is_alive(fleet, 2))
    ids = [scene.add("brief") for _ in range(10)]
    scene.until(lambda: scene.is_completed(*ids))

    def completed() -> float:
        return sum(value for _, value in scrape(url).all("schedq_attempts_total", task="brief", outcome="completed"))

    def up() -> list[tuple[str, float]]:
        return [(labels["process"], value) for labels, value in scrape(url).all("schedq_worker_up")]

    def pids() -> set[int]:
        return {int(told.get("pid", 0)) for told in health(url)[1]["processes"].values()}

    scene.until(lambda: completed() == 10)
    scene.until(lambda: up() == [("1", 1), ("2", 1)])
    scene.until(lambda: scrape(url).all("schedq_jobs", queue=app.NAME, state="completed"))
    before = fleet.children
    scene.until(lambda: health(url)[0] == 200 and pids() == before)

    for victim in before:
        os.kill(victim, signal.SIGKILL)
    scene.until(lambda: not before & fleet.children and health(url)[0] == 200)
    assert len(SITE.findall(fleet.log)) <= 3, "the children must only listen for their parent"


@together()
def test_a_blocked_loop_and_a_lost_redis_are_seen_from_outside(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.worker("--health-port", "0", "--health-limit", "0.5")
    url = site(scene, worker)
    scene.until(lambda: health(url)[0] == 200)

    scene.add("blocks", "free")
    scene.until(lambda: health(url, "/livez")[0] == 503)
    code, _, complaint = probe(url, "--live")
    scene.open("free")
    scene.until(lambda: health(url)[0] == 200)
    scene.server.kill()
    scene.until(lambda: any("Redis has been unreachable for" in reason for reason in health(url)[1]["reasons"]))
    scene.until(lambda: health(url, "/livez")[0] == 200)
    scene.server.start()

    assert code == 1
    assert complaint.startswith("schedq: the event loop has been blocked for")
    assert get(f"{url}/metrics")[0] == 404
    scene.until(lambda: health(url)[0] == 200)


@together()
def test_every_line_about_an_attempt_has_its_fields(make_scene: MakeScene):
    scene = make_scene(visibility_ms=30_000, backoff=0.01)
    worker = scene.worker("--log-format", "json", "-v", "--log-header", "request_id")
    job_id = scene.queue.enqueue(call("tells", "k4n4ri"), headers={"request_id": "r-1", "tenant": "acme"})

    def written() -> list[dict[str, Any]]:
        return [json.loads(line) for line in worker.log.splitlines(keepends=True) if line.endswith("\n")]

    scene.until(lambda: scene.is_completed(job_id))
    scene.until(lambda: any(line.get("outcome") == "completed" for line in written()))

    lines = written()
    about = [line for line in lines if job_id in line["message"]]
    (worker_id,) = {line["worker"] for line in about}
    assert len(about) == 5, about
    for line in about:
        assert (line["job_id"], line["queue"], line["task"]) == (job_id, app.NAME, "tells")
        assert line["attempt"] in (1, 2)
        assert line["time"] and line["level"] and line["logger"] == "schedq"
    ends = [line for line in about if "outcome" in line]
    assert [(line["attempt"], line["outcome"]) for line in ends] == [(1, "retry"), (2, "completed")]
    assert all(line["duration_s"] >= 0 and line["lateness_s"] >= 0 for line in ends)
    failed = [line for line in about if line["level"] == "warning"]
    assert [line["error"] for line in failed] == ["RuntimeError: not this time"]
    own = [line for line in lines if line["logger"] == "application"]
    assert [(line["job_id"], line["attempt"], line["task"], line["mail"]) for line in own] == [
        (job_id, 1, "tells", 7),
        (job_id, 2, "tells", 7),
    ]
    assert own[0]["worker"] == worker_id
    assert {line["request_id"] for line in (*about, *own)} == {"r-1"}
    assert not any({"tenant", "headers"} & line.keys() for line in lines)
    assert "k4n4ri" not in worker.log, "arguments of jobs must not be logged"


@together()
def test_an_exporter_serves_all_queues_and_stops_gracefully(make_scene: MakeScene):
    scene = make_scene()
    scene.add("brief")
    scene.client.lpush("queue:foreign:pending", "gone")
    exporter = scene.start("exporter", "--port", "0", "--scan")
    url = site(scene, exporter)

    found = scrape(url)
    scene.client.delete("queue:foreign:pending")

    assert found.value("schedq_jobs", queue=app.NAME, state="pending") == 1
    assert found.value("schedq_jobs", queue="foreign", state="pending") == 1
    assert found.value("schedq_redis_up") == 1
    exporter.send(signal.SIGTERM)
    assert exporter.code() == 0
    scene.queue.purge()


def probe(url: str, *options: str) -> tuple[int, str, str]:
    """The exit code and the output of the health check as a container runs it."""
    port = url.rpartition(":")[2]
    said = ran("-m", "schedq", "health", "--port", port, "--timeout", "60", *options)
    return said.returncode, said.stdout, said.stderr


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


WITHOUT = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "prometheus_client":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
"""


@pytest.mark.parametrize("words", [["worker", APP, "--metrics-port", "0"], ["exporter", "--port", "0"]])
def test_without_the_extra_one_line_says_how_to_get_it(words: list[str]):
    text = f"{WITHOUT}from schedq.cli import main\nmain({words!r})"

    said = ran("-c", text)

    assert said.returncode == 1
    assert said.stderr == ("schedq: metrics need the package prometheus-client: pip install 'schedq[metrics]'\n")


def test_without_the_extra_every_module_can_be_imported():
    text = f"""{WITHOUT}
import importlib, pkgutil, schedq
found = [module.name for module in pkgutil.walk_packages(schedq.__path__, "schedq.")]
of_django = ("django.admin", "django.models", "outbox.models")  # it imports them
for name in found:
    if not name.endswith(("__main__", "watcher", *of_django)):
        importlib.import_module(name)
assert "schedq.metrics.exposition" in sys.modules and "prometheus_client" not in sys.modules
"""

    said = ran("-c", text)

    assert (said.returncode, said.stderr) == (0, "")
