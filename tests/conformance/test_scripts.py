"""Scripts: every transition of a job is one, so their guarantees are schedq's."""

from __future__ import annotations

import pytest
from redis.exceptions import NoScriptError

from tests.conformance.conftest import MakeWire
from tests.conformance.wires import Wire


@pytest.mark.parametrize(
    "fails", ["redis.call('LPUSH', KEYS[1], 'x')", "local nothing = nil return nothing.field"], ids=["Redis", "Lua"]
)
def test_the_writes_of_a_script_that_raises_remain(wire: Wire, key: str, fails: str):
    assert wire.error("EVAL", f"redis.call('SET', KEYS[1], 'written') {fails}", 1, key)
    assert wire.ask("GET", key) == "written"


def test_a_row_of_7000_words_can_be_unpacked(wire: Wire, key: str):
    """Batches are at most this long: Lua's stack ends at about 8000."""
    script = "local row = {} for i = 1, 7000 do row[i] = i end return redis.call('RPUSH', KEYS[1], unpack(row))"

    assert wire.ask("EVAL", script, 1, key) == 7000


def test_in_a_pipeline_only_the_unknown_ones_fail(wire: Wire, key: str):
    """A script loaded in the middle of a pipeline is known to the rest of it."""
    script = f"return redis.call('INCR', '{key}')"
    digest = wire.ask("SCRIPT", "LOAD", script)
    wire.ask("SCRIPT", "FLUSH")

    replies = wire.together(
        ("INCR", key), ("EVALSHA", digest, 0), ("EVAL", script, 0), ("EVALSHA", digest, 0), ("INCR", key)
    )

    assert isinstance(replies.pop(1), NoScriptError)
    assert replies == [1, 2, 3, 4]


def test_a_script_that_was_forgotten_writes_nothing(wire: Wire, key: str):
    digest = wire.ask("SCRIPT", "LOAD", f"return redis.call('INCR', '{key}')")
    wire.ask("SCRIPT", "FLUSH")

    replies = wire.together(*[("EVALSHA", digest, 0)] * 3)

    assert all(isinstance(reply, NoScriptError) for reply in replies)
    assert wire.ask("EXISTS", key) == 0


def test_messages_published_by_a_script_arrive_in_order(wire: Wire, make_wire: MakeWire, key: str):
    listener = make_wire()
    listener.ask("SUBSCRIBE", key)

    heard = wire.ask("EVAL", "redis.call('PUBLISH', KEYS[1], 'a') return redis.call('PUBLISH', KEYS[1], 'b')", 1, key)

    assert heard == 1
    assert [listener.hear()[-1] for _ in range(2)] == ["a", "b"]


def test_messages_published_before_a_script_raises_arrive(wire: Wire, make_wire: MakeWire, key: str):
    listener = make_wire()
    listener.ask("SUBSCRIBE", key)

    wire.error("EVAL", "redis.call('PUBLISH', KEYS[1], 'a') error('on purpose')", 1, key)

    assert listener.hear()[-1] == "a"


def test_a_published_change_has_already_happened(wire: Wire, make_wire: MakeWire, key: str):
    """A listener looks at once and must find it."""
    listener = make_wire()
    listener.ask("SUBSCRIBE", key)

    for number in range(50):
        wire.say("EVAL", "redis.call('PUBLISH', KEYS[1], '') redis.call('SET', KEYS[1], ARGV[1])", 1, key, number)
        listener.hear()
        assert wire.hear() is None
        assert wire.ask("GET", key) == str(number)
