"""What `schedq worker --metrics-port` and `--health-port` add to a worker, or to a fleet of them.

What serves is imported only where something is to be served: every command would take the longer to begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from schedq.application import Application
from schedq.fleet import Fleet
from schedq.monitor import LIMIT_S, Wanted
from schedq.observer import Observer
from schedq.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])


def monitor_options(function: F) -> F:
    """`--metrics-port`, `--health-port`, `--metrics-host` and `--health-limit`."""
    port = click.IntRange(0, 65_535)
    for option in (
        click.option(
            "--health-limit",
            type=click.FloatRange(0.1, 3600),
            default=LIMIT_S,
            show_default=True,
            metavar="SECONDS",
            help="How long the event loop may be blocked, or Redis be away, before health says so.",
        ),
        click.option(
            "--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", help="Where both ports listen."
        ),
        click.option("--health-port", type=port, metavar="N", help="Serve /healthz and /livez there; 0: on any port."),
        click.option(
            "--metrics-port",
            type=port,
            metavar="N",
            help="Serve /metrics for Prometheus there, /healthz and /livez too; 0: on any port. Needs schedq[metrics].",
        ),
    ):
        function = option(function)
    return function


def prepared(wanted: Wanted, queues: Sequence[Application]) -> tuple[list[Observer], Callable[[Worker], None]]:
    """What a worker is to be observed by, and what is called with it before it is run.

    Raises:
        UsageError: metrics are wanted, and prometheus-client is not installed.
    """
    if not wanted.is_any:
        return [], lambda _: None
    from schedq.monitor.serving import Monitor

    monitor = Monitor(wanted, queues)
    return monitor.observers, monitor.serve


@contextmanager
def watching(fleet: Fleet, wanted: Wanted, queues: Sequence[Application]) -> Iterator[None]:
    """Show how the processes of a fleet get on, on one port for all.

    Raises:
        UsageError: a port is taken.
    """
    if not wanted.is_any:
        yield
        return
    from schedq.monitor import serving

    sites = serving.sites_of(fleet, wanted, queues)
    try:
        yield
    finally:
        for site in sites:
            site.close()
