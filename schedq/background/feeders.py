"""What enqueues jobs that wait outside Redis, such as the relays of outboxes that run in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FEEDERS: Final[set[Callable[[], object]]] = set()
"""Functions that enqueue what is ready. They block, and raise nothing. A burst calls them before it ends."""
