"""What Prometheus would see, read by the client library's own parsers."""

from __future__ import annotations

from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Scrape:
    """The samples of a page."""

    def __init__(self, text: str, *, openmetrics: bool = False) -> None:
        self.families = list((read_openmetrics if openmetrics else read_text)(text))
        self.samples = [sample for family in self.families for sample in family.samples]
        keys = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in self.samples]
        assert len(keys) == len(set(keys)), "a series is there twice"

    @property
    def names(self) -> set[str]:
        """Of all samples."""
        return {sample.name for sample in self.samples}

    def all(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of the samples of this name that have these labels."""
        found = [sample for sample in self.samples if sample.name == name]
        return [(dict(sample.labels), sample.value) for sample in found if labels.items() <= sample.labels.items()]

    def value(self, name: str, **labels: str) -> float:
        """Of the one sample."""
        found = self.all(name, **labels)
        assert len(found) == 1, (name, labels, found)
        return found[0][1]


def scraped(response: Any) -> Scrape:
    """Parse the metrics of a response."""
    assert response.code == 200
    return Scrape(response.body.decode(), openmetrics="openmetrics" in response.kind)
