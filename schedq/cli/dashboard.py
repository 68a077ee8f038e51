"""`schedq dashboard`: the queues of a Redis in a browser."""

from __future__ import annotations

import importlib.util
from typing import Final

import click

from schedq.cli import lasting, show
from schedq.cli.options import redis_option
from schedq.errors import UsageError

NEEDED: Final = ("starlette", "uvicorn", "jinja2")


@click.command(
    short_help="Serve the queues of a Redis to a browser.",
    epilog="""\b
Examples:
  schedq dashboard
  schedq dashboard --read-only --port 9000
  SCHEDQ_DASHBOARD_TOKEN=… schedq dashboard --host 0.0.0.0 --allow-host queues.example.org""",
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8090, show_default=True, metavar="N", help="0: one that is free."
)
@click.option(
    "--token",
    envvar="SCHEDQ_DASHBOARD_TOKEN",
    metavar="T",
    help="What a browser must show; SCHEDQ_DASHBOARD_TOKEN instead hides it from this machine's other users.",
)
@click.option("--read-only", is_flag=True, help="Look only: nothing can be changed through it.")
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="H",
    help="A name under which browsers ask for it, beside the local ones; may be given again.",
)
@redis_option
def dashboard(
    host: str,
    port: int,
    token: str | None,
    read_only: bool,  # noqa: FBT001 - click passes flags by name
    allow_hosts: tuple[str, ...],
    redis_url: str | None,
) -> None:
    """Serve all queues of a Redis to a browser: charts, jobs, failures, what comes, schedules, workers, the log.

    Needs the extra: pip install 'schedq[dashboard]'. It listens on this machine only, unless there is a token. Behind
    a proxy give a token, and the proxy's name with --allow-host. SIGTERM and Ctrl-C end it.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise click.ClickException(f"the dashboard needs {', '.join(missing)}: pip install 'schedq[dashboard]'")
    # Only now: the other commands need neither this nor the extra.
    from schedq.dashboard import create_app
    from schedq.dashboard.hosts import is_any, resolved
    from schedq.dashboard.serving import address_of, bound, serve

    try:
        _, address = resolved(host, port)
        names = (*allow_hosts, "*" if is_any(address) else host)
        made = create_app(redis_url, token=token, read_only=read_only, allow_hosts=names)
        listening = bound(host, port, is_guarded=token is not None)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    lasting.heed_signals()
    url = address_of(listening)

    def ready() -> None:
        show.line(f"schedq dashboard: listening on {url}")

    lasting.run(serve(made, listening, ready))
