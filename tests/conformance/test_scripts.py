"""Scripts: every move of a job is one, so what holds of them holds of the engine."""

from __future__ import annotations

import time

import pytest
from redis.exceptions import NoScriptError, ResponseError

from tests.conformance.conftest import MakeWire
from tests.conformance.wires import Wire

MS = "local function ms() local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000) end "


def sha(wire: Wire, script: str) -> str:
    found: str = wire.ask("SCRIPT", "LOAD", script)
    return found


# -- time


def test_time_is_in_microseconds_since_the_epoch(wire: Wire):
    before = time.time()
    seconds, microseconds = map(int, wire.ask("TIME"))
    after = time.time()

    assert before - 0.01 <= seconds + microseconds / 1e6 <= after + 0.01
    assert 0 <= microseconds < 1_000_000


def test_a_script_has_the_time_in_milliseconds_as_a_whole_number(wire: Wire):
    before = time.time()
    now = wire.ask("EVAL", MS + "return ms()", 0)

    assert before * 1000 - 10 <= now <= time.time() * 1000 + 10

    assert wire.ask("EVAL", MS + "return tostring(ms())", 0).isdigit()


def test_a_script_may_write_after_it_has_read_the_time(wire: Wire, key: str):
    assert wire.ask("EVAL", MS + "return redis.call('SET', KEYS[1], ms())", 1, key) == "OK"


@pytest.mark.xfail(strict=False, reason="a script reads the time once; Redis before 7.2 goes on counting")
def test_the_time_does_not_move_inside_a_script(wire: Wire):
    script = MS + "local first, n = ms(), 0 while n < 2000000 do n = n + 1 end return ms() - first"

    assert wire.ask("EVAL", script, 0) == 0


def test_a_number_that_a_script_passes_on_is_written_with_all_its_digits(wire: Wire, key: str):
    """What is due is a number in Lua when it goes into ZADD and HSET."""
    script = "redis.call('ZADD', KEYS[1], 1800000000123, 'a') redis.call('HSET', KEYS[2], 'at', 1800000000123)"
    wire.ask("EVAL", script, 2, key, f"{key}:hash")

    assert int(wire.ask("ZSCORE", key, "a")) == 1_800_000_000_123
    assert wire.ask("HGET", f"{key}:hash", "at") == "1800000000123"


# -- one step, whole or not


def test_a_script_that_raises_keeps_what_it_wrote(wire: Wire, key: str):
    script = "redis.call('SET', KEYS[1], 'written') redis.call('LPUSH', KEYS[1], 'x') redis.call('DEL', KEYS[1])"

    assert "WRONGTYPE" in wire.error("EVAL", script, 1, key)
    assert wire.ask("GET", key) == "written"


def test_a_script_that_fails_in_lua_keeps_what_it_wrote(wire: Wire, key: str):
    script = "redis.call('SET', KEYS[1], 'written') local nothing = nil return nothing.field"

    assert wire.error("EVAL", script, 1, key)
    assert wire.ask("GET", key) == "written"


def test_nobody_sees_the_middle_of_a_script(wire: Wire, make_wire: MakeWire, key: str):
    busy = "for i = 1, 300 do redis.call('RPUSH', KEYS[1], i) local n = 0 while n < 50000 do n = n + 1 end end"
    writer = make_wire()
    writer.say("EVAL", busy, 1, key)
    seen = set()
    while not writer.hears(0):
        seen.add(wire.ask("LLEN", key))
    writer.hear()

    assert seen <= {0, 300}


def test_pcall_hands_the_error_to_the_script(wire: Wire, key: str):
    wire.ask("SET", key, "x")
    script = "local reply = redis.pcall('LPUSH', KEYS[1], 'x') return {type(reply), reply.err}"

    kind, text = wire.ask("EVAL", script, 1, key)

    assert kind == "table"
    assert "WRONGTYPE" in text


def test_an_error_that_a_script_makes_reaches_the_client_as_it_is(wire: Wire):
    text = "WRONGTYPE queue:x:pending is a hash, not a list"

    assert wire.error("EVAL", "return redis.error_reply(ARGV[1])", 0, text) == text


@pytest.mark.xfail(strict=False, reason="Redis 6.2 puts its own text around it, which schedq looks into")
def test_the_code_of_an_error_inside_a_script_is_the_first_word_of_the_reply(wire: Wire, key: str):
    wire.ask("SET", key, "x")

    assert wire.error("EVAL", "redis.call('LPUSH', KEYS[1], 'x')", 1, key).startswith("WRONGTYPE")


def test_null_is_false_in_a_script_and_false_is_null_outside(wire: Wire, key: str):
    assert wire.ask("EVAL", "return redis.call('GET', KEYS[1]) == false and 'so'", 1, key) == "so"
    assert wire.ask("EVAL", "return redis.call('HMGET', KEYS[1], 'a')[1] == false and 'so'", 1, key) == "so"
    assert wire.ask("EVAL", "return false", 0) is None


def test_the_type_of_a_key_is_a_status_in_a_script(wire: Wire, key: str):
    assert wire.ask("EVAL", "return redis.call('TYPE', KEYS[1]).ok", 1, key) == "none"
    assert wire.ask(
        "EVAL", "redis.call('XADD', KEYS[1], '*', 'a', 1) return redis.call('TYPE', KEYS[1]).ok", 1, key
    ) == ("stream")


def test_a_row_of_7000_words_can_be_unpacked(wire: Wire, key: str):
    """Batches are that long at most: Lua's stack ends at some 8000."""
    script = "local row = {} for i = 1, 7000 do row[i] = i end return redis.call('RPUSH', KEYS[1], unpack(row))"

    assert wire.ask("EVAL", script, 1, key) == 7000


@pytest.mark.parametrize("write", ["SET {} x PX 60000", "HSET {} f x"])
def test_a_script_may_set_and_remove_an_expiry(wire: Wire, key: str, write: str):
    wire.ask(
        "EVAL", "redis.call(unpack(ARGV)) redis.call('PEXPIRE', KEYS[1], 60000)", 1, key, *write.format(key).split()
    )
    assert 0 < wire.ask("PTTL", key) <= 60_000

    assert wire.ask("EVAL", "return redis.call('PERSIST', KEYS[1])", 1, key) == 1
    assert wire.ask("PTTL", key) == -1


# -- known by its digest


def test_a_script_that_was_run_is_known_by_its_digest(wire: Wire, key: str):
    script = f"return '{key}'"
    wire.ask("EVAL", script, 0)

    assert wire.ask("EVALSHA", sha(wire, script), 0) == key


def test_a_script_is_forgotten_with_script_flush_and_learnt_again(wire: Wire, key: str):
    script = f"return '{key}'"
    digest = sha(wire, script)
    wire.ask("SCRIPT", "FLUSH")

    assert wire.error("EVALSHA", digest, 0).startswith("NOSCRIPT")
    assert wire.ask("EVAL", script, 0) == key
    assert wire.ask("EVALSHA", digest, 0) == key


def test_in_a_pipeline_only_the_unknown_ones_fail(wire: Wire, key: str):
    """And what is learnt in the middle is known to the rest."""
    script = f"return redis.call('INCR', '{key}')"
    digest = sha(wire, script)
    wire.ask("SCRIPT", "FLUSH")

    replies = wire.together(
        ("INCR", key), ("EVALSHA", digest, 0), ("EVAL", script, 0), ("EVALSHA", digest, 0), ("INCR", key)
    )

    assert isinstance(replies.pop(1), NoScriptError)
    assert replies == [1, 2, 3, 4]


def test_a_script_that_was_forgotten_writes_nothing(wire: Wire, key: str):
    digest = sha(wire, f"return redis.call('INCR', '{key}')")
    wire.ask("SCRIPT", "FLUSH")

    replies = wire.together(*[("EVALSHA", digest, 0)] * 3)

    assert all(isinstance(reply, NoScriptError) for reply in replies)
    assert wire.ask("EXISTS", key) == 0


def test_a_pipeline_goes_on_after_an_error(wire: Wire, key: str):
    replies = wire.together(("SET", key, "x"), ("LPUSH", key, "y"), ("GET", key))

    assert isinstance(replies.pop(1), ResponseError)
    assert replies == ["OK", "x"]


# -- what a script tells


def test_what_a_script_publishes_arrives_in_order(wire: Wire, make_wire: MakeWire, key: str):
    listener = make_wire()
    listener.ask("SUBSCRIBE", key)

    heard = wire.ask("EVAL", "redis.call('PUBLISH', KEYS[1], 'a') return redis.call('PUBLISH', KEYS[1], 'b')", 1, key)

    assert heard == 1
    assert [listener.hear()[-1] for _ in range(2)] == ["a", "b"]


def test_what_a_script_publishes_before_it_raises_arrives(wire: Wire, make_wire: MakeWire, key: str):
    listener = make_wire()
    listener.ask("SUBSCRIBE", key)

    wire.error("EVAL", "redis.call('PUBLISH', KEYS[1], 'a') error('on purpose')", 1, key)

    assert listener.hear()[-1] == "a"


def test_what_is_told_has_already_happened(wire: Wire, make_wire: MakeWire, key: str):
    """Whoever is told looks at once, and must find it."""
    listener = make_wire()
    listener.ask("SUBSCRIBE", key)

    for number in range(50):
        wire.say("EVAL", "redis.call('PUBLISH', KEYS[1], '') redis.call('SET', KEYS[1], ARGV[1])", 1, key, number)
        listener.hear()
        assert wire.hear() is None
        assert wire.ask("GET", key) == str(number)
