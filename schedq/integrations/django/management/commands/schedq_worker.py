"""`manage.py schedq_worker`: `schedq worker` with the queues of TASKS."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from django.apps import apps
from django.core.management.base import BaseCommand, CommandParser

from schedq.cli import daemon
from schedq.cli.dev import restarting
from schedq.cli.worker import worker
from schedq.integrations.django.outbox.relays import relaying
from schedq.integrations.django.queues import path_of, queue_names
from schedq.worker.process import PARENT_FD

COMMON: tuple[click.Parameter, ...] = (
    click.Option(["--settings"], metavar="MODULE", expose_value=False, help="The settings, as for all commands."),
    click.Option(["--pythonpath"], metavar="FOLDER", expose_value=False, help="Added to the path of modules."),
)
"""Options that `manage.py` has read before."""
_INSTALLED: Final = {"site-packages", "dist-packages"}
_RELOAD_GRACE_S: Final = 5.0


class ClickCommand(BaseCommand):
    """Reads its arguments with click instead of Django's parser, as the options are those of `schedq worker`.

    Attributes:
        command: what reads the arguments and does the work.
    """

    command: click.Command

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return a parser that leaves what `call_command` passes to click."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        defaults = parser.parse_args([])
        parser.parse_args = lambda args=None: argparse.Namespace(**vars(defaults), args=args or ())
        return parser

    def run_from_argv(self, argv: list[str]) -> None:
        """Run to the end, then exit."""
        self.command.main(argv[2:], prog_name=f"{Path(argv[0]).name} {argv[1]}")

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """Print the usage and all options."""
        self.command.main(["--help"], prog_name=f"{prog_name} {subcommand}", standalone_mode=False)

    def handle(self, *args: Any, **_options: Any) -> None:
        """Do the same for `call_command`, whose process continues."""
        with daemon.returning():
            self.command.main(list(args), prog_name=self.command.name, standalone_mode=False)


def _work(names: tuple[str, ...], *, outbox: bool, reload: bool, **options: Any) -> None:
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
    if reload:
        _reload(options["app_dir"], options["grace"])
        return
    assert worker.callback is not None
    is_parent = options["processes"] is not None and PARENT_FD not in os.environ
    with relaying() if outbox and not is_parent else nullcontext():
        worker.callback(apps=tuple(map(path_of, wanted)), **options)


def _reload(folder: str, grace: float) -> None:
    """Run this command without `--reload` in a process that is started again when code of the site changes."""
    command = [word for word in sys.orig_argv[1:] if word != "--reload"]
    if len(command) == len(sys.orig_argv) - 1:
        raise click.UsageError("--reload needs a command line of its own")
    if click.get_current_context().get_parameter_source("grace") is ParameterSource.DEFAULT:
        grace = _RELOAD_GRACE_S
        command += ["--grace", str(grace)]
    watched = {Path(folder).resolve()}
    watched |= {Path(each.path) for each in apps.get_app_configs() if not _INSTALLED & {*Path(each.path).parts}}
    roots = [path for path in watched if not any(path != other and path.is_relative_to(other) for other in watched)]
    restarting(command, roots, "schedq_worker", grace)


_command = click.Command(
    "schedq_worker",
    callback=_work,
    help=_work.__doc__,
    params=[
        click.Argument(["names"], metavar="[NAME[*WEIGHT]]...", nargs=-1),
        click.Option(
            ["--outbox/--no-outbox"],
            default=True,
            help="Whether to send the rows of the outbox too, if it is installed.  [default: yes]",
        ),
        click.Option(
            ["--reload"],
            is_flag=True,
            help="For development: restart when a Python file of the site changes. Running jobs have 5 s to finish, "
            "unless --grace is given.",
        ),
        *COMMON,
        *(param for param in worker.params if param.name != "apps"),
    ],
)


class WorkerCommand(ClickCommand):
    """Takes the options of `schedq worker`."""

    help = "Run the tasks of this site's schedq queues."
    command = _command


Command = WorkerCommand  # what Django looks for
