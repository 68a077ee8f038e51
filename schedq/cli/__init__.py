"""The command line: `schedq COMMAND`. Mistakes get one line and exit code 1 or 2, never a traceback."""

from __future__ import annotations

import sys

import click

from schedq import __version__
from schedq.cli.demo import demo
from schedq.cli.promoter import promoter
from schedq.cli.server import server
from schedq.cli.stats import stats
from schedq.cli.worker import worker
from schedq.errors import SchedqError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="schedq")
def cli() -> None:
    """Run Python work now, later, and again and again on Redis."""


for command in (worker, promoter, stats, server, demo):
    cli.add_command(command)


def main() -> None:
    """Run the command line; what schedq refuses is one line on stderr and exit code 1."""
    try:
        cli.main(standalone_mode=True)
    except SchedqError as error:
        click.echo(f"schedq: {error}", err=True)
        sys.exit(1)
