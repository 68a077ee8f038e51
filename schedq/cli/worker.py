"""`schedq worker` and `schedq promoter`: the daemons that run jobs and promote due ones."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from schedq.background import precise_loop
from schedq.cli import daemon
from schedq.cli.extensions import load_middleware, load_observer
from schedq.cli.params import MEMORY, QUEUE_NAME, UNDER_DEV, app_dir_option, import_option, option_group, redis_option
from schedq.cli.queues import import_all, load_queue, open_queue, warn_if_new, wrong_usage
from schedq.connection.address import Address
from schedq.errors import SchedqError
from schedq.isolation.settings import IsolationSettings
from schedq.logs import AttemptLog, log
from schedq.metrics.config import LIMIT_S, MonitorConfig
from schedq.observer import Observer
from schedq.queue.queue import Queue, QueueBase
from schedq.tracing import instrument, instrument_metrics
from schedq.worker import Worker
from schedq.worker.application import Loaded
from schedq.worker.capacity import ORDERS
from schedq.worker.isolation_options import POOLS
from schedq.worker.process import PARENT_FD, Supervisor, run_promoters, run_worker
from schedq.worker.stacks import log_stacks_on_signal

if TYPE_CHECKING:  # imported when it is used: it is slow, and most workers serve nothing
    from schedq.metrics.serving import Monitor

_PORT: Final = click.IntRange(0, 65_535)


def _names(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Split lists of names that are separated by commas."""
    return tuple(name for value in values for name in (part.strip() for part in value.split(",")) if name)


@click.command(
    epilog="""\b
Examples:
  schedq worker app:emails app:reports --concurrency 20 --processes 2
  schedq worker 'app:emails*3' app:reports""",
    no_args_is_help=True,
)
@click.argument("apps", metavar="APP[*WEIGHT]...", nargs=-1, required=True)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    help="strict: take a queue's jobs only when no queue before it has any (with weights, heavier queues come first); "
    "weighted: take jobs in proportion to the weights, so that no queue starves.  [default: weighted if a weight is "
    "given, else strict]",
)
@click.option("--redis", "redis_url", metavar="URL", help="URL of Redis, for queues that do not set one.")
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="How many jobs run at once in a process.",
)
@click.option(
    "-p",
    "--processes",
    type=click.IntRange(1, 256),
    help="Number of worker processes under a parent that replaces those that die; also 1.  [default: no parent]",
)
@click.option(
    "--grace",
    type=click.FloatRange(0, 86_400),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long running jobs may take to finish after SIGTERM before they are released. Let a supervisor wait "
    "10 s longer before it sends SIGKILL.",
)
@click.option("--burst", is_flag=True, help="Exit when nothing is pending, delayed or running.")
@click.option(
    "--max-jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Exit when N attempts have been run; with --processes each process does, and is replaced unless it is a "
    "--burst.",
)
@click.option(
    "--max-time",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Claim nothing more after this long, and exit when the last running job has ended; with --processes as above.",
)
@click.option(
    "--max-stuck",
    type=click.IntRange(1),
    metavar="N",
    help="Stop gracefully when N handlers keep running after they were asked to end; with --processes as above.",
)
@app_dir_option
@import_option
@click.option(
    "--only",
    metavar="TASK,...",
    multiple=True,
    callback=_names,
    help="Run only these tasks, and leave all other jobs to other workers. Repeatable.",
)
@click.option(
    "--except",
    "exclude",
    metavar="TASK,...",
    multiple=True,
    callback=_names,
    help="Run all tasks of the application but these. Repeatable.",
)
@click.option(
    "--observer",
    "observers",
    metavar="MODULE:OBJECT",
    multiple=True,
    help="Notify this schedq.Observer of what the worker does. If it is a class, an instance is created. Repeatable.",
)
@click.option(
    "--middleware",
    metavar="MODULE:OBJECT",
    multiple=True,
    help="Run this middleware around each attempt, outside that of the queues. Same rules as --observer. Repeatable.",
)
@click.option(
    "--watchdog",
    type=click.FloatRange(0, 86_400),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Log the stack and the job when the event loop is blocked for this long; 0: never.",
)
@click.option(
    "--slow",
    type=click.FloatRange(0, 86_400),
    default=0.0,
    metavar="SECONDS",
    help="Log a handler that is still running after this long, once, with its stack.  [default: never]",
)
@option_group(
    "isolation",
    IsolationSettings,
    click.option(
        "--kill-after",
        type=click.FloatRange(0, 3600),
        default=5.0,
        show_default=True,
        metavar="SECONDS",
        help="How long a child process that is to end may clean up after SIGTERM before it gets SIGKILL.",
    ),
    click.option("--jobs-per-child", type=click.IntRange(1), metavar="N", help="Replace a child process after N jobs."),
    click.option(
        "--memory-limit",
        type=MEMORY,
        metavar="SIZE",
        help="End the job of a child process whose memory exceeds this, such as 512M.",
    ),
)
@click.option(
    "--pool",
    type=click.Choice(POOLS),
    default="thread",
    show_default=True,
    help="Where plain tasks run that do not say isolate=True or False: in threads, or in child processes.",
)
@click.option("--tracing", is_flag=True, help="Record OpenTelemetry spans of attempts; needs schedq[tracing].")
@click.option(
    "--otel-metrics", is_flag=True, help="Record OpenTelemetry metrics of attempts; needs schedq[tracing] as well."
)
@click.option(
    "--no-promoter",
    is_flag=True,
    help="Leave promoting and reclaiming to other processes, such as `schedq promoter`.",
)
@option_group(
    "monitored",
    MonitorConfig,
    click.option(
        "--metrics-port",
        type=_PORT,
        metavar="N",
        help="Serve /metrics for Prometheus, /healthz and /livez on this port; 0: any free one. Needs schedq[metrics].",
    ),
    click.option(
        "--health-port", type=_PORT, metavar="N", help="Serve /healthz and /livez on this port; 0: any free one."
    ),
    click.option(
        "--metrics-host",
        "host",
        default="127.0.0.1",
        show_default=True,
        metavar="HOST",
        help="The address that both ports listen on.",
    ),
    click.option(
        "--health-limit",
        "limit_s",
        type=click.FloatRange(0.1, 3600),
        default=LIMIT_S,
        show_default=True,
        metavar="SECONDS",
        help="How long the event loop may be blocked or Redis unreachable before the worker is unhealthy.",
    ),
)
@daemon.log_options
def worker(
    apps: tuple[str, ...],
    order: str | None,
    redis_url: str | None,
    processes: int | None,
    tracing: bool,
    otel_metrics: bool,
    no_promoter: bool,
    app_dir: str,
    imports: tuple[str, ...],
    observers: tuple[str, ...],
    middleware: tuple[str, ...],
    monitored: MonitorConfig,
    isolation: IsolationSettings,
    **settings: Any,
) -> None:
    """Run the jobs of the queues that APP (module:object) names.

    SIGTERM and Ctrl-C stop it gracefully: it claims nothing more, lets running jobs finish within --grace, and releases
    the rest, which other workers claim next. A second signal releases them at once. SIGUSR1 logs the stack of every
    thread and task, with its job.
    """
    daemon.handle_signals()
    named = [_weighed(app) for app in apps]
    queues = _load([app for app, _ in named], imports, app_dir, redis_url)
    told = _observers(observers, app_dir)
    settings["middleware"] = [load_middleware(path, app_dir) for path in middleware]
    settings["isolation"] = _in_children(isolation, apps, imports, app_dir, middleware, tracing=tracing)
    monitor = _monitor(monitored, queues)
    if monitor is not None:
        told = [*monitor.observers, *told]
    with wrong_usage():
        _instrument(traces=tracing, metrics=otel_metrics)
        settings |= _sharing(order, [weight for _, weight in named])
        made = Worker(queues, promotes=not no_promoter, observers=told, **settings)
    if processes is not None and PARENT_FD not in os.environ:
        _lead(processes, settings["grace"], monitored, queues)
    if monitor is not None:
        monitor.serve(made)
    daemon.run(run_worker(made, is_burst=settings["burst"]))


def _name_hidden(queues: Sequence[QueueBase]) -> None:
    """Under `schedq dev`, log which queues are on another Redis than its dashboard shows."""
    if not os.environ.pop(UNDER_DEV, ""):
        return
    shown = Address()
    for queue in queues:
        if queue.address != shown:
            where = f"is on {queue.address.label}, and the dashboard shows {shown.label}"
            log.warning("queue %s %s; schedq dev --redis URL shows another", queue.name, where)


def _in_children(isolation: IsolationSettings, *names: Any, tracing: bool) -> IsolationSettings:
    """Return the options of child processes, which import and log like this process."""
    load = partial(load_application, *names, tracing=tracing)
    return replace(isolation, prepare=daemon.same_logging(), load=load)


def load_application(
    apps: Sequence[str], imports: Sequence[str], folder: str, middleware: Sequence[str], *, tracing: bool
) -> Loaded:
    """Import in a child process what the command names."""
    queues = _load([_weighed(app)[0] for app in apps], imports, folder, None)
    layers = [load_middleware(path, folder) for path in middleware]
    _instrument(traces=tracing, metrics=False)  # for jobs that functions enqueue
    log_stacks_on_signal()
    return Loaded(queues, layers)


def _monitor(monitored: MonitorConfig, queues: Sequence[QueueBase]) -> Monitor | None:
    """Return the server of metrics and health; None if the worker serves neither."""
    if not monitored.is_any:
        return None
    from schedq.metrics.serving import Monitor

    return Monitor(monitored, queues)


def _sharing(order: str | None, weights: list[int | None]) -> dict[str, Any]:
    """Return the options that divide the worker's slots among its queues."""
    usual = "strict" if all(weight is None for weight in weights) else "weighted"
    return {"order": order or usual, "weights": [1 if weight is None else weight for weight in weights]}


def _instrument(*, traces: bool, metrics: bool) -> None:
    """Turn on OpenTelemetry spans and metrics."""
    if traces:
        instrument()
    if metrics:
        instrument_metrics()


def _load(apps: Sequence[str], imports: Sequence[str], folder: str, redis_url: str | None) -> list[QueueBase]:
    """Import the queues, and the modules with more of their tasks."""
    if redis_url is not None:
        os.environ["SCHEDQ_REDIS_URL"] = redis_url
    queues = [load_queue(app, folder) for app in apps]
    for module in imports:
        import_all(module, folder)
    _name_hidden(queues)
    return queues


def _observers(paths: Sequence[str], folder: str) -> list[Observer]:
    """Return the observers that the command names, and with -v the one that logs each attempt."""
    lines: list[Observer] = [AttemptLog()] if log.isEnabledFor(logging.DEBUG) else []
    return [*lines, *(load_observer(path, folder) for path in paths)]


def _lead(processes: int, grace: float, monitored: MonitorConfig, queues: Sequence[QueueBase]) -> NoReturn:
    """Supervise child processes that are started like this one, with the same interpreter options."""
    supervisor = Supervisor([sys.executable, *sys.orig_argv[1:]], processes, grace, watched=monitored.is_any)
    with ExitStack() as stack:
        if monitored.is_any:
            from schedq.metrics.serving import serve_processes

            for site in serve_processes(supervisor, monitored, queues):
                stack.callback(site.close)
        sys.exit(supervisor.run())


def _weighed(app: str) -> tuple[str, int | None]:
    """Split `app:queue*3` into path and weight."""
    path, mark, weight = app.partition("*")
    if not mark:
        return path, None
    if not (weight.isascii() and weight.isdigit()):
        raise click.BadParameter(f"{app!r} must be MODULE:QUEUE*WEIGHT; the weight is a whole number of at least 1")
    return path, int(weight)


@click.command(
    epilog="Example:  schedq promoter emails reports --redis redis://redis.internal:6379/0",
    no_args_is_help=True,
)
@click.argument("names", metavar="NAME...", nargs=-1, type=QUEUE_NAME)
@click.option(
    "--queue",
    "queue_names",
    type=QUEUE_NAME,
    metavar="NAME",
    multiple=True,
    help="A queue, another way to give NAME; repeatable.",
)
@redis_option
@daemon.log_options
def promoter(names: tuple[str, ...], queue_names: tuple[str, ...], redis_url: str | None) -> None:
    """Promote due jobs and reclaim the jobs of dead workers, for the queues named NAME.

    Needs no application code. Workers do this too, unless started with --no-promoter. Any number of promoters may run:
    one is active per queue, and the others stand by.
    """
    names = (*names, *queue_names)
    if not names:
        raise click.UsageError("name a queue")
    daemon.handle_signals()
    with wrong_usage():
        queues = [Queue(name, redis=redis_url) for name in dict.fromkeys(names)]
    with suppress(SchedqError):  # Redis may start later, and a promoter's user may lack the permission to read
        for queue in queues:
            with open_queue(queue.name, redis_url) as looked_at:
                warn_if_new(looked_at, redis_url, log.warning)
    daemon.run(run_promoters(queues), precise_loop.new_event_loop)
