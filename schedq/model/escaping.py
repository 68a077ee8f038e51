"""Escape texts from users or from Redis, so that they are safe in a terminal and in a log."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from typing import Final

_FRAME: Final = re.compile(r'[\s|+-]*(File "|\[Previous line repeated |\| )')
_NAME: Final = type.__dict__["__name__"]
"""Reads a class's real name, even if its metaclass overrides `__name__`."""
_MOST_PART: Final = 2_000
_MOST_HEAD: Final = 4_000
_MOST_TAIL: Final = 12_000
_CHAINED: Final = frozenset(
    {
        "\nThe above exception was the direct cause of the following exception:\n\n",
        "\nDuring handling of the above exception, another exception occurred:\n\n",
    }
)


def harmless(text: str) -> str:
    """The text on one line, with control characters and line breaks escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless_lines(text: str) -> str:
    """The text with control characters escaped; its lines stay."""
    return "\n".join(harmless(line.expandtabs(4)) for line in text.split("\n"))


def harmless_traceback(parts: Iterable[str]) -> str:
    """A traceback from `traceback.format_exception` for a log; every text of an exception is on one line.

    So no exception can forge a line of the log. Long tracebacks are shortened.
    """
    text = "".join(_harmless_part(part) for part in parts).rstrip("\n")
    left_out = len(text) - _MOST_HEAD - _MOST_TAIL
    if left_out <= 0:
        return text
    return f"{text[:_MOST_HEAD]}\n... {left_out:,} characters are left out ...\n{text[-_MOST_TAIL:]}"


def rendered(error: BaseException | None) -> str:
    """The traceback of an exception, escaped, without the values of variables."""
    try:
        return harmless_traceback(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - a user's exception may do anything
        return f"{_NAME.__get__(type(error))} (its traceback can't be shown)"


def _harmless_part(part: str) -> str:
    if part in _CHAINED or _FRAME.match(part):
        return harmless_lines(part)
    text = part.rstrip("\n")
    return harmless(text if len(text) <= _MOST_PART else f"{text[:_MOST_PART]}...") + "\n"
