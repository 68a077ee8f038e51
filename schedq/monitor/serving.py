"""The sites of a worker and of a fleet: which pages are served where."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from schedq import metrics
from schedq.application import Application
from schedq.errors import UsageError
from schedq.fleet import MONITOR_FD, Fleet
from schedq.logger import log
from schedq.monitor import Wanted
from schedq.monitor.children import Children
from schedq.monitor.health import Watch, pages
from schedq.monitor.web import Answer, Page, Web
from schedq.observer import Observer
from schedq.worker import Worker

with suppress(ImportError):
    from prometheus_client import REGISTRY, CollectorRegistry, Gauge


class Monitor:
    """Watches one worker of this process and shows what it sees.

    Raises:
        UsageError: metrics are wanted, and prometheus-client is not installed.
    """

    def __init__(self, wanted: Wanted, queues: Sequence[Application]) -> None:
        self._wanted = wanted
        self._queues = queues
        self._watch = Watch(wanted.limit_s)
        self._metrics: _Metrics | None = None
        self._is_child = MONITOR_FD in os.environ
        if wanted.metrics_port is not None:
            metrics.needed()
            self._metrics = _Metrics(queues, self._watch)

    @property
    def observers(self) -> list[Observer]:
        """What the worker is to be observed by."""
        return [self._watch, *([] if self._metrics is None else [self._metrics.attempts])]

    def serve(self, worker: Worker) -> None:
        """Show how this worker gets on, from now until the process ends.

        Raises:
            UsageError: a port is taken.
        """
        self._watch.over(worker)
        health = pages(self._watch.health)
        if self._metrics is None:
            page = None
        else:
            self._metrics.slots.set(worker.concurrency)
            own = () if self._is_child else (_queue_collector(self._queues),)  # of a fleet the parent asks Redis
            page = partial(metrics.page, (*self._metrics.collectors, *own))
        if self._is_child:
            _answer_the_parent(health | ({} if page is None else {"/metrics": page}))
        else:
            _start(_sites(self._wanted, health, page))


class _Metrics:
    """What a worker process counts by itself, and whatever else the application counts with prometheus-client."""

    def __init__(self, queues: Sequence[Application], watch: Watch) -> None:
        registry = CollectorRegistry()
        tasks = [(queue.name, task) for queue in queues for task in queue.registry.names]
        self.collectors = (registry, REGISTRY, metrics.StuckCollector(lambda: watch.stuck, tasks))
        self.attempts = metrics.AttemptMetrics(queues, registry)
        self.slots = Gauge("schedq_worker_slots", "Jobs that the worker takes at a time.", registry=registry)
        blocked = Gauge(
            "schedq_worker_loop_blocked_seconds", "For how long the event loop has not turned.", registry=registry
        )
        blocked.set_function(lambda: watch.blocked_s)
        healthy = Gauge("schedq_worker_healthy", "1 while /healthz answers 200.", registry=registry)
        healthy.set_function(lambda: watch.health().is_well)


def sites_of(fleet: Fleet, wanted: Wanted, queues: Sequence[Application]) -> list[Web]:
    """Begin to show how the processes of a fleet get on, on one port for all.

    Raises:
        UsageError: a port is taken, or metrics are wanted and prometheus-client is not installed.
    """
    children = Children(fleet.ports)
    page: Page | None = None
    if wanted.metrics_port is not None:
        metrics.needed()
        collector = _queue_collector(queues)

        def page(accept: str) -> Answer:
            texts = {number: reply.page for number, reply in children.fetch("/metrics").items()}
            return metrics.merged(texts, [collector], accept)

    sites = _sites(wanted, pages(children.health), page)
    _start(sites)
    return sites


def _queue_collector(queues: Sequence[Application]) -> metrics.QueueCollector:
    places: dict[object, list[Application]] = {}
    for queue in queues:
        places.setdefault(queue.address, []).append(queue)
    return metrics.QueueCollector([metrics.RedisQueues.of(there) for there in places.values()])


def _sites(wanted: Wanted, health: Mapping[str, Page], metrics_page: Page | None) -> list[Web]:
    sites: list[Web] = []
    if wanted.metrics_port is not None and metrics_page is not None:
        sites.append(Web({"/metrics": metrics_page, **health}, host=wanted.host, port=wanted.metrics_port))
    if wanted.health_port is not None and (wanted.health_port == 0 or wanted.health_port != wanted.metrics_port):
        try:
            sites.append(Web(health, host=wanted.host, port=wanted.health_port))
        except UsageError:
            for site in sites:
                site.close()
            raise
    return sites


def _start(sites: Sequence[Web]) -> None:
    for site in sites:
        site.start()
        log.info("monitor: %s", "  ".join(f"{site.url}{path}" for path in site.paths))


def _answer_the_parent(site: Mapping[str, Page]) -> None:
    listener = socket.socket(fileno=int(os.environ.pop(MONITOR_FD)))
    listener.set_inheritable(False)  # handlers may start processes
    Web(site, listener=listener).start()
