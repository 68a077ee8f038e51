"""`schedq server`: the embedded server, by hand."""

from __future__ import annotations

import click

from schedq import embedded


@click.command(epilog="Example:  schedq server --stop ./data")
@click.argument("directory", required=False)
@click.option("--stop", metavar="DIR", help="End the server of this folder; its data stays.")
def server(directory: str | None, stop: str | None) -> None:
    """Start the embedded server of DIRECTORY (or of your data folder), or end one.

    It is the server behind embedded:// URLs: one per folder, shared by all that name it, gone 60 s after its last
    client.
    """
    if stop is not None:
        if directory is not None:
            raise click.UsageError(f"either start {directory} or stop {stop}")
        was_there = embedded.stop_server(stop)
        click.echo(f"{stop}: {'ended' if was_there else 'no server was running'}")
        return
    url = f"embedded://{directory or ''}"
    click.echo(f"{embedded.data_directory(url)}: unix://{embedded.ensure_server(url)}")
