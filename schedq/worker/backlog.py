"""Two claims at a time while more jobs wait than a claim takes, so that Redis is never idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from schedq.worker.capacity import Capacity

_LEAST_FREE: Final = 0.25
"""The share of all slots that must be free for a second claim: small claims cost Redis and the worker more per job."""


class Backlog:
    """Whether a queue has a backlog, and when its second claim may be sent.

    Args:
        capacity: the slots of the worker.
        notify: called when the reply to a claim has come.

    Attributes:
        is_there: set while the last claim left jobs behind.
    """

    def __init__(self, capacity: Capacity, notify: Callable[[], None]) -> None:
        self.is_there = asyncio.Event()
        self._capacity = capacity
        self._notify = notify
        self._claims = 0

    @property
    def share(self) -> float:
        """The share of all slots that a claim may take."""
        return 0.5 if self.is_there.is_set() else 1.0

    @property
    def has_to_wait(self) -> bool:
        """Whether a claim is on its way, and too few jobs have ended for a second one."""
        is_second = self._claims > 0 and self.is_there.is_set()
        return is_second and self._capacity.free < self._capacity.size * _LEAST_FREE

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Surrounds the request of a claim."""
        self._claims += 1
        try:
            yield
        finally:
            self._claims -= 1
            self._notify()
