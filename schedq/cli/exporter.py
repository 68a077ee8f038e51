"""`schedq exporter`: metrics of all queues at one Redis, for Prometheus."""

from __future__ import annotations

import click

from schedq.cli import lasting, logs
from schedq.cli.options import log_options, redis_option
from schedq.cli.queues import RETRY_S
from schedq.errors import UsageError
from schedq.queue import Queue

_NOBODY = "schedq"
"""Name of a queue that is only there to ask about others."""


@click.command(
    short_help="Serve metrics of all queues at one Redis, for Prometheus.",
    epilog="Example:  schedq exporter --port 9464 --redis redis://redis.internal:6379/0",
)
@click.option("--port", type=click.IntRange(0, 65_535), default=9464, show_default=True, help="0: any that is free.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where it listens.")
@click.option(
    "--scan",
    is_flag=True,
    help="Also find queues that only other programs use: looks through all keys, once a minute at most.",
)
@redis_option
@log_options
def exporter(
    port: int,
    host: str,
    scan: bool,  # noqa: FBT001 - click passes flags by name
    redis_url: str | None,
    log_format: str,
    verbose: int,
    quiet: bool,  # noqa: FBT001
) -> None:
    """Serve depths, totals, ages and lags of every queue at a Redis under /metrics, until SIGTERM or Ctrl-C.

    Redis is read when somebody scrapes, every 3 s at most, a few round trips for hundreds of queues. Histograms of
    attempts come from the workers: schedq worker --metrics-port. Needs schedq[metrics].
    """
    from schedq.monitor.exporting import export  # heavy, and for nobody else

    logs.set_up(log_format, verbose, quiet=quiet)
    lasting.heed_signals()
    try:
        queue = Queue.visiting(_NOBODY, redis=redis_url, retry_for=RETRY_S)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    with queue:
        export(queue, host, port, scan=scan)
