"""`manage.py schedq_worker`: `schedq worker` with the queues of TASKS."""

from __future__ import annotations

import os
from contextlib import nullcontext, suppress
from typing import Any

import click

from schedq.cli.worker import worker
from schedq.errors import SchedqError
from schedq.integrations.django.management.click_command import COMMON, ClickCommand
from schedq.integrations.django.outbox.relays import relaying, send_outbox
from schedq.integrations.django.queues import path_of, queue_names
from schedq.worker.process import PARENT_FD


def _work(names: tuple[str, ...], *, outbox: bool, **options: Any) -> None:
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
    is_parent = options["processes"] is not None and PARENT_FD not in os.environ
    if outbox and options["burst"] and not is_parent:
        with suppress(SchedqError):  # the worker says what is wrong
            send_outbox()
    with relaying() if outbox and not is_parent else nullcontext():
        worker.callback(apps=tuple(map(path_of, wanted)), **options)


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
        *COMMON,
        *(param for param in worker.params if param.name != "apps"),
    ],
)


class Command(ClickCommand):
    """Takes the options of `schedq worker`."""

    help = "Run the tasks of this site's schedq queues."
    command = _command
