"""The command line: `schedq COMMAND`. A mistake prints one line and exits with code 1 or 2, never a traceback."""

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

_SECTIONS: Final = {
    "Run": {
        "enqueue": ("enqueue", "Store jobs, to run now or later."),
        "worker": ("worker", "Run the jobs of the queues that APP (module:object) names."),
        "promoter": ("worker:promoter", "Promote due jobs, reclaim those of dead workers; needs no code."),
        "dev": ("dev", "Start a server, a restarting worker and the dashboard."),
    },
    "Look": {
        "stats": ("stats", "Show depths, totals and live workers, of all queues or of one."),
        "top": ("top", "Show a live screen: throughput, depths, workers, tasks."),
        "tasks": ("tasks", "Show how often tasks ran and failed, and how long they took."),
        "workers": ("stats:workers", "List live workers and what each runs; ask one to stop."),
        "jobs": ("jobs", "List the jobs of a queue by state, page by page."),
        "job": ("jobs:job", "Show everything that is stored about one job."),
        "workflows": ("run_tree:workflows", "List runs of workflows: what each waits for, how far it is."),
        "result": ("result", "Print the result of a job; --wait waits for it."),
        "why": ("why", "Explain why a job is not running."),
        "forecast": ("forecast", "Show what is due when, as a bar chart."),
        "tail": ("tail", "Follow the events of a queue until Ctrl-C."),
        "doctor": ("doctor", "Diagnose a Redis server and its queues, and suggest remedies."),
        "watch": ("watch", "Send a notice when a finding of the doctor appears or goes."),
        "health": ("stats:health", "Check whether a worker is healthy: exit code 0 or 1."),
    },
    "Act": {
        "requeue": ("job_actions:requeue", "Move failed or cancelled jobs back to pending."),
        "cancel": ("job_actions:cancel", "Cancel waiting jobs; ask running ones to stop."),
        "reschedule": ("job_actions:reschedule", "Change when delayed jobs run."),
        "delete": ("job_actions:delete", "Delete jobs by their ids."),
        "undo": ("job_actions:undo", "Undo the steps of failed workflows."),
        "send": ("send", "Send a message to a workflow."),
        "pause": ("pause", "Stop workers from taking jobs of a queue, or of its tasks."),
        "resume": ("pause:resume", "Let workers take jobs again."),
        "purge": ("job_actions:purge", "Delete all jobs of a queue, or those that match a filter."),
        "export": ("transfer:export", "Write jobs as JSON lines."),
        "import": ("transfer:import_", "Store jobs from JSON lines, as export writes them."),
        "archive": ("archive", "Copy finished jobs to files, one a day per queue."),
    },
    "Schedules and gates": {
        "schedules": ("schedules", "Show and control schedules."),
        "cron": ("schedules.show:cron", "Explain a cron expression and show its next slots."),
        "gates": ("gates", "Show and control gates: how many jobs run and start."),
        "batches": ("batches", "Show batches and chains, retry and cancel them."),
    },
    "Serve": {
        "dashboard": ("servers:dashboard", "Serve a dashboard of all queues to browsers."),
        "exporter": ("servers:exporter", "Serve metrics of all queues of a Redis to Prometheus."),
        "server": ("servers:server", "Start or stop the embedded server of a folder."),
    },
    "Help": {
        "help": ("help:show_page", "Show a page of the handbook."),
        "completion": ("lazy_group:completion", "Print a shell's completion script."),
        "demo": ("demo", "Watch schedq work, and a worker that is killed."),
    },
}
"""Heading -> name of a command -> MODULE:FUNCTION in this package, and one line of help.

A line has at most 64 characters, so that it fits 80 columns. Related commands are adjacent.
"""


@click.group(
    cls=LazyGroup,
    sections=_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="schedq COMMAND --help has all options of a command, and examples. schedq help lists the handbook.",
)
@click.version_option(__version__, "-V", "--version", prog_name="schedq")
def cli() -> None:
    """Run Python work now, later, and again and again on Redis.

    --queue NAME names the queue for every command that works on one. Commands on a whole queue also take NAME as their
    first argument. With the id of a job, a schedule or a batch they find its queue themselves.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 refused or failed, 2 wrong usage; errors are one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character that the terminal can't show is still readable
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
    except OSError as error:  # for example, standard output goes to a full disk
        drop_output()
        _leave(f"schedq: {error}", 1)
    sys.exit(code)


def drop_output() -> None:
    """Discard unwritten output: the interpreter would flush it again at exit and fail with another exit code."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _leave(text: str, code: int) -> None:
    click.echo(harmless(" ".join(text.split())), err=True)
    sys.exit(code)
