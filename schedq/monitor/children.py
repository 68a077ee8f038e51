"""A fleet seen as one: the parent asks each of its worker processes, and answers for all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, Final

from schedq.monitor.health import Health

_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What one process answered; `code` 0 and the reason as `text` if it did not."""

    code: int
    text: str

    @property
    def page(self) -> str | None:
        """The text, if the page was there."""
        return self.text if self.code == HTTPStatus.OK else None


_ABSENT: Final = Reply(0, "it is not running")


def fetch(host: str, port: int, path: str, patience_s: float = _PATIENCE_S) -> Reply:
    """GET a page; never raises for what the other side does."""
    connection = HTTPConnection(host, port, timeout=patience_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return Reply(response.status, response.read().decode(errors="replace"))
    except (OSError, HTTPException) as error:
        return Reply(0, str(error) or type(error).__name__)
    finally:
        connection.close()


class Children:
    """The web servers of a fleet's processes.

    Args:
        ports: answers the number of each process, and where on the loopback it listens; None while there is none.
    """

    def __init__(self, ports: Callable[[], Mapping[int, int | None]]) -> None:
        self._ports = ports

    def fetch(self, path: str) -> dict[int, Reply]:
        """The page of each, all asked at the same time."""
        ports = self._ports()

        def ask(port: int | None) -> Reply:
            return _ABSENT if port is None else fetch("127.0.0.1", port, path)

        with ThreadPoolExecutor(max_workers=max(1, min(32, len(ports)))) as pool:
            return dict(zip(ports, pool.map(ask, ports.values()), strict=True))

    def health(self) -> Health:
        """How all get on: what one of them has against it counts for all."""
        ails: list[str] = []
        waits: list[str] = []
        facts: dict[str, Any] = {}
        live = self.fetch("/livez")
        for number, reply in self.fetch("/healthz").items():
            told = _read(reply)
            facts[str(number)] = told
            reasons = [f"process {number}: {reason}" for reason in told.get("reasons", [])]
            # Of one that has died the fleet starts another; one that hangs would do so for ever.
            is_ill = live[number].code != HTTPStatus.OK and live[number] != _ABSENT
            (ails if is_ill else waits).extend(reasons)
        return Health(tuple(ails), tuple(waits), {"processes": facts})


def _read(reply: Reply) -> dict[str, Any]:
    try:
        told = json.loads(reply.text)
    except ValueError:
        told = None
    if reply.code in (200, 503) and isinstance(told, dict):
        return told
    return {"status": "failing", "reasons": [f"does not answer: {reply.text.strip()[:200]}"]}
