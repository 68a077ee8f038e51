"""Checks of arguments that several requests share."""

from __future__ import annotations

from typing import Final

from schedq.errors import UsageError

MOST_LISTED: Final = 1000
LARGEST: Final = 2**53 - 1
"""The largest whole number that JSON and Lua keep exactly, for arguments without a limit of their own."""


def whole_number(name: str, value: object, least: int, most: int = LARGEST) -> int:
    """Return `value` if it is a whole number from `least` to `most`.

    Raises:
        UsageError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        limits = f"at least {least}" if most == LARGEST else f"{least} to {most if most < 10_000 else f'{most:,}'}"
        raise UsageError(f"{name} must be a whole number of {limits}, got {value!r:.80}")
    return value


def checked_limit(value: object) -> int:
    """Return a `limit` if it is a whole number from 1 to 1000.

    Raises:
        UsageError: it is not.
    """
    return whole_number("limit", value, 1, MOST_LISTED)
