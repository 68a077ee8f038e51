"""Options that several commands have, the question before what can't be undone, and `MODULE:QUEUE`."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import click

import schedq
from schedq.application import Application
from schedq.cli.show import harmless
from schedq.cli.typed import DURATION, INSTANT, QUEUE_NAME
from schedq.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


def redis_option(function: F) -> F:
    """`--redis URL`."""
    return click.option(
        "--redis",
        "redis_url",
        metavar="URL",
        help="Where Redis is; else SCHEDQ_REDIS_URL, else REDIS_URL, else redis://localhost:6379/0.",
    )(function)


def log_options(function: F) -> F:
    """`--log-format`, `-v` and `--quiet`."""
    function = click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)(
        function
    )
    function = click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")(function)
    return click.option("-v", "--verbose", count=True, help="Say more; twice: also what libraries say.")(function)


def json_option(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs; instants are ms.")(
        function
    )


def queue_option(function: F) -> F:
    """`--queue NAME`, for commands on jobs."""
    return click.option(
        "--queue",
        "queue_name",
        type=QUEUE_NAME,
        metavar="NAME",
        envvar="SCHEDQ_QUEUE",
        help="The queue; else SCHEDQ_QUEUE, else the only queue there is.",
    )(function)


def yes_option(function: F) -> F:
    """`--yes`."""
    return click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")(function)


def time_options(function: F) -> F:
    """`--delay` and `--run-at`."""
    function = click.option(
        "--run-at", type=INSTANT, metavar="TIME", help="When: 2030-01-01T09:00 (local time) or with an offset, …+01:00."
    )(function)
    return click.option("--delay", type=DURATION, metavar="D", help="How long from now: 90 (seconds), 5m, 1d12h.")(
        function
    )


def ask(question: str, *, is_sure: bool) -> None:
    """Ask before something is done that can't be undone.

    Raises:
        click.ClickException: the answer is no, or there is nobody to ask.
    """
    if is_sure:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.ClickException("this asks before it acts, and there is no terminal: add --yes; nothing was done")
    if not click.confirm(harmless(question), err=True):
        raise click.ClickException("nothing was done")


def load_queue(path: str) -> Application:
    """The queue that `MODULE:OBJECT` names, looked for in the working folder first.

    Raises:
        click.BadParameter: it can't be imported, or is no queue.
    """
    module_name, mark, name = path.partition(":")
    if not mark or not module_name or not name:
        raise click.BadParameter(f"{path!r} must be MODULE:QUEUE, such as app:queue")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise click.BadParameter(f"there is no module {module_name!r} here ({os.getcwd()})") from error
        raise click.BadParameter(f"{module_name} can't be imported: {error}{_place(error)}") from error
    except UsageError as error:
        raise click.BadParameter(f"{module_name} can't be imported: {error}{_place(error)}") from error
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}{_place(error)}"
        raise click.BadParameter(f"{module_name} can't be imported: {what}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise click.BadParameter(f"module {module_name} has no {name!r}")
        found = getattr(found, part)
    if not isinstance(found, Application):
        raise click.BadParameter(f"{path} is a {type(found).__name__}, not a Queue or AsyncQueue")
    return found


def _place(error: BaseException) -> str:
    """The line of the user's own code from which an import failed; '' if the error names it, or none is known."""
    if isinstance(error, SyntaxError):
        return ""
    others = (os.path.dirname(schedq.__file__) + os.sep, os.path.dirname(importlib.__file__) + os.sep, "<")
    frames = traceback.extract_tb(error.__traceback__)
    places = [frame for frame in frames if not frame.filename.startswith(others)]
    return f" ({places[-1].filename}, line {places[-1].lineno})" if places else ""
