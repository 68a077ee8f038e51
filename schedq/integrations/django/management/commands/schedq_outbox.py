"""`manage.py schedq_outbox`: the relay of the outbox in a process of its own."""

from __future__ import annotations

import signal
import threading

import click

from schedq.cli import daemon, output
from schedq.integrations.django.management.commands.schedq_worker import COMMON, ClickCommand
from schedq.integrations.django.outbox.relays import relaying, send_outbox, site_relays


@click.command("schedq_outbox", params=[*COMMON])
@click.option("--once", is_flag=True, help="Send what is ready, print how many jobs that were, and exit.")
@daemon.log_options
def _relay(*, once: bool) -> None:
    """Send the jobs of committed rows to Redis, until SIGTERM or Ctrl-C.

    Any number of these may run. `schedq_worker` does the same next to its jobs.
    """
    if not site_relays():
        raise click.UsageError(
            "no outbox: put schedq.integrations.django.outbox into INSTALLED_APPS, and a queue into TASKS or SCHEDQ"
        )
    if once:
        output.line(str(send_outbox()))
        return
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with relaying():
        stopped.wait()


class OutboxCommand(ClickCommand):
    """Runs the relays without a worker."""

    help = "Send the rows of the outbox to Redis."
    command = _relay


Command = OutboxCommand  # what Django looks for
