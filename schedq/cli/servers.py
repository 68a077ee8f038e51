"""`schedq dashboard`, `exporter` and `server`: serve browsers and Prometheus, and start the embedded Redis."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Final

import click

from schedq import embedded
from schedq.cli import daemon, output
from schedq.cli.params import json_option, port_option, redis_option
from schedq.cli.queues import all_queues, wrong_usage

_NEEDED: Final = ("starlette", "uvicorn", "jinja2")
"""Packages that the dashboard needs; the extra `dashboard` installs them."""


@click.command(
    epilog="""\b
Examples:
  schedq dashboard
  schedq dashboard --read-only --port 9000
  SCHEDQ_DASHBOARD_TOKEN=… schedq dashboard --host 0.0.0.0 --allow-host queues.example.org""",
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address to listen on.")
@port_option(8090, "The port; 0: any free one.")
@click.option(
    "--token",
    envvar="SCHEDQ_DASHBOARD_TOKEN",
    metavar="T",
    help="Token that browsers must present; SCHEDQ_DASHBOARD_TOKEN hides it from other users of this machine.",
)
@click.option("--read-only", is_flag=True, help="Disable every action that changes something.")
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="H",
    help="Another host name that browsers may use, in addition to the local ones; repeatable.",
)
@click.option(
    "--user-header", metavar="NAME", help="Header in which a proxy sends the user's name; needs --trusted-proxy."
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="NET",
    help="Address or network of that proxy; the header counts only from there. Repeatable.",
)
@redis_option
def dashboard(
    host: str,
    port: int,
    token: str | None,
    read_only: bool,
    allow_hosts: tuple[str, ...],
    user_header: str | None,
    trusted_proxies: tuple[str, ...],
    redis_url: str | None,
) -> None:
    """Serve a dashboard of all queues of a Redis: charts, jobs, failures, forecast, schedules, workers, audit log.

    Needs the extra: pip install 'schedq[dashboard]'. Without a token it listens only on this machine. Behind a proxy,
    set a token, and the proxy's name with --allow-host. SIGTERM and Ctrl-C stop it.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise click.ClickException(f"the dashboard needs {', '.join(missing)}: pip install 'schedq[dashboard]'")
    # Imported late: other commands must work without the extra.
    from schedq.dashboard import create_app
    from schedq.dashboard.hosts import is_any, resolved
    from schedq.dashboard.serving import address_of, bound, serve

    with wrong_usage():
        _, address = resolved(host, port)
        names = (*allow_hosts, "*" if is_any(address) else host)
        sso: dict[str, Any] = {"user_header": user_header, "trusted_proxies": trusted_proxies}
        made = create_app(redis_url, token=token, read_only=read_only, allow_hosts=names, **sso)
        listening = bound(host, port, is_protected=token is not None or user_header is not None)
    daemon.handle_signals()
    url = address_of(listening)
    daemon.run(serve(made, listening, lambda: output.line(f"schedq dashboard: listening on {url}")))


@click.command(
    epilog="Example:  schedq exporter --port 9464 --redis redis://redis.internal:6379/0",
)
@port_option(9464, "The port; 0: any free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--scan",
    is_flag=True,
    help="Also find queues that only other programs use: scans all keys, at most once a minute.",
)
@redis_option
@daemon.log_options
def exporter(port: int, host: str, scan: bool, redis_url: str | None) -> None:
    """Serve depths, totals, ages and lags of every queue of a Redis under /metrics, until SIGTERM or Ctrl-C.

    A scrape reads Redis, at most every 3 s, in a few round trips for hundreds of queues. Histograms of attempts come
    from the workers: schedq worker --metrics-port. Needs schedq[metrics].
    """
    from schedq.metrics.serving import export  # imported late: slow, and no other command needs it

    daemon.handle_signals()
    with all_queues(redis_url) as queue:
        export(queue, host, port, scan=scan)


@click.command(epilog="Example:  schedq server --stop ./data")
@click.argument("directory", required=False)
@click.option("--stop", metavar="DIR", help="Stop the server of this folder; its data stays.")
@json_option
def server(directory: str | None, stop: str | None, as_json: bool) -> None:
    """Start the embedded server of DIRECTORY (default: your user data folder), or stop one.

    This is the server behind embedded:// URLs. There is one per folder, shared by all processes that use the folder;
    it exits 60 s after its last client disconnects.
    """
    if stop is not None:
        if directory is not None:
            raise click.UsageError(f"either start {directory} or stop {stop}")
        was_there = embedded.stop_server(stop)
        if as_json:
            output.show_json({"directory": str(Path(stop).absolute()), "was_running": was_there})
        else:
            output.line(f"{stop}: {'stopped' if was_there else 'no server was running'}")
        return
    url = f"embedded://{directory or ''}"
    folder, place = embedded.data_directory(url), f"unix://{embedded.ensure_server(url)}"
    if as_json:
        output.show_json({"directory": str(folder), "url": place})
    else:
        output.line(f"{folder}: {place}")
