"""The private parts of redis-py that schedq uses: where they are used, and the releases that have them."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

import hiredis
import pytest
import redis

import schedq
from schedq.connection import redis_internals
from schedq.connection.address import Address
from tests.servers import Server

ROOT = Path(schedq.__file__).parent
SEEN = {"8.0", "8.1"}
"""The minor releases of redis-py that were tested with this code, with hiredis 3."""
OWN = {"self", "cls", "other"}


def test_the_installed_releases_are_tested_ones():
    assert redis.__version__.rpartition(".")[0] in SEEN, (
        "try redis_internals with it, then name it here and in pyproject"
    )
    assert hiredis.__version__.startswith("3.")


def test_the_package_requires_these_releases_and_no_other():
    text = (ROOT.parent / "pyproject.toml").read_text()

    bounds = re.search(r'"redis\[hiredis\]>=(\d+)\.(\d+)(?:\.\d+)?,<(\d+)\.(\d+)"', text)

    assert bounds is not None
    major, first, same, end = map(int, bounds.groups())
    assert major == same
    assert {f"{major}.{minor}" for minor in range(first, end)} == SEEN


@pytest.mark.parametrize("path", sorted((ROOT / "connection").glob("*.py")), ids=lambda path: path.name)
def test_no_other_module_uses_private_parts(path: Path):
    private = re.compile("_[a-z]")
    touched = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module)) if any(map(private.match, module.split("."))):
                touched.append(module)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if private.match(name) and owner not in OWN:
                touched.append(f"{owner}.{name}")
            case ast.Attribute(value=ast.Attribute() | ast.Call(), attr=name) if private.match(name):
                touched.append(name)
            case _:
                pass

    assert not touched or path.name == "redis_internals.py"


def test_a_blocking_connection_has_a_socket(server: Server):
    connection = Address(server.url).find("").connection("internals")
    connection.connect()

    redis_internals.socket_of(connection).sendall(b"PING\r\n")

    assert connection.read_response() == "PONG"
    connection.disconnect()


def test_an_asyncio_connection_has_a_transport_and_can_be_aborted(server: Server):
    async def main() -> bool:
        connection = Address(server.url).find("").async_connection("internals")
        await connection.connect()
        transport = redis_internals.transport_of(connection)
        transport.write(b"PING\r\n")
        assert await connection.read_response() == "PONG"
        redis_internals.abort(connection)
        return transport.is_closing() and not connection.is_connected

    assert asyncio.run(main())


def test_an_error_reply_becomes_an_exception_of_redis_py():
    assert isinstance(redis_internals.parse_error("NOSCRIPT No matching script"), redis.exceptions.NoScriptError)
