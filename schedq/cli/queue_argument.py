"""The queue of a command on a whole queue: its first argument NAME, or `--queue NAME`."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from schedq.cli.params import QUEUE_NAME, Command

VARIABLE: Final = "SCHEDQ_QUEUE"


class QueueCommand(click.Command):
    """A command whose first argument is the name of a queue, which may also be given as `--queue NAME`.

    Attributes:
        reads_variable: without a name, the command takes the one in SCHEDQ_QUEUE.
    """

    reads_variable = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_name(ctx, list(args)))

    def positions(self) -> list[str]:
        """The names of the command's arguments, in their order."""
        return [str(param.name) for param in self.params if isinstance(param, click.Argument)]

    def given(self, ctx: click.Context, args: list[str]) -> dict[str, str]:
        """The texts of arguments and options as they were typed."""
        found = self.make_parser(ctx).parse_args(args=list(args))[0]
        return {name: text for name, text in found.items() if isinstance(text, str)}

    def _with_name(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The same words with the queue's name in front, if it is given otherwise."""
        given, positions = self.given(ctx, args), self.positions()
        first, queue = given.get(positions[0]), given.get("queue_name")
        if queue is None:
            # A lone command shows its help, unless the name is all that it needs.
            may_read = self.reads_variable and first is None and (args or len(positions) == 1)
            queue = os.environ.get(VARIABLE) if may_read else None
        if queue is None or first == queue or (first is not None and ctx.resilient_parsing):
            return args
        if sum(name in given for name in positions) == len(positions):
            raise click.UsageError(f"two queues are given, {first} and {queue}; give one", ctx)
        return [queue, *args]


class ExplicitQueueCommand(QueueCommand):
    """The same for a command that must not depend on SCHEDQ_QUEUE: it destroys, or means every queue without a name."""

    reads_variable = False


def queue_argument(
    *, required: bool = True, reads_variable: bool = True, takes_only: bool = False
) -> Callable[[Command], Command]:
    """The argument NAME and the option `--queue`, received as `name`; for commands of the class `QueueCommand`.

    `takes_only`: without a name the command works on the only queue there is; it gets None, and asks `only_queue`.
    """
    default = f"; default: {VARIABLE}" if (required and reads_variable) or takes_only else ""
    default += ", else the only one there is" if takes_only else ""
    option = click.option(
        "--queue",
        "queue_name",
        type=QUEUE_NAME,
        metavar="NAME",
        expose_value=False,
        help=f"The queue, another way to give NAME{default}.",
    )
    argument = click.argument("name", required=required and not takes_only, type=QUEUE_NAME)

    def decorate(command: Any) -> Any:
        return argument(option(command))

    return decorate


def queues_argument(command: Callable[..., None]) -> Callable[..., None]:
    """The argument `[NAME]...` and the option `--queue`, received as `names`; none of them: all queues."""

    @wraps(command)
    def call(*args: Any, names: tuple[str, ...], named: tuple[str, ...], **kwargs: Any) -> None:
        command(*args, names=(*names, *(name for name in named if name not in names)), **kwargs)

    option = click.option(
        "--queue", "named", multiple=True, type=QUEUE_NAME, metavar="NAME", help="Another way to give NAME; repeatable."
    )
    return click.argument("names", nargs=-1, type=QUEUE_NAME, metavar="[NAME]...")(option(call))
