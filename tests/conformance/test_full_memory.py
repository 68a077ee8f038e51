"""Full memory: what a script may still write, so that a full Redis drains and takes nothing new."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import MakeWire
from tests.conformance.wires import Wire
from tests.servers import Server

ALLOWED = [
    "RPOP {}:list",
    "LREM {}:list -1 a",
    "LTRIM {}:list 0 0",
    "ZREM {}:zset a",
    "ZREM {}:missing x",
    "HDEL {}:hash a",
    "DEL {}:list",
    "UNLINK {}:list",
    "PEXPIRE {}:hash 60000",
    "PERSIST {}:hash",
    "LRANGE {}:list 0 -1",
    "PUBLISH {} x",
]
"""Commands that a script may begin with."""
REFUSED = [
    "LPUSH {}:list x",
    "RPUSH {}:list x",
    "LMOVE {0}:list {0}:other RIGHT LEFT",
    "ZADD {}:zset 0 a",
    "SET {}:text x",
    "HSET {}:hash a x",
    "HINCRBY {}:hash n 1",
    "XADD {}:stream * a x",
]
"""Commands that it may not begin with, even if they need no memory."""


@pytest.fixture(scope="module")
def full() -> Iterator[Server]:
    """A server whose memory limit `wire` lowers once it has written what a test needs."""
    with Server(maxmemory_policy="noeviction") as server:
        yield server


@pytest.fixture
def wire(make_wire: MakeWire, full: Server, key: str) -> Iterator[Wire]:
    """A connection to that server, whose memory is full and which has a key of each type."""
    wire = make_wire(full)
    wire.ask("RPUSH", f"{key}:list", "a", "b")
    wire.ask("ZADD", f"{key}:zset", 0, "a", 1, "b")
    wire.ask("HSET", f"{key}:hash", "a", 1, "b", 2)
    wire.ask("SET", f"{key}:text", "long enough to be replaced by less")
    wire.ask("CONFIG", "SET", "maxmemory", 1000)
    yield wire
    wire.ask("CONFIG", "SET", "maxmemory", 0)


def once(wire: Wire, words: str) -> str:
    """Run a script of one command; returns its error or ''."""
    return str(wire.ask("EVAL", _TRY, 0, *words.split()))


_TRY = """
local reply = redis.pcall(unpack(ARGV))
return type(reply) == 'table' and reply.err or 'done'
"""
_AFTER = """
redis.call('ZREM', KEYS[1], '')
local reply = redis.pcall(unpack(ARGV))
return type(reply) == 'table' and reply.err or 'done'
"""


def test_a_script_may_begin_by_reading_removing_and_telling(wire: Wire, key: str):
    assert {words: once(wire, words.format(key)) for words in ALLOWED} == dict.fromkeys(ALLOWED, "done")


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: words.split()[0])
def test_a_script_may_not_begin_with_what_may_take_room(wire: Wire, key: str, words: str):
    before = wire.ask("DBSIZE"), wire.ask("GET", f"{key}:text")

    assert "OOM command not allowed" in once(wire, words.format(key))

    assert (wire.ask("DBSIZE"), wire.ask("GET", f"{key}:text")) == before


@pytest.mark.parametrize("first", ["{}:zset", "{}:missing"], ids=["removed nothing", "had nothing to remove from"])
def test_after_a_removal_that_removed_nothing_a_script_may(wire: Wire, key: str, first: str):
    """schedq's scripts that drain a queue begin like this."""
    done = {words: wire.ask("EVAL", _AFTER, 1, first.format(key), *words.format(key).split()) for words in REFUSED}

    assert done == dict.fromkeys(REFUSED, "done")
    assert "OOM" in once(wire, f"SET {key}:text y"), "the next script begins again"


@pytest.mark.parametrize("words", ["BZPOPMIN {}:zset 0", "SUBSCRIBE {}"])
def test_a_worker_may_wait_and_listen(wire: Wire, key: str, words: str):
    assert wire.ask(*words.format(key).split()) is not None
    if words.startswith("SUBSCRIBE"):
        wire.ask("UNSUBSCRIBE", key)


@pytest.mark.parametrize("words", ["BRPOPLPUSH {0}:list {0}:other 0", "BLMOVE {0}:list {0}:other RIGHT LEFT 0"])
def test_a_guide_worker_may_not_take(wire: Wire, key: str, words: str):
    """So workers written after the Redis guide are stuck while schedq's workers drain the queue."""
    assert wire.error(*words.format(key).split()).startswith("OOM")
