"""`schedq completion`: what a shell needs to complete commands, options and queue names."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

VARIABLE: Final = "_SCHEDQ_COMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish")


@click.command(
    short_help="Print a shell's completion script.",
    epilog="""\b
Examples, for the shell's start-up file:
  bash   ~/.bashrc   eval "$(schedq completion bash)"
  zsh    ~/.zshrc    eval "$(schedq completion zsh)"
  fish               schedq completion fish > ~/.config/fish/completions/schedq.fish""",
    no_args_is_help=True,
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script by which SHELL (bash, zsh or fish) completes commands, options, states and queue names.

    Queue names come from the Redis of --redis, SCHEDQ_REDIS_URL or REDIS_URL, if it answers at once.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "schedq", VARIABLE).source())
