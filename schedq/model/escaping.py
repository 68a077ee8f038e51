"""Texts that come from users, or from Redis, made fit for a terminal and for a log."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from typing import Final

_FRAME: Final = re.compile(r'[\s|+-]*(File "|\[Previous line repeated |\| )')
_NAME: Final = type.__dict__["__name__"]
"""Of a class; its metaclass may have made another one of it."""
_MOST_PART: Final = 2_000
_MOST_HEAD: Final = 4_000
_MOST_TAIL: Final = 12_000
_BETWEEN: Final = frozenset(
    {
        "\nThe above exception was the direct cause of the following exception:\n\n",
        "\nDuring handling of the above exception, another exception occurred:\n\n",
    }
)


def harmless(text: str) -> str:
    """The text on one line, with an escape for whatever could steer a terminal or pass for another line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless_lines(text: str) -> str:
    """The same with the lines that it has."""
    return "\n".join(harmless(line.expandtabs(4)) for line in text.split("\n"))


def harmless_traceback(parts: Iterable[str]) -> str:
    """A traceback of `traceback.format_exception` for a log: only its frames have several lines, texts have one.

    So no text of an exception can pass for another line of the log. What is very long is cut.
    """
    text = "".join(_harmless_part(part) for part in parts).rstrip("\n")
    left_out = len(text) - _MOST_HEAD - _MOST_TAIL
    if left_out <= 0:
        return text
    return f"{text[:_MOST_HEAD]}\n... {left_out:,} characters are left out ...\n{text[-_MOST_TAIL:]}"


def rendered(error: BaseException | None) -> str:
    """The traceback of an exception, escaped; without the values of variables."""
    try:
        return harmless_traceback(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - a user's exception may do anything
        return f"{_NAME.__get__(type(error))} (its traceback can't be shown)"


def _harmless_part(part: str) -> str:
    if part in _BETWEEN or _FRAME.match(part):
        return harmless_lines(part)
    text = part.rstrip("\n")
    return harmless(text if len(text) <= _MOST_PART else f"{text[:_MOST_PART]}...") + "\n"
