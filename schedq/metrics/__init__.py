"""Metrics for Prometheus, by the extra `metrics`; every module can be imported without it.

`schedq worker --metrics-port` and `schedq exporter` serve them. An application that runs workers by itself, or has a
registry of its own, uses the two collectors:

    worker = Worker([queue], observers=[AttemptMetrics([queue], registry)])
    registry.register(QueueCollector([RedisQueues.of([queue])]))
"""

from schedq.metrics.attempts import AttemptMetrics
from schedq.metrics.extra import needed
from schedq.metrics.page import merged, page
from schedq.metrics.queues import RETRY_S, QueueCollector, RedisQueues
from schedq.metrics.stuck import StuckCollector

__all__ = ["RETRY_S", "AttemptMetrics", "QueueCollector", "RedisQueues", "StuckCollector", "merged", "needed", "page"]
