"""Metrics of a whole Redis: every queue there, whoever uses it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Final

from schedq import metrics
from schedq.clocks import monotonic
from schedq.logger import log
from schedq.monitor.web import TEXT, Answer, Web
from schedq.queue import Queue
from schedq.settings import Settings

_SCAN_S: Final = 60.0


def export(queue: Queue, host: str, port: int, *, scan: bool) -> None:
    """Serve the metrics of all queues at one Redis until SIGTERM or SIGINT.

    Args:
        queue: any, to ask through.
        host: where to listen.
        port: 0 for any that is free.
        scan: see `Directory`.

    Raises:
        UsageError: the port is taken, or prometheus-client is not installed.
    """
    directory = Directory(queue, scan=scan)
    collector = metrics.QueueCollector([metrics.RedisQueues(queue.address, directory.settings)])
    web = Web({"/metrics": partial(metrics.page, (collector,)), "/livez": _lives}, host=host, port=port)
    asked = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    web.start()
    log.info("exporter: ready for %s, %s/metrics", queue.address.label, web.url)
    while not asked.wait(1):
        pass  # a wait without an end would not let a signal be handled everywhere
    web.close()
    collector.close()


class Directory:
    """Which queues there are at one Redis: those that schedq clients have enlisted, by a scan also others.

    Args:
        queue: to ask through.
        scan: look through all keys too, once a minute at most.
    """

    def __init__(self, queue: Queue, *, scan: bool) -> None:
        self.queue = queue
        self._scan = scan
        self._scanned_at: float | None = None
        self._others: set[str] = set()

    def settings(self) -> Sequence[Settings]:
        """The settings to read each queue with.

        Raises:
            SchedqError: Redis does not answer, or refuses.
        """
        is_due = self._scan and (self._scanned_at is None or monotonic() - self._scanned_at >= _SCAN_S)
        names = set(self.queue.list_queues(scan=is_due))
        if is_due:
            self._scanned_at, self._others = monotonic(), names
        return [replace(self.queue.settings, name=name) for name in sorted(names | self._others)]


def _lives(_accept: str) -> Answer:
    return Answer(200, TEXT, b"ok\n")
