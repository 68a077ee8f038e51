"""What a worker serves for monitoring, and where. It imports no web server, because most workers serve nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LIMIT_S: Final = 10.0
"""Default number of seconds for which the event loop may be blocked or Redis unreachable."""


@dataclass(frozen=True, slots=True)
class MonitorConfig:
    """What a worker serves, and where.

    Attributes:
        metrics_port: port for metrics and health; 0 for any free one, None for no such port.
        health_port: port for health alone, likewise.
        host: the address that both listen on.
        limit_s: see `HealthProbe`.
    """

    metrics_port: int | None = None
    health_port: int | None = None
    host: str = "127.0.0.1"
    limit_s: float = LIMIT_S

    @property
    def is_any(self) -> bool:
        return self.metrics_port is not None or self.health_port is not None
