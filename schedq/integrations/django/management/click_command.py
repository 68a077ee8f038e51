"""A command of `manage.py` whose options are read by click."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandParser

COMMON: tuple[click.Parameter, ...] = (
    click.Option(["--settings"], metavar="MODULE", expose_value=False, help="The settings, as for all commands."),
    click.Option(["--pythonpath"], metavar="FOLDER", expose_value=False, help="Added to the path of modules."),
)
"""Options that `manage.py` has read before."""


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
        """Do the same for `call_command`."""
        self.command.main(list(args), prog_name=self.command.name, standalone_mode=False)
