"""The command line: `schedq COMMAND`. Mistakes get one line and exit code 1 or 2, never a traceback."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import click

from schedq import __version__
from schedq.cli.lazy_group import VARIABLE, LazyGroup
from schedq.errors import SchedqError
from schedq.model.escaping import harmless

_TABLE: Final = {
    "worker": ("worker", "Run the jobs of the queues that APP (module:object) names."),
    "promoter": ("worker:promoter", "Wake due jobs and take back those of dead workers, without application code."),
    "enqueue": ("enqueue", "Store jobs, to run now or later."),
    "stats": ("stats", "Depths, totals and live workers; of all queues, or of one."),
    "jobs": ("jobs", "List the jobs of a queue, by state, page by page."),
    "job": ("jobs:job", "Show all that is stored of one job."),
    "why": ("jobs:why", "Say why a job is not running."),
    "forecast": ("forecast", "Show what is due when, as a bar chart."),
    "requeue": ("job_actions:requeue", "Give failed or cancelled jobs a new life."),
    "cancel": ("job_actions:cancel", "Cancel jobs that wait; ask running ones to stop."),
    "reschedule": ("job_actions:reschedule", "Give delayed jobs another time."),
    "pause": ("stats:pause", "Let no worker take jobs of a queue."),
    "resume": ("stats:resume", "Let workers take jobs again."),
    "purge": ("job_actions:purge", "Delete every job of a queue, or those of a filter."),
    "export": ("enqueue:export", "Write jobs as JSON lines."),
    "import": ("enqueue:import_", "Store jobs from JSON lines, as export writes them."),
    "workers": ("stats:workers", "The live workers and what each runs; ask one to stop."),
    "tail": ("tail", "What happens in a queue, as it happens, until Ctrl-C."),
    "top": ("top", "A live screen: throughput, depths, lateness, workers, slow and failing tasks."),
    "dashboard": ("servers:dashboard", "Serve the queues of a Redis to a browser."),
    "schedules": ("schedules", "Look at schedules and steer them."),
    "cron": ("schedules.show:cron", "Explain a cron expression and show its next slots."),
    "doctor": ("doctor", "Say what is wrong with a Redis and its queues, and what to do."),
    "health": ("stats:health", "Ask whether a worker gets on: exit code 0 or 1."),
    "exporter": ("servers:exporter", "Serve metrics of all queues at one Redis, for Prometheus."),
    "server": ("servers:server", "Start the embedded server of a folder, or end it."),
    "help": ("help:show_page", "Show the handbook's pages."),
    "completion": ("lazy_group:completion", "Print a shell's completion script."),
    "demo": ("demo", "Watch schedq work: pictures, mail and webhooks, and a worker that is killed."),
}
"""The commands, each in its module of this package; those that belong together are listed together."""


@click.group(
    cls=LazyGroup,
    table=_TABLE,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="schedq")
def cli() -> None:
    """Run Python work now, later, and again and again on Redis."""


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
        drop_output()
        _leave(f"schedq: {error}", 1)
    sys.exit(code)


def drop_output() -> None:
    """Discard unwritten output: the interpreter would flush it again at exit, and fail with another exit code."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _leave(text: str, code: int) -> None:
    click.echo(harmless(" ".join(text.split())), err=True)
    sys.exit(code)
