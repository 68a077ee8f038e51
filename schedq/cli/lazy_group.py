"""A group that imports a command only when it is used, and `schedq completion`, which lists commands by it."""

from __future__ import annotations

import gc
import sys
from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

VARIABLE: Final = "_SCHEDQ_COMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish")
Table = Mapping[str, tuple[str, str]]
"""Name of a command -> the MODULE:FUNCTION that implements it, and one line of help."""
Sections = Mapping[str, Table]
"""Heading of a part of the list -> its commands."""


class _Commands(UserDict[str, click.Command]):
    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table
        self.data = dict.fromkeys(table, click.Command(None))

    def __getitem__(self, name: str) -> click.Command:
        module, _, function = self._table[name][0].partition(":")
        found = getattr(_imported(f"schedq.cli.{module}"), function or module)
        assert isinstance(found, click.Command)
        return found


def _imported(name: str) -> ModuleType:
    """Import a module, and have the garbage collector skip what that loads: it took a third of a short command's time.

    It would traverse all of it several times, during the imports and when the interpreter exits.
    """
    if name in sys.modules:
        return sys.modules[name]
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        if is_enabled:
            gc.enable()


class LazyGroup(click.Group):
    """A group that lists its commands in the order of its table and imports each only when it is used.

    Give either `table`, or `sections` for a list with headings.
    """

    def __init__(
        self, name: str | None = None, *, table: Table | None = None, sections: Sections | None = None, **more: Any
    ) -> None:
        self._sections = sections or {"Commands": table or {}}
        whole = {name: entry for part in self._sections.values() for name, entry in part.items()}
        super().__init__(name, _Commands(whole), **more)
        self._lines = {name: line for name, (_, line) in whole.items()}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        # Click's own version would import every command for its help text.
        longest = max(map(len, self._lines))
        for heading, part in self._sections.items():
            with formatter.section(heading):
                # Padded, so that all sections share one column.
                formatter.write_dl([(name.ljust(longest), line) for name, (_, line) in part.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Click's own version would import every command to see whether it is hidden.
        names = [CompletionItem(name, help=line) for name, line in self._lines.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.command(
    epilog="""\b
Examples for the shell's startup file:
  bash   ~/.bashrc   eval "$(schedq completion bash)"
  zsh    ~/.zshrc    eval "$(schedq completion zsh)"
  fish               schedq completion fish > ~/.config/fish/completions/schedq.fish""",
    no_args_is_help=True,
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL (bash, zsh or fish).

    It completes commands, options and states; names of queues, tasks and gates; ids of jobs, schedules, batches and
    workers. Names and ids come from the Redis of --redis, SCHEDQ_REDIS_URL or REDIS_URL, if it responds quickly.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "schedq", VARIABLE).source())
