"""The examples' alert rules and the queries of the dashboard, in a real Prometheus that scrapes real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from schedq import Queue
from tests.metrics.test_examples import FOLDER, panels
from tests.servers import Server, release_port, reserve_port
from tests.waiting import until

FETCHED = Path(__file__).parents[2] / ".venv" / "prometheus" / "usr" / "bin"
"""Where scripts/prometheus.sh unpacks the programs."""
APP = """
from schedq import Exponential, Queue, Snooze

queue = Queue("shop", backoff=Exponential(base=0.05, cap=0.1))

@queue.task
def send(): ...

@queue.task(max_attempts=2)
def refuse():
    raise ValueError("refused")
"""
CONFIG = """
global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: schedq-exporter
    static_configs: [{{targets: ["127.0.0.1:{exporter}"]}}]
  - job_name: schedq-workers
    static_configs: [{{targets: ["127.0.0.1:{worker}"]}}]
"""
INTERVAL = "30s"


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`; without it the test is skipped."""
    found = shutil.which(name, path=f"{FETCHED}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed, and could not be fetched: see scripts/prometheus.sh")
    return found


def promtool(*words: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("promtool"), *words], cwd=folder, capture_output=True, text=True, check=False)


# -- rules


def test_prometheus_accepts_the_rules_and_the_configuration():
    for words in (("check", "rules", "alerts.yaml"), ("check", "config", "prometheus.yaml")):
        said = promtool(*words)
        assert said.returncode == 0, said.stdout + said.stderr


def test_each_alert_fires_when_it_should_and_not_otherwise():
    said = promtool("test", "rules", "alerts_test.yaml")

    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize(
    ("old", "new"), [("schedq_redis_up == 0", "schedq_redis_up == 2"), ("> 0.5", "> 0.2"), ("> 1000", "> 100000")]
)
def test_a_rule_that_is_wrong_is_found(old: str, new: str, tmp_path: Path):
    rules = (FOLDER / "alerts.yaml").read_text()
    assert old in rules
    (tmp_path / "alerts.yaml").write_text(rules.replace(old, new))
    shutil.copy(FOLDER / "alerts_test.yaml", tmp_path)

    said = promtool("test", "rules", "alerts_test.yaml", folder=tmp_path)

    assert said.returncode != 0


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
    groups = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
    cases = [case for group in groups for case in group["alert_rule_test"]]

    for fires in (True, False):
        assert {case["alertname"] for case in cases if bool(case["exp_alerts"]) == fires} == {
            rule["alert"] for rule in rules
        }


# -- the dashboard


@contextmanager
def running(log: Path, *words: str, cwd: Path, env: dict[str, str]) -> Iterator[None]:
    """A program until the end of the block; it must not end by itself."""
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, cwd=cwd, env=env)
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path: str, **words: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{path}?{urllib.parse.urlencode(words)}", timeout=30) as reply:
            found = json.load(reply)
        assert found["status"] == "success", found
        return found["data"]

    def is_up(self) -> bool:
        """Both targets have been scraped."""
        try:
            return [target["health"] for target in self.get("targets")["activeTargets"]] == ["up", "up"]
        except OSError:
            return False

    def figures(self, query: str) -> list[float]:
        """The values that a panel would show now."""
        asked = query.replace("$queue", ".*").replace("$__rate_interval", INTERVAL)
        found = [float(one["value"][1]) for one in self.get("query", query=asked)["result"]]
        return [value for value in found if value == value]  # NaN: there were no attempts


@pytest.fixture
def ports() -> Iterator[list[int]]:
    found = [reserve_port() for _ in range(3)]
    yield found
    for port in found:
        release_port(port)


@pytest.fixture
def prometheus(tmp_path: Path, ports: list[int]) -> Iterator[tuple[Prometheus, Queue]]:
    """Prometheus, an exporter, a worker, and the worker's queue; another queue has a backlog and gates."""
    path, (exporter, worker, port) = program("prometheus"), ports
    (tmp_path / "app.py").write_text(APP)
    config = CONFIG.format(rules=FOLDER / "alerts.yaml", exporter=exporter, worker=worker)
    (tmp_path / "prometheus.yaml").write_text(config)
    schedq = (sys.executable, "-m", "schedq")
    with ExitStack() as stack:
        server = stack.enter_context(Server())
        queue = stack.enter_context(Queue("shop", redis=server.unix_url))
        _fill(stack.enter_context(Queue("idle", redis=server.unix_url)))
        options: Any = {"cwd": tmp_path, "env": os.environ | {"SCHEDQ_REDIS_URL": server.unix_url}}
        words = ["exporter", "--port", str(exporter)]
        stack.enter_context(running(tmp_path / "exporter.log", *schedq, *words, **options))
        words = ["worker", "app:queue", "--metrics-port", str(worker)]
        stack.enter_context(running(tmp_path / "worker.log", *schedq, *words, **options))
        words = [f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/data"]
        words.append(f"--web.listen-address=127.0.0.1:{port}")
        stack.enter_context(running(tmp_path / "prometheus.log", path, *words, **options))
        found = Prometheus(port)
        until(found.is_up, within=120, failing=lambda: (tmp_path / "prometheus.log").read_text()[-3000:])
        yield found, queue


def _fill(idle: Queue) -> None:
    idle.enqueue_many(range(3))
    idle.enqueue("later", delay=3600)
    for gate in ("api", "mail"):
        idle.gates.set(gate, concurrency=1)
        idle.enqueue(gate, gate=gate, key="7")
    idle.gates.pause("mail")


@pytest.mark.processes
def test_every_query_of_the_dashboard_returns_data(prometheus: tuple[Prometheus, Queue]):
    found, queue = prometheus
    open_queries = {target["expr"] for panel in panels() for target in panel.get("targets", [])}
    assert len(open_queries) > 30

    def are_answered() -> bool:
        queue.enqueue_many([{"task": "send"}, {"task": "refuse"}])
        open_queries.difference_update({query for query in open_queries if found.figures(query)})
        return not open_queries

    until(are_answered, within=90, failing=lambda: sorted(open_queries))

    assert {"idle", "shop"} <= set(found.get("label/queue/values"))  # what the dashboard lets a person choose
    assert found.figures('sum(max by (queue) (schedq_jobs{queue="idle",state="delayed"}))') == [1]


@pytest.mark.processes
def test_prometheus_evaluates_every_rule(prometheus: tuple[Prometheus, Queue]):
    found, _ = prometheus

    def rules() -> list[dict[str, Any]]:
        return [rule for group in found.get("rules")["groups"] for rule in group["rules"]]

    until(lambda: rules() and all(rule["health"] != "unknown" for rule in rules()), within=60)
    until(lambda: {rule["name"]: rule["state"] for rule in rules()}.get("SchedqNoWorkers") == "pending", within=60)

    assert {(rule["health"], rule.get("lastError", "")) for rule in rules()} == {("ok", "")}
