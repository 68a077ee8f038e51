"""Connections to the server under test, and keys that no other test uses."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.wires import Wire
from tests.servers import Server
from tests.waiting import until

MakeWire = Callable[..., Wire]
Blocked = Callable[[int], None]


@pytest.fixture
def make_wire(server: Server) -> Iterator[MakeWire]:
    """Makes separate connections, closed after the test."""
    made: list[Wire] = []

    def make(at: Server = server) -> Wire:
        made.append(Wire(at))
        return made[-1]

    yield make
    for wire in made:
        wire.close()


@pytest.fixture
def wire(make_wire: MakeWire) -> Wire:
    """The connection that most tests use."""
    return make_wire()


@pytest.fixture
def key() -> str:
    """An unused key."""
    return f"fact:{uuid.uuid4().hex[:12]}"


@pytest.fixture
def blocked(wire: Wire) -> Blocked:
    """Waits until `count` clients of the server are blocked; none is when a test begins."""

    def wait(count: int) -> None:
        until(lambda: f"blocked_clients:{count}\r\n" in wire.ask("INFO", "clients"))

    wait(0)
    return wait
