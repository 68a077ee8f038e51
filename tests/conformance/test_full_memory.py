"""Memory that is full: what a script may still write, so that a full Redis drains and takes nothing new."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import MakeWire
from tests.conformance.wires import Wire
from tests.servers import Server

ALLOWED = {
    "RPOP": "RPOP {}:list",
    "LPOP with a count": "LPOP {}:list 2",
    "LREM": "LREM {}:list -1 a",
    "LREM of nothing": "LREM {}:list 1 x",
    "LTRIM": "LTRIM {}:list 0 0",
    "ZREM": "ZREM {}:zset a",
    "ZREM of nothing": "ZREM {}:zset x",
    "ZREM from nothing": "ZREM {}:missing x",
    "ZPOPMIN": "ZPOPMIN {}:zset",
    "HDEL": "HDEL {}:hash a",
    "DEL": "DEL {}:list",
    "DEL of nothing": "DEL {}:missing",
    "UNLINK": "UNLINK {}:list",
    "PEXPIRE": "PEXPIRE {}:hash 60000",
    "PERSIST": "PERSIST {}:hash",
}
"""What a script may begin to write with."""
REFUSED = {
    "LPUSH": "LPUSH {}:list x",
    "RPUSH": "RPUSH {}:list x",
    "LMOVE": "LMOVE {0}:list {0}:other RIGHT LEFT",
    "RPOPLPUSH": "RPOPLPUSH {0}:list {0}:other",
    "ZADD": "ZADD {}:zset 1 x",
    "ZADD of what is there": "ZADD {}:zset 0 a",
    "ZADD XX": "ZADD {}:zset XX 1 a",
    "ZADD XX of nothing": "ZADD {}:missing XX 1 a",
    "SET": "SET {}:string x",
    "SET of what is there": "SET {}:text x",
    "SET PX": "SET {}:string x PX 60000",
    "HSET": "HSET {}:hash b x",
    "HSET of what is there": "HSET {}:hash a x",
    "HINCRBY": "HINCRBY {}:hash n 1",
    "SADD": "SADD {}:set x",
    "XADD": "XADD {}:stream * a x",
}
"""What it may not begin with, even if it takes no room."""


@pytest.fixture(scope="module")
def full() -> Iterator[Server]:
    """A server whose memory `wire` declares full, once it has written what a test needs."""
    with Server(maxmemory_policy="noeviction") as server:
        yield server


@pytest.fixture
def wire(make_wire: MakeWire, full: Server, key: str) -> Iterator[Wire]:
    """A connection to it; its memory is full, and holds a key of each type."""
    wire = make_wire(full)
    wire.ask("RPUSH", f"{key}:list", "a", "b")
    wire.ask("ZADD", f"{key}:zset", 0, "a", 1, "b")
    wire.ask("HSET", f"{key}:hash", "a", 1, "b", 2)
    wire.ask("SET", f"{key}:text", "long enough to be replaced by less")
    wire.ask("CONFIG", "SET", "maxmemory", 1000)
    yield wire
    wire.ask("CONFIG", "SET", "maxmemory", 0)


def once(wire: Wire, words: str) -> str:
    """A script that does one thing; how that ended."""
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


@pytest.mark.parametrize("words", ALLOWED.values(), ids=ALLOWED)
def test_a_script_may_begin_with(wire: Wire, key: str, words: str):
    assert once(wire, words.format(key)) == "done"


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
def test_a_script_may_not_begin_with(wire: Wire, key: str, words: str):
    before = wire.ask("DBSIZE"), wire.ask("GET", f"{key}:text")

    assert "OOM" in once(wire, words.format(key))

    assert (wire.ask("DBSIZE"), wire.ask("GET", f"{key}:text")) == before


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("first", ["{}:zset", "{}:missing"], ids=["removed nothing", "had nothing to remove from"])
def test_after_a_removal_that_removed_nothing_a_script_may(wire: Wire, key: str, first: str, words: str):
    assert wire.ask("EVAL", _AFTER, 1, first.format(key), *words.format(key).split()) == "done"


def test_each_script_must_begin_anew(wire: Wire, key: str):
    wire.ask("EVAL", _AFTER, 1, f"{key}:zset", "SET", f"{key}:text", "x")

    assert "OOM" in once(wire, f"SET {key}:text y")


def test_a_refusal_is_an_error_that_says_oom_and_nothing_is_written(wire: Wire, key: str):
    script = "redis.call('LPUSH', KEYS[1], 'x') redis.call('DEL', KEYS[2])"

    assert "OOM command not allowed" in wire.error("EVAL", script, 2, f"{key}:list", f"{key}:hash")
    assert wire.ask("LRANGE", f"{key}:list", 0, -1) == ["a", "b"]
    assert wire.ask("EXISTS", f"{key}:hash") == 1


def test_a_reading_script_and_one_that_tells_pass(wire: Wire, key: str):
    for words in ("GET {}:text", "LRANGE {}:list 0 -1", "TIME", "PUBLISH {} x"):
        assert once(wire, words.format(key)) == "done"


def test_a_script_may_be_learnt(wire: Wire, key: str):
    digest = wire.ask("SCRIPT", "LOAD", f"return '{key}'")

    assert wire.ask("EVALSHA", digest, 0) == key


@pytest.mark.parametrize(
    "words", ["RPOP {}:list", "ZPOPMIN {}:zset", "BZPOPMIN {}:zset 0", "BRPOP {}:list 0", "SUBSCRIBE {}"]
)
def test_a_client_may_take_and_listen(wire: Wire, key: str, words: str):
    assert wire.ask(*words.format(key).split()) is not None
    if words.startswith("SUBSCRIBE"):
        wire.ask("UNSUBSCRIBE", key)


@pytest.mark.parametrize(
    "words",
    [
        "RPOPLPUSH {0}:list {0}:other",
        "LMOVE {0}:list {0}:other RIGHT LEFT",
        "BRPOPLPUSH {0}:list {0}:other 0",
        "BLMOVE {0}:list {0}:other RIGHT LEFT 0",
        "ZADD {}:zset 0 x",
        "SADD {}:set x",
    ],
)
def test_a_client_may_not_move_or_add(wire: Wire, key: str, words: str):
    """So workers after the guide stand still while ours drain."""
    assert wire.error(*words.format(key).split()).startswith("OOM")
