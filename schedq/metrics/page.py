"""The text that Prometheus reads, of one process or of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Protocol

from schedq.monitor.web import Answer

with suppress(ImportError):
    from prometheus_client.core import Metric, Sample
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.parser import text_string_to_metric_families


class Collector(Protocol):
    """A registry, or anything else of prometheus-client that can be asked for metrics."""

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""
        ...


class _All:
    """Several as one. Creation times are left out: they double the number of series, and a restart shows anyway."""

    def __init__(self, collectors: Iterable[Collector]) -> None:
        self._collectors = tuple(collectors)

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            for metric in collector.collect():
                metric.samples = [sample for sample in metric.samples if not _is_creation(metric, sample)]
                yield metric


def _is_creation(metric: Metric, sample: Sample) -> bool:
    return metric.type in ("counter", "histogram", "summary") and sample.name == f"{metric.name}_created"


class _Given:
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def page(collectors: Iterable[Collector], accept: str = "") -> Answer:
    """The metrics of all, in the format that the Accept header asks for."""
    encode, kind = choose_encoder(accept)
    return Answer(200, kind, encode(_All(collectors)))


def merged(texts: Mapping[int, str | None], others: Iterable[Collector], accept: str = "") -> Answer:
    """The metrics of a fleet: those of its processes with the number of each as label `process`, and others.

    A process that did not answer (None) has `schedq_worker_up` 0.
    """
    families: dict[str, Metric] = {}
    for number, text in texts.items():
        for metric in text_string_to_metric_families(text or _DOWN):
            family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                family.samples.append(Sample(sample.name, {**sample.labels, "process": str(number)}, sample.value))
    return page([_Given(families.values()), *others], accept)


_DOWN = "# HELP schedq_worker_up 1 while this worker claims jobs.\n# TYPE schedq_worker_up gauge\nschedq_worker_up 0\n"
