"""`manage.py schedq_worker`: `schedq worker` with the queues of TASKS."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandParser

from schedq.cli.worker import worker
from schedq.integrations.django.queues import path_of, queue_names


class Command(BaseCommand):
    """Reads its arguments with click instead of Django's parser, as the options are those of `schedq worker`."""

    help = "Run the tasks of this site's schedq queues."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return a parser that leaves what `call_command` passes to click."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        defaults = parser.parse_args([])
        parser.parse_args = lambda args=None: argparse.Namespace(**vars(defaults), args=args or ())
        return parser

    def run_from_argv(self, argv: list[str]) -> None:
        """Run until the worker has stopped, then exit."""
        _command.main(argv[2:], prog_name=f"{Path(argv[0]).name} {argv[1]}")

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """Print the usage and all options."""
        _command.main(["--help"], prog_name=f"{prog_name} {subcommand}", standalone_mode=False)

    def handle(self, *args: Any, **_options: Any) -> None:
        """Do the same for `call_command`."""
        _command.main(list(args), prog_name="schedq_worker", standalone_mode=False)


def _work(names: tuple[str, ...], **options: Any) -> None:
    """Run the tasks of the queues NAME of TASKS, or of all its queues.

    The tasks of each application are found in its module `tasks`. See `schedq worker` for signals.
    """
    known = queue_names()
    wanted = names or tuple(known)
    for name in wanted:
        if name.partition("*")[0] not in known:
            raise click.BadParameter(f"TASKS has no queue {name!r} of schedq; it has {', '.join(known) or 'none'}")
    if not wanted:
        raise click.UsageError("no backend in TASKS is schedq.integrations.django.backend.SchedqBackend with QUEUES")
    assert worker.callback is not None
    worker.callback(apps=tuple(map(path_of, wanted)), **options)


_command = click.Command(
    "schedq_worker",
    callback=_work,
    help=_work.__doc__,
    params=[
        click.Argument(["names"], metavar="[NAME[*WEIGHT]]...", nargs=-1),
        *(param for param in worker.params if param.name != "apps"),
    ],
)
