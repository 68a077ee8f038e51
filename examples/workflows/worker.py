"""Everything that a worker runs: `schedq worker workflows.worker:queue`."""

from __future__ import annotations

from workflows import agent, expenses, nightly, orders, signup
from workflows.queues import queue

__all__ = ["agent", "expenses", "nightly", "orders", "queue", "signup"]
