"""Options that several commands have, and how they find queues."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from schedq.application import Application
from schedq.errors import UsageError
from schedq.queue import Queue

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
    """`--log-format` and `-v`."""
    function = click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)(
        function
    )
    return click.option("-v", "--verbose", count=True, help="Say more; twice: also what libraries say.")(function)


def named_queue(name: str, redis_url: str | None) -> Queue:
    """The queue of this name, without its application.

    Raises:
        click.UsageError: the name or the URL can't be one.
    """
    try:
        return Queue(name, redis=redis_url)
    except UsageError as error:
        raise click.UsageError(str(error)) from error


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
        raise click.BadParameter(f"{module_name} can't be imported: {error}") from error
    except UsageError as error:
        raise click.BadParameter(f"{module_name} can't be imported: {error}") from error
    except Exception as error:
        raise click.BadParameter(f"{module_name} can't be imported: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise click.BadParameter(f"module {module_name} has no {name!r}")
        found = getattr(found, part)
    if not isinstance(found, Application):
        raise click.BadParameter(f"{path} is a {type(found).__name__}, not a Queue or AsyncQueue")
    return found
