"""An application whose processes write what they have measured to a file."""

from __future__ import annotations

import json
import os

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

from schedq.tracing import MessagingMetrics
from tests.stories.processes.app import FOLDER, made

queue = made(os.environ.get("APP_REDIS"), json.loads(os.environ.get("APP_SETTINGS", "{}")))
exporter = ConsoleMetricExporter(out=(FOLDER / os.environ["APP_METRICS"]).open("a"))
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=100)]))
observer = MessagingMetrics()


@queue.task
def brief() -> None: ...
