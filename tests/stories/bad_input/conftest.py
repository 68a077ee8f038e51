"""Workers, and what goes with them, as the tests of workers have them."""

from __future__ import annotations

from tests.worker.conftest import crew, gate, logs

__all__ = ["crew", "gate", "logs"]
