"""Pause a queue's claims, and resume them."""

from __future__ import annotations

from typing import Final

from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation

_PAUSE: Final = Binding("pause")
_RESUME: Final = Binding("resume")


def pause(queue: Settings) -> Operation[int]:
    """Stop claims; returns since when the queue is paused, ms."""
    return Operation("pause", *_PAUSE(queue), int)


def resume(queue: Settings) -> Operation[bool]:
    """Allow claims again; returns whether the queue was paused."""
    return Operation("resume", *_RESUME(queue), bool)
