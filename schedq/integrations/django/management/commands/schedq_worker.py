"""`manage.py schedq_worker`: `schedq worker` with the queues of TASKS."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from django.apps import apps

from schedq.cli.dev import restarting
from schedq.cli.worker import worker
from schedq.integrations.django.management.click_command import COMMON, ClickCommand
from schedq.integrations.django.outbox.relays import relaying, send_outbox
from schedq.integrations.django.queues import path_of, queue_names
from schedq.logs import log
from schedq.worker.process import PARENT_FD

_INSTALLED: Final = {"site-packages", "dist-packages"}
_RELOAD_GRACE_S: Final = 5.0


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
    if outbox and options["burst"] and not is_parent:
        try:
            send_outbox()
        except Exception as error:  # noqa: BLE001 - each database has errors of its own
            log.error("outbox: %s", error)
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
