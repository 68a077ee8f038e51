"""The fixtures of the tests of workers."""

from __future__ import annotations

from tests.worker.conftest import crew, door, gate, logs, queue, rare_looks

__all__ = ["crew", "door", "gate", "logs", "queue", "rare_looks"]
