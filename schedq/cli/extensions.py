"""Observers and middleware that a command names as MODULE:OBJECT."""

from __future__ import annotations

from typing import Any, cast

import click

from schedq.cli.queues import load_object, wrong_usage
from schedq.model.signatures import signature_of
from schedq.observer import Observer
from schedq.queue.middleware import Middleware, checked_middleware


def load_observer(path: str, folder: str) -> Observer:
    """Import an observer, or create one if the path names a class.

    Raises:
        click.BadParameter: it can't be imported or created, or is not an observer.
    """
    found = _made(path, load_object(path, folder, "OBSERVER"))
    if not isinstance(found, Observer):
        raise click.BadParameter(f"{path} is a {type(found).__name__}, not a schedq.Observer")
    return found


def load_middleware(path: str, folder: str) -> Middleware:
    """Import middleware, or create it if the path names a class.

    Raises:
        click.BadParameter: it can't be imported or created.
        click.UsageError: it can't be awaited around an attempt.
    """
    found = _made(path, load_object(path, folder, "MIDDLEWARE"))
    with wrong_usage():
        checked_middleware(found, f"--middleware {path}")
    return cast(Middleware, found)


def _made(path: str, found: Any) -> Any:
    """Return an object as it is. Of a class, return a new instance."""
    if not isinstance(found, type):
        return found
    try:
        signature_of(found).bind()
    except TypeError as error:
        module = path.partition(":")[0]
        text = f"{path} is a class that needs arguments ({error}); create an instance of it in {module} and name that"
        raise click.BadParameter(text) from error
    except ValueError:
        pass  # Python does not know its arguments
    try:
        return found()
    except Exception as error:
        raise click.BadParameter(f"{path}() failed: {type(error).__name__}: {error}") from error
