"""Exceptions that a function raised in a child process, as observers of the worker get them."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from schedq.isolation.wire import Raised

E = TypeVar("E", bound=BaseException)


class RemoteError(Exception):
    """An exception that a function raised in a child process.

    Its class is a subclass that has the module and the name of the original class, for tools that show them. The
    traceback of the child is the text of its `__cause__`.
    """


class RemoteTraceback(Exception):  # noqa: N818 - it is never raised; tools show its text above the error
    """The traceback in the child process, as text."""


@lru_cache(maxsize=256)
def _named(module: str, name: str) -> type[RemoteError]:
    return type(name.rpartition(".")[2], (RemoteError,), {"__module__": module, "__qualname__": name})


def remote_error(raised: Raised, traceback: str) -> RemoteError:
    """Return such an exception.

    Args:
        raised: what the child has sent about it.
        traceback: the child's traceback, or ''.
    """
    return caused(_named(raised.module, raised.name)(raised.text), traceback)


def caused(error: E, traceback: str) -> E:
    """Return an error that shows the traceback of a child process, if there is one, as its cause."""
    if traceback:
        error.__cause__ = RemoteTraceback(f"\n{traceback}")
    return error


def from_child(error: BaseException) -> bool:
    """Whether an error shows the traceback of a child process."""
    return isinstance(error.__cause__, RemoteTraceback)
