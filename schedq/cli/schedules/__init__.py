"""`schedq schedules`: what makes jobs again and again, looked at and steered."""

from __future__ import annotations

import click

from schedq.cli.schedules.filling import backfill
from schedq.cli.schedules.looking import ls, upcoming
from schedq.cli.schedules.registering import upsert
from schedq.cli.schedules.showing import show_one
from schedq.cli.schedules.steering import pause, resume, rm, trigger


class _InOrder(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Looking first, then acting."""
        return list(self.commands)


@click.group(
    cls=_InOrder,
    short_help="Look at schedules and steer them.",
    epilog="""\b
Examples:
  schedq schedules ls --queue emails
  schedq schedules next nightly-report -n 5
  schedq schedules upsert app:emails""",
)
def schedules() -> None:
    """The schedules of a queue: each makes one job per slot, by a cron expression or an interval."""


for command in (ls, show_one, upcoming, pause, resume, trigger, rm, backfill, upsert):
    schedules.add_command(command)
