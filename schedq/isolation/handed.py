"""Functions that async handlers hand to child processes, as pickled text. Nothing of Redis is ever unpickled."""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

from schedq.errors import UsageError
from schedq.isolation.remote_error import caused, remote_error
from schedq.isolation.wire import Message, Raised


def text_of(function: partial[Any]) -> str:
    """Return a function and its arguments as text.

    Raises:
        UsageError: they can't be pickled.
    """
    try:
        return _pickled(function)
    except Exception as error:
        raise UsageError(
            f"run_isolated() needs a function at the top of a module, and arguments that can be pickled: {error}"
        ) from error


def function_of(text: str) -> Callable[[], Any]:
    """Return the function of such a text."""
    function: Callable[[], Any] = pickle.loads(b64decode(text))  # noqa: S301 - the worker of this process has made it
    return function


def returned(result: object) -> Message:
    """Return the message about a result.

    Raises:
        Exception: it can't be pickled.
    """
    return {"kind": "returned", "value": _pickled(result)}


def raised(error: BaseException, facts: Raised, traceback: str) -> Message:
    """Return the message about an exception; without its value if it can't be pickled."""
    try:
        value = _pickled(error)
        pickle.loads(b64decode(value))  # noqa: S301 - some exceptions can be pickled, but not read
    except BaseException:  # noqa: BLE001 - a user's exception may do anything
        value = ""
    return {"kind": "raised", "value": value, "raised": facts, "traceback": traceback}


def result_of(message: Message) -> Any:
    """Return the result in a message, or raise the exception in it, with the child's traceback as its cause."""
    if message["kind"] == "returned":
        return pickle.loads(b64decode(message["value"]))  # noqa: S301 - a child of this worker has made it
    if not message["value"]:
        raise remote_error(Raised(*message["raised"]), message["traceback"])
    error: BaseException = pickle.loads(b64decode(message["value"]))  # noqa: S301
    raise caused(error, message["traceback"])


def _pickled(value: object) -> str:
    return b64encode(pickle.dumps(value)).decode()
