"""`schedq health`: ask a worker's health endpoint, for probes in containers that have no other client."""

from __future__ import annotations

import json
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import click

from schedq.cli import show
from schedq.cli.options import json_option


@click.command(
    short_help="Ask whether a worker gets on: exit code 0 or 1.",
    epilog="Example:  schedq health --port 8081 --live",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    required=True,
    help="What the worker was given as --health-port or --metrics-port.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where it listens.")
@click.option("--live", is_flag=True, help="Only what a new process would mend: not that Redis is away.")
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 600),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="For the answer.",
)
@json_option
def health(port: int, host: str, live: bool, timeout: float, as_json: bool) -> None:  # noqa: FBT001 - click's way
    """Ask the worker that runs with --health-port whether it gets on. Exit code 0: it does; 1: it does not, and why.

    It does while its event loop turns, its pumps go round, and Redis answers.
    """
    from schedq.monitor.children import fetch  # it brings what an HTTP client needs

    reply = fetch(host, port, "/livez" if live else "/healthz", timeout)
    told = _told(reply.code, reply.text)
    if as_json:
        show.out_json(told)
    elif told["status"] == "ok":
        show.line("ok")
    if told["status"] != "ok":
        if as_json:
            raise click.exceptions.Exit(1)
        raise click.ClickException("; ".join(told["reasons"]))


def _told(code: int, text: str) -> dict[str, Any]:
    with suppress(ValueError):
        told = json.loads(text)
        is_answer = code in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE)
        if is_answer and isinstance(told, dict) and "status" in told:
            return told
    reason = f"no answer: {text}" if code == 0 else f"no worker's health is there (HTTP {code})"
    return {"status": "failing", "reasons": [reason]}
