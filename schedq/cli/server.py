"""`schedq server`: the embedded server, by hand."""

from __future__ import annotations

from pathlib import Path

import click

from schedq import embedded
from schedq.cli import show
from schedq.cli.options import json_option


@click.command(
    short_help="Start the embedded server of a folder, or end it.", epilog="Example:  schedq server --stop ./data"
)
@click.argument("directory", required=False)
@click.option("--stop", metavar="DIR", help="End the server of this folder; its data stays.")
@json_option
def server(directory: str | None, stop: str | None, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Start the embedded server of DIRECTORY (or of your data folder), or end one.

    It is the server behind embedded:// URLs: one per folder, shared by all that name it, gone 60 s after its last
    client.
    """
    if stop is not None:
        if directory is not None:
            raise click.UsageError(f"either start {directory} or stop {stop}")
        was_there = embedded.stop_server(stop)
        if as_json:
            show.out_json({"directory": str(Path(stop).absolute()), "was_running": was_there})
        else:
            show.line(f"{stop}: {'ended' if was_there else 'no server was running'}")
        return
    url = f"embedded://{directory or ''}"
    folder, place = embedded.data_directory(url), f"unix://{embedded.ensure_server(url)}"
    if as_json:
        show.out_json({"directory": str(folder), "url": place})
    else:
        show.line(f"{folder}: {place}")
