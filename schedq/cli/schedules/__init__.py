"""`schedq schedules`: shows and controls schedules."""

from __future__ import annotations

from typing import Final

import click

from schedq.cli.lazy_group import LazyGroup

_TABLE: Final = {
    "ls": ("schedules.show:ls", "List the schedules of a queue."),
    "show": ("schedules.show:show_one", "Show everything that is stored about one schedule."),
    "next": ("schedules.show:upcoming", "Show the next slots of a schedule."),
    "pause": ("schedules.control:pause", "Pause schedules: they have no slots until resumed."),
    "resume": ("schedules.control:resume", "Resume paused schedules from now."),
    "trigger": ("schedules.control:trigger", "Enqueue one job of each schedule now."),
    "rm": ("schedules.control:rm", "Delete schedules."),
    "backfill": ("schedules.control:backfill", "Enqueue the slots of a past period."),
    "update": ("schedules.control:update", "Change some of what is stored about one schedule."),
    "upsert": ("schedules.control:upsert", "Store the schedules that an application's code defines."),
}
"""Commands that read come first, then those that change something."""


@click.group(
    cls=LazyGroup,
    table=_TABLE,
    epilog="""\b
Examples:
  schedq schedules ls --queue emails
  schedq schedules next nightly-report -n 5
  schedq schedules upsert app:emails""",
)
def schedules() -> None:
    """Show and control the schedules of a queue.

    A schedule enqueues one job per slot of its cron expression or interval.
    """
