"""What a server says of itself, and what may be asked of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from schedq.doctor.asking import known, plain
from schedq.job import whole
from schedq.operations import Flow

_SETTINGS: Final = ("appendfsync", "maxmemory", "min-replicas-to-write", "save", "timeout")


@dataclass(frozen=True)
class Server:
    """A server's own account.

    Attributes:
        info: the fields of INFO; empty if it was refused.
        config: those of CONFIG GET that were answered; managed servers and access rules refuse it.
    """

    info: Mapping[str, str]
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """Another one for each start of each server; '' if it is not told."""
        return self.info.get("run_id", "")

    def number(self, name: str) -> int:
        """A figure of INFO; 0 if it is none."""
        return whole(self.info.get(name))


def look() -> Flow[Server]:
    """Ask a server about itself."""
    answers = yield [plain("INFO"), *(plain("CONFIG", "GET", name) for name in _SETTINGS)]
    config: dict[str, str] = {}
    for pair in answers[1:]:
        found = known(pair, [])
        config.update(zip(found[::2], found[1::2], strict=False))
    return Server(read_info(known(answers[0], "")), config)


def summary(found: Server) -> dict[str, object]:
    """What programs may want to know of a server, whatever was found."""
    name = "valkey" if "valkey_version" in found.info else "redis"
    return {
        "server": name,
        "version": found.info.get(f"{name}_version", ""),
        "mode": found.info.get("server_mode") or found.info.get("redis_mode", ""),
    }


def read_info(text: str) -> dict[str, str]:
    """INFO's lines as fields."""
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))
