"""`schedq stats`: depths and totals."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from schedq.cli.options import named_queue, redis_option


@click.command(epilog="Example:  schedq stats emails --json", no_args_is_help=True)
@click.argument("name")
@redis_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def stats(name: str, redis_url: str | None, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Depths and totals of the queue NAME at this instant."""
    with named_queue(name, redis_url) as queue:
        found = queue.stats()
    if as_json:
        click.echo(json.dumps(found))
        return
    table = Table("what", "value", title=f"queue {name}", box=None)
    table.columns[1].justify = "right"
    for what, value in found.items():
        table.add_row(what, "-" if value is None else str(value))
    Console().print(table)
