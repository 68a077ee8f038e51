"""`schedq schedules`: what makes jobs again and again, looked at and steered."""

from __future__ import annotations

from typing import Final

import click

from schedq.cli.lazy_group import LazyGroup

_TABLE: Final = {
    "ls": ("schedules.show:ls", "List the schedules of a queue."),
    "show": ("schedules.show:show_one", "Show all that is stored of one schedule."),
    "next": ("schedules.show:upcoming", "Show the next slots of a schedule."),
    "pause": ("schedules.control:pause", "Let schedules have no slots."),
    "resume": ("schedules.control:resume", "Let paused schedules go on from now."),
    "trigger": ("schedules.control:trigger", "Make a job of schedules now."),
    "rm": ("schedules.control:rm", "Delete schedules."),
    "backfill": ("schedules.control:backfill", "Enqueue the slots of a past time."),
    "upsert": ("schedules.control:upsert", "Write the schedules of an application's code."),
}
"""Commands that show something first, then those that change something."""


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
    """The schedules of a queue: each makes one job per slot, by a cron expression or an interval."""
