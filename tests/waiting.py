"""Waiting in tests: `until` a condition holds, instead of for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T], within: float = 60.0, *, failing: str | Callable[[], object] = "") -> T:
    """Evaluate `look` until its value is true, and return it.

    Args:
        within: seconds after which the test fails; far more than a busy machine needs.
        failing: text to add to the error, or a function that returns it.
    """
    deadline = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {failing() if callable(failing) else failing}")
        time.sleep(0.005)
    return found
