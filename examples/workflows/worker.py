"""Everything that a worker runs: `schedq worker workflows.worker:queue`."""

from __future__ import annotations

from workflows import agent, album, etl, expenses, ladder, nightly, orders, signup
from workflows.queues import queue

__all__ = ["agent", "album", "etl", "expenses", "ladder", "nightly", "orders", "queue", "signup"]
