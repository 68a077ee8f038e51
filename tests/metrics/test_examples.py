"""What the alert rules and the dashboard of examples/prometheus ask for, and the handbook names, is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from schedq.integrations import pytest as plugin
from schedq.metrics import AttemptMetrics, QueueCollector, RedisQueues, merged, page
from schedq.metrics.config import MonitorConfig
from schedq.metrics.serving import Monitor
from schedq.transitions import announce
from tests.doors import Handle
from tests.metrics.scrape import Scrape, scraped
from tests.pages import PAGES

FOLDER = Path(__file__).parents[2] / "examples" / "prometheus"
ALERTS = (FOLDER / "alerts.yaml").read_text()
METRIC = re.compile(r"\bschedq_[a-z_]+\b")
LABELS = re.compile(r"(schedq_[a-z_]+)\{([^}]*)\}")
GROUPED = re.compile(r"by \(([a-z, ]+)\)")


@pytest.fixture
def served(queue: Handle) -> Scrape:
    """All that a fleet's page has."""
    nothing = queue.task(lambda: None, name="nothing")
    with queue.queue.blocking.batch("b", nothing) as batch:
        batch.add([nothing.with_args()])
    queue.redis.hincrby(queue.keys.stats, "suspended_total", 1)
    queue.execute([announce.announce(queue.settings)])
    queue.enqueue(1, delay=3600)
    queue.gates.set("api", concurrency=1)
    queue.execute([announce.report_outbox(queue.settings, "outbox", "{}")])
    monitor = Monitor(MonitorConfig(metrics_port=0), [queue.queue])
    assert monitor._metrics is not None
    collector = QueueCollector([RedisQueues.of([queue.queue])])
    text = page(monitor._metrics.collectors).body.decode()
    found = scraped(merged({1: text}, [collector]))
    collector.close()
    return found


def panels() -> Iterator[dict[str, Any]]:
    yield from json.loads((FOLDER / "dashboard.json").read_text())["panels"]


def expressions() -> list[str]:
    """Every query of the examples."""
    ours = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    alerts = re.findall(r"expr: (?!>-)(.+)|expr: >-\n((?:          .+\n)+)", ALERTS)
    return [*ours, *(one or folded for one, folded in alerts)]


def test_every_metric_that_the_examples_name_exists(served: Scrape) -> None:
    named = {name for text in expressions() for name in METRIC.findall(text)}

    assert len(named) > 20
    assert named - served.names == set()


def test_every_metric_that_the_handbook_names_exists(served: Scrape) -> None:
    others = {
        "schedq_worker",
        "schedq_outbox",
        *vars(plugin),
    }  # a command, a table, fixtures
    named = {name for text in PAGES.values() for name in METRIC.findall(text)} - others
    histograms = {name for name in served.names if name.endswith("_bucket")}

    assert "schedq_pending_oldest_age_seconds" in named  # by which Kubernetes scales
    assert named - served.names - {name.removesuffix("_bucket") for name in histograms} == set()


def test_every_label_that_the_examples_name_exists(served: Scrape) -> None:
    labels = {(sample.name, label) for sample in served.samples for label in sample.labels}
    wanted = {
        (name, label) for text in expressions() for name, inside in LABELS.findall(text) for label in _labels(inside)
    }
    known = {label for _, label in labels} | {"instance"}  # Prometheus adds that one

    assert wanted and wanted <= labels
    assert {label for text in expressions() for group in GROUPED.findall(text) for label in group.split(", ")} <= known


def _labels(inside: str) -> list[str]:
    return re.findall(r"(\w+)(?:=~|=)", inside)


def test_the_dashboard_can_be_read_and_its_panels_do_not_overlap() -> None:
    found = list(panels())
    boxes = [panel["gridPos"] for panel in found]
    cells = [(box["x"] + dx, box["y"] + dy) for box in boxes for dx in range(box["w"]) for dy in range(box["h"])]

    assert len({panel["id"] for panel in found}) == len(found)
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert all(panel["targets"] and panel["title"] for panel in found if panel["type"] != "row")


def test_the_rules_are_well_formed() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    rules = yaml.safe_load(ALERTS)["groups"][0]["rules"]
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())

    assert len({rule["alert"] for rule in rules}) == len(rules) >= 10
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["expr"].strip()
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert {"summary", "description"} == set(rule["annotations"])
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))
    assert (FOLDER / config["rule_files"][0]).exists()


def test_the_rules_have_an_expression_and_a_summary_each() -> None:
    """This needs no YAML parser: there is one of each per alert, and no tab."""
    assert "\t" not in ALERTS
    for word in ("- alert: ", " expr: ", " summary: ", " description: ", " severity: "):
        assert ALERTS.count(word) == ALERTS.count("- alert: ")


def test_the_handbook_names_every_alert_and_no_other() -> None:
    table = PAGES["schedq/handbook/monitoring.md"]

    assert set(re.findall(r"`(Schedq[A-Z]\w+)`", table)) == set(re.findall(r"- alert: (\w+)", ALERTS))


def test_every_metric_of_a_worker_is_documented_by_its_help_text(served: Scrape) -> None:
    registry = CollectorRegistry()
    AttemptMetrics([], registry)

    assert not [family.name for family in served.families if not family.documentation]
