"""The web servers of a worker, of several worker processes, and of `schedq exporter`: which serves which pages."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from schedq.errors import UsageError
from schedq.logs import log
from schedq.metrics import exposition
from schedq.metrics.attempts import AttemptMetrics, StuckCollector
from schedq.metrics.config import MonitorConfig
from schedq.metrics.health import Children, HealthProbe, pages
from schedq.metrics.queues import QueueCollector, RedisQueues
from schedq.metrics.web import TEXT, Page, Response, WebServer
from schedq.model.settings import Settings
from schedq.model.times import monotonic
from schedq.observer import Observer
from schedq.queue.queue import Queue, QueueBase
from schedq.worker import Worker
from schedq.worker.process import MONITOR_FD, Supervisor

with suppress(ImportError):
    from prometheus_client import REGISTRY, CollectorRegistry, Gauge


class Monitor:
    """Watches one worker of this process and serves its health and metrics.

    Raises:
        UsageError: metrics are requested, but prometheus-client is not installed.
    """

    def __init__(self, config: MonitorConfig, queues: Sequence[QueueBase]) -> None:
        self._config = config
        self._queues = queues
        self._probe = HealthProbe(config.limit_s)
        self._metrics: _Metrics | None = None
        self._is_child = MONITOR_FD in os.environ
        if config.metrics_port is not None:
            exposition.needed()
            self._metrics = _Metrics(queues, self._probe)

    @property
    def observers(self) -> list[Observer]:
        """The observers that the worker needs."""
        return [self._probe, *([] if self._metrics is None else [self._metrics.attempts])]

    def serve(self, worker: Worker) -> None:
        """Serve the worker's health and metrics until the process ends.

        Raises:
            UsageError: a port is taken.
        """
        self._probe.attach(worker)
        health, metrics_pages = pages(self._probe.health), dict[str, Page]()
        if self._metrics is not None:
            self._metrics.slots.set(worker.concurrency)
            # If there are several processes, the parent reads Redis.
            collectors = [] if self._is_child else [_queue_collector(self._queues)]
            metrics_pages["/metrics"] = partial(exposition.page, (*self._metrics.collectors, *collectors))
        if self._is_child:
            listener = socket.socket(fileno=int(os.environ.pop(MONITOR_FD)))
            listener.set_inheritable(False)  # handlers may start processes
            WebServer(metrics_pages | health, listener=listener).start()
        else:
            _start(self._config, health, metrics_pages)


class _Metrics:
    """The metrics of a worker process, and those that the application registers with prometheus-client."""

    def __init__(self, queues: Sequence[QueueBase], probe: HealthProbe) -> None:
        registry = CollectorRegistry()
        tasks = [(queue.name, task) for queue in queues for task in queue.registry.names]
        self.collectors = (registry, REGISTRY, StuckCollector(lambda: probe.stuck, tasks))
        self.attempts = AttemptMetrics(queues, registry)
        self.slots = Gauge(
            "schedq_worker_slots", "Maximum number of jobs that the worker runs at once.", registry=registry
        )
        Gauge(
            "schedq_worker_loop_blocked_seconds", "How long the event loop has been blocked.", registry=registry
        ).set_function(lambda: probe.blocked_s)
        Gauge("schedq_worker_healthy", "1 while /healthz returns 200.", registry=registry).set_function(
            lambda: probe.health().is_healthy
        )


def serve_processes(supervisor: Supervisor, config: MonitorConfig, queues: Sequence[QueueBase]) -> list[WebServer]:
    """Start to serve the health and metrics of all worker processes on one port.

    Raises:
        UsageError: a port is taken, or metrics are requested but prometheus-client is not installed.
    """
    children = Children(supervisor.ports)
    metrics_pages: dict[str, Page] = {}
    if config.metrics_port is not None:
        exposition.needed()
        collector = _queue_collector(queues)

        def page(accept: str) -> Response:
            texts = {number: reply.page for number, reply in children.fetch("/metrics").items()}
            return exposition.merged(texts, [collector], accept)

        metrics_pages["/metrics"] = page
    return _start(config, pages(children.health), metrics_pages)


def _queue_collector(queues: Sequence[QueueBase]) -> QueueCollector:
    by_address: dict[object, list[QueueBase]] = {}
    for queue in queues:
        by_address.setdefault(queue.address, []).append(queue)
    return QueueCollector([RedisQueues.of(there) for there in by_address.values()])


def _start(config: MonitorConfig, health: dict[str, Page], metrics_pages: dict[str, Page]) -> list[WebServer]:
    """Start the servers of the configuration, or none if one of them can't listen."""
    ports = [(metrics_pages | health, config.metrics_port)]
    if config.health_port == 0 or config.health_port != config.metrics_port:
        ports.append((health, config.health_port))
    servers: list[WebServer] = []
    try:
        for site, port in ports:
            if port is not None:
                servers.append(WebServer(site, host=config.host, port=port))
    except UsageError:
        for server in servers:
            server.close()
        raise
    for server in servers:
        server.start()
        log.info("monitor: %s", "  ".join(f"{server.url}{path}" for path in server.paths))
    return servers


# -- the exporter

_SCAN_S: Final = 60.0
"""Seconds between two scans of all keys."""


def export(queue: Queue, host: str, port: int, *, scan: bool) -> None:
    """Serve the metrics of all queues of one Redis until SIGTERM or SIGINT.

    Args:
        queue: any queue of that Redis.
        host: address to listen on.
        port: 0 for any free port.
        scan: see `QueueDirectory`.

    Raises:
        UsageError: the port is taken, or prometheus-client is not installed.
    """
    directory = QueueDirectory(queue, scan=scan)
    collector = QueueCollector([RedisQueues(queue.address, directory.settings)])
    site: dict[str, Page] = {
        "/metrics": partial(exposition.page, (collector,)),
        "/livez": lambda _: Response(200, TEXT, b"ok\n"),
    }
    server = WebServer(site, host=host, port=port)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    server.start()
    log.info("exporter: ready for %s, %s/metrics", queue.address.label, server.url)
    while not stopped.wait(1):
        pass  # on some platforms, a wait without a timeout blocks signal handlers
    server.close()
    collector.close()


class QueueDirectory:
    """The queues of one Redis: those that schedq clients registered, and with a scan also others.

    Args:
        queue: any queue of that Redis.
        scan: also scan all keys, at most once a minute.
    """

    def __init__(self, queue: Queue, *, scan: bool) -> None:
        self.queue = queue
        self._scan = scan
        self._scanned_at: float | None = None
        self._others: set[str] = set()

    def settings(self) -> Sequence[Settings]:
        """The settings of each queue.

        Raises:
            SchedqError: Redis does not respond, or refuses.
        """
        is_due = self._scan and (self._scanned_at is None or monotonic() - self._scanned_at >= _SCAN_S)
        names = set(self.queue.list_queues(scan=is_due))
        if is_due:
            self._scanned_at, self._others = monotonic(), names
        return [self.queue.settings.of_queue(name) for name in sorted(names | self._others)]
