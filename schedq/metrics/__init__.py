"""Metrics for Prometheus. They need the extra `metrics`, but every module can be imported without it.

`schedq worker --metrics-port` and `schedq exporter` serve them. An application that runs its own workers, or has its
own registry, uses the two collectors:

    worker = Worker([queue], observers=[AttemptMetrics([queue], registry)])
    registry.register(QueueCollector([RedisQueues.of([queue])]))
"""

from schedq.metrics.attempts import AttemptMetrics, StuckCollector
from schedq.metrics.page import merged, needed, page
from schedq.metrics.queues import QueueCollector, RedisQueues
from schedq.model.settings import RETRY_S

__all__ = ["RETRY_S", "AttemptMetrics", "QueueCollector", "RedisQueues", "StuckCollector", "merged", "needed", "page"]
