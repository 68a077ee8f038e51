"""The command line: `schedq COMMAND`. Mistakes get one line and exit code 1 or 2, never a traceback."""

from __future__ import annotations

import io
import os
import sys
from collections import UserDict
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final

import click

from schedq import __version__
from schedq.cli.completion import VARIABLE
from schedq.cli.show import harmless
from schedq.errors import SchedqError

_ROOMS: Final = {
    **{name: name for name in ("worker", "promoter", "enqueue", "stats", "jobs", "job", "why", "forecast")},
    "requeue": "requeue",
    "cancel": "cancel",
    "reschedule": "reschedule",
    "pause": "pausing",
    "resume": "pausing",
    "purge": "purge",
    "export": "carrying",
    "import": "carrying",
    **{name: name for name in ("workers", "tail", "top", "dashboard")},
    **{name: name for name in ("schedules", "cron", "doctor", "health", "exporter", "server", "completion", "demo")},
}
"""Which module has which command; what belongs together stands together in the help."""


class _Commands(UserDict[str, click.Command]):
    """The commands by name. Each is imported when it is asked for: most of their start would go into the others."""

    def __init__(self) -> None:
        super().__init__()
        self.data = dict.fromkeys(_ROOMS, click.Command(None))

    def __getitem__(self, name: str) -> click.Command:
        found = getattr(import_module(f"schedq.cli.{_ROOMS[name]}"), "import_" if name == "import" else name)
        assert isinstance(found, click.Command)
        return found


class _InOrder(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """As they stand: what belongs together, together."""
        return list(self.commands)


@click.group(
    cls=_InOrder,
    commands=_Commands(),
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
