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
    began = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - began
        if waited > within:
            raise AssertionError(f"not within {within} s: {failing() if callable(failing) else failing}")
        time.sleep(min(0.003 + waited / 20, 0.03))  # a look may cost milliseconds, and other tests need them
    return found
