"""`schedq gates`: shows and controls gates."""

from __future__ import annotations

from typing import Final

import click

from schedq.cli.lazy_group import LazyGroup

_TABLE: Final = {
    "ls": ("gates.show:ls", "List the gates of a queue: what waits, what runs, and which are full."),
    "show": ("gates.show:show_one", "Show one gate: its limits, who set them, and the keys with most waiting jobs."),
    "keys": ("gates.show:keys", "List the keys of a gate."),
    "set": ("gates.control:set_limits", "Set limits, for all workers at once, until they are reset."),
    "reset": ("gates.control:reset", "Let the limits in the code hold again."),
    "pause": ("gates.control:pause", "Stop starting jobs of a gate or a key until it is resumed."),
    "hold": ("gates.control:hold", "Stop starting jobs of a gate or a key for a while."),
    "resume": ("gates.control:resume", "End a pause or a hold."),
    "remove": ("gates.control:remove", "Remove the limits of a gate that is no longer in the code."),
}
"""Commands that read come first, then those that change something."""


@click.group(
    cls=LazyGroup,
    table=_TABLE,
    epilog="""\b
Examples:
  schedq gates ls --queue emails
  schedq gates set api --concurrency 10 --rate 500/m
  schedq gates pause api --key 42""",
)
def gates() -> None:
    """Show and control the gates of a queue.

    A gate is a set of limits that several tasks share: how many of its jobs run at the same time, how many start in a
    period, and the same for each key.
    """
