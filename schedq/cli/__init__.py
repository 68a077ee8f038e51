"""The command line: `schedq COMMAND`. Mistakes get one line and exit code 1 or 2, never a traceback."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from schedq import __version__
from schedq.cli.cancel import cancel
from schedq.cli.carrying import export, import_
from schedq.cli.completion import VARIABLE, completion
from schedq.cli.cron import cron
from schedq.cli.dashboard import dashboard
from schedq.cli.demo import demo
from schedq.cli.doctor import doctor
from schedq.cli.enqueue import enqueue
from schedq.cli.exporter import exporter
from schedq.cli.forecast import forecast
from schedq.cli.health import health
from schedq.cli.job import job
from schedq.cli.jobs import jobs
from schedq.cli.pausing import pause, resume
from schedq.cli.promoter import promoter
from schedq.cli.purge import purge
from schedq.cli.requeue import requeue
from schedq.cli.reschedule import reschedule
from schedq.cli.schedules import schedules
from schedq.cli.server import server
from schedq.cli.show import harmless
from schedq.cli.stats import stats
from schedq.cli.tail import tail
from schedq.cli.top import top
from schedq.cli.why import why
from schedq.cli.worker import worker
from schedq.cli.workers import workers
from schedq.errors import SchedqError

COMMANDS = (
    *(worker, promoter, enqueue, stats, jobs, job, why, forecast, requeue, cancel, reschedule, pause, resume, purge),
    *(export, import_),
    *(workers, tail, top, dashboard),
    *(schedules, cron, doctor, health, exporter, server, completion, demo),
)


class _InOrder(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """As they were added: what belongs together, together."""
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="schedq")
def cli() -> None:
    """Run Python work now, later, and again and again on Redis."""


for command in COMMANDS:
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 refused or failed, 2 wrong usage; a mistake is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that can't show a character says which it was
    try:
        code = cli.main(arguments, prog_name="schedq", standalone_mode=False, complete_var=VARIABLE)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "schedq"
        _leave(f"{path}: {error.format_message()} (see {path} --help)", error.exit_code)
    except click.ClickException as error:
        _leave(f"schedq: {error.format_message()}", 1)
    except click.Abort:
        _leave("schedq: interrupted", 1)
    except SchedqError as error:
        _leave(f"schedq: {error}", 1)
    except OSError as error:  # such as a full disk behind standard output
        _drop_output()
        _leave(f"schedq: {error}", 1)
    sys.exit(code)


def _drop_output() -> None:
    """What could not be written would be tried again as we end, and that failure decide the exit code."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _leave(text: str, code: int) -> None:
    click.echo(harmless(" ".join(text.split())), err=True)
    sys.exit(code)
