"""The page that Prometheus scrapes, of one process or of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Final, Protocol

from schedq.errors import UsageError
from schedq.metrics.web import Response

with suppress(ImportError):
    from prometheus_client.core import Metric, Sample
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.parser import text_string_to_metric_families


def needed() -> None:
    """Check that prometheus-client is installed.

    Raises:
        UsageError: it is not; the message says how to install it.
    """
    try:
        import prometheus_client  # noqa: F401 - checks that it is installed
    except ImportError as error:
        text = "metrics need the package prometheus-client: pip install 'schedq[metrics]'"
        raise UsageError(text) from error


class Collector(Protocol):
    """A registry or a custom collector of prometheus-client."""

    def collect(self) -> Iterable[Metric]:
        """The current metrics."""
        ...


class _Collected:
    """Metrics as a registry, which is what prometheus-client encodes."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """All metrics without creation times, which double the number of series; restarts are visible anyway."""
        for metric in self._metrics:
            if metric.type in ("counter", "histogram", "summary"):
                metric.samples = [sample for sample in metric.samples if sample.name != f"{metric.name}_created"]
            yield metric


def page(collectors: Iterable[Collector], accept: str = "") -> Response:
    """The metrics of all collectors, in the format of the Accept header.

    Raises:
        UsageError: prometheus-client is not installed.
    """
    needed()
    return _encoded(chain.from_iterable(collector.collect() for collector in collectors), accept)


def _encoded(metrics: Iterable[Metric], accept: str) -> Response:
    encode, kind = choose_encoder(accept)
    return Response(200, kind, encode(_Collected(metrics)))


def merged(texts: Mapping[int, str | None], others: Iterable[Collector], accept: str = "") -> Response:
    """The metrics of all processes, labeled with `process`, and of other collectors.

    Args:
        texts: process number -> its metrics page; None if it did not respond, which sets `schedq_worker_up` to 0.
        others: further collectors.
        accept: the Accept header.

    Raises:
        UsageError: prometheus-client is not installed.
    """
    needed()
    families: dict[str, Metric] = {}
    for number, text in texts.items():
        for metric in text_string_to_metric_families(text or _DOWN):
            family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                family.samples.append(Sample(sample.name, {**sample.labels, "process": str(number)}, sample.value))
    return _encoded(chain(families.values(), *(collector.collect() for collector in others)), accept)


_DOWN: Final = (
    "# HELP schedq_worker_up 1 while this worker claims jobs.\n# TYPE schedq_worker_up gauge\nschedq_worker_up 0\n"
)
