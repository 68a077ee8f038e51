"""Workers, and what goes with them, as the tests of workers have them."""

from __future__ import annotations

from tests.worker.conftest import crew, door, gate, logs, queue, rare_looks

__all__ = ["crew", "door", "gate", "logs", "queue", "rare_looks"]
