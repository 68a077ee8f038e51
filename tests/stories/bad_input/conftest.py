"""The fixtures of the tests of workers."""

from __future__ import annotations

from tests.worker.conftest import crew, gate, logs

__all__ = ["crew", "gate", "logs"]
