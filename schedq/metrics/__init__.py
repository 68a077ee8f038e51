"""Metrics for Prometheus. They need the extra `metrics`, but every module can be imported without it.

`schedq worker --metrics-port` and `schedq exporter` serve them. An application that runs its own workers, or has its
own registry, uses the two collectors:

    worker = Worker([queue], observers=[AttemptMetrics([queue], registry)])
    registry.register(QueueCollector([RedisQueues.of([queue])]))
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:  # imported when they are used, because prometheus_client is slow to import
    from schedq.metrics.attempts import AttemptMetrics as AttemptMetrics
    from schedq.metrics.attempts import StuckCollector as StuckCollector
    from schedq.metrics.exposition import merged as merged
    from schedq.metrics.exposition import needed as needed
    from schedq.metrics.exposition import page as page
    from schedq.metrics.queues import QueueCollector as QueueCollector
    from schedq.metrics.queues import RedisQueues as RedisQueues
    from schedq.model.settings import RETRY_S as RETRY_S

_MODULE_OF = {
    "RETRY_S": "schedq.model.settings",
    "AttemptMetrics": "schedq.metrics.attempts",
    "QueueCollector": "schedq.metrics.queues",
    "RedisQueues": "schedq.metrics.queues",
    "StuckCollector": "schedq.metrics.attempts",
    "merged": "schedq.metrics.exposition",
    "needed": "schedq.metrics.exposition",
    "page": "schedq.metrics.exposition",
}
__all__ = ["RETRY_S", "AttemptMetrics", "QueueCollector", "RedisQueues", "StuckCollector", "merged", "needed", "page"]


def __getattr__(name: str) -> typing.Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
