"""What a worker shows to those who watch over it: a health endpoint, metrics, on one small web server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LIMIT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be served, and where.

    Attributes:
        metrics_port: of metrics and health; 0 for any port, None for neither.
        health_port: of health alone, as before.
        host: where both listen.
        limit_s: see `Watch`.
    """

    metrics_port: int | None = None
    health_port: int | None = None
    host: str = "127.0.0.1"
    limit_s: float = LIMIT_S

    @property
    def is_any(self) -> bool:
        """Something is to be served."""
        return self.metrics_port is not None or self.health_port is not None
