"""Sorted sets: what is due when, and which lease ends first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.wires import Wire


def members(wire: Wire, key: str) -> Any:
    return wire.ask("ZRANGE", key, 0, -1)


@pytest.fixture
def due(wire: Wire, key: str) -> str:
    """a at 1, b at 2, c at 3."""
    wire.ask("ZADD", key, 1, "a", 2, "b", 3, "c")
    return key


# -- adding


def test_zadd_answers_how_many_are_new_and_moves_the_others(wire: Wire, due: str):
    assert wire.ask("ZADD", due, 9, "a", 4, "d") == 1
    assert members(wire, due) == ["b", "c", "d", "a"]


@pytest.mark.parametrize(
    ("flags", "score", "after"),
    [
        ("NX", 9, "2"),
        ("XX", 9, "9"),
        ("GT", 9, "9"),
        ("GT", 1, "2"),
        ("LT", 9, "2"),
        ("LT", 1, "1"),
        ("XX GT", 9, "9"),
        ("XX LT", 9, "2"),
    ],
)
def test_a_flag_decides_what_becomes_of_a_member_that_is_there(
    wire: Wire, due: str, flags: str, score: int, after: str
):
    assert wire.ask("ZADD", due, *flags.split(), score, "b") == 0
    assert wire.ask("ZSCORE", due, "b") == wire.number(after)


@pytest.mark.parametrize(("flags", "added"), [("NX", 1), ("XX", 0), ("GT", 1), ("LT", 1), ("XX GT", 0), ("XX LT", 0)])
def test_a_flag_decides_whether_a_member_is_added(wire: Wire, due: str, flags: str, added: int):
    assert wire.ask("ZADD", due, *flags.split(), 5, "new") == added
    assert wire.ask("ZCARD", due) == 3 + added


def test_zadd_xx_makes_no_key(wire: Wire, key: str):
    assert wire.ask("ZADD", key, "XX", 1, "a") == 0
    assert wire.ask("EXISTS", key) == 0


@pytest.mark.parametrize(("words", "count"), [("CH 9 a 2 b 4 d", 2), ("XX CH 9 a 2 b 4 d", 1), ("GT CH 0 a 9 b", 1)])
def test_zadd_ch_answers_how_many_have_changed(wire: Wire, due: str, words: str, count: int):
    words_of_flags = words.split()

    assert wire.ask("ZADD", due, *words_of_flags) == count


@pytest.mark.parametrize("flags", ["NX XX", "NX GT", "NX LT", "GT LT"])
def test_flags_that_contradict_each_other_are_refused(wire: Wire, due: str, flags: str):
    assert wire.error("ZADD", due, *flags.split(), 9, "a").startswith("ERR")
    assert wire.ask("ZSCORE", due, "a") == wire.number("1")


def test_an_instant_in_milliseconds_is_kept_exactly(wire: Wire, key: str):
    for instant in (1_800_000_000_123, 253_402_300_799_999):
        wire.ask("ZADD", key, instant, "a")
        assert int(wire.ask("ZSCORE", key, "a")) == instant


def test_a_score_that_is_no_number_is_refused(wire: Wire, due: str):
    assert wire.error("ZADD", due, "nan", "a") == "ERR value is not a valid float"
    assert wire.error("ZADD", due, 7, "a", "soon", "b") == "ERR value is not a valid float"
    assert wire.ask("ZSCORE", due, "a") == wire.number("1")


# -- by score


@pytest.mark.parametrize(
    ("bounds", "found"),
    [
        ("-inf +inf", "abc"),
        ("-inf 2", "ab"),
        ("2 +inf", "bc"),
        ("(2 +inf", "c"),
        ("-inf (2", "a"),
        ("(1 (3", "b"),
        ("(2 (2", ""),
        ("3 1", ""),
    ],
)
def test_bounds_include_themselves_unless_told_otherwise(wire: Wire, due: str, bounds: str, found: str):
    assert wire.ask("ZRANGEBYSCORE", due, *bounds.split()) == list(found)
    assert wire.ask("ZCOUNT", due, *bounds.split()) == len(found)


@pytest.mark.parametrize(("limit", "found"), [("0 2", "ab"), ("1 1", "b"), ("0 0", ""), ("5 1", ""), ("1 -1", "bc")])
def test_limit_skips_and_counts(wire: Wire, due: str, limit: str, found: str):
    assert wire.ask("ZRANGEBYSCORE", due, "-inf", "+inf", "LIMIT", *limit.split()) == list(found)


def test_ties_come_in_the_order_of_the_ids_bytes(wire: Wire, key: str):
    ids = ["0a", "0b", "A", "Z", "_", "a", "aa", "b"]
    for member in reversed(ids):
        wire.ask("ZADD", key, 5, member)

    assert members(wire, key) == ids
    assert wire.ask("ZRANGEBYSCORE", key, 5, 5, "LIMIT", 2, 3) == ids[2:5]


def test_ties_keep_their_order_in_a_set_that_has_outgrown_its_first_form(wire: Wire, key: str):
    ids = [f"{n:04}" for n in range(600)]
    wire.ask("ZADD", key, *(word for member in reversed(ids) for word in (5, member)))

    assert members(wire, key) == ids


def test_scores_come_with_the_members(wire: Wire, due: str):
    flat = wire.ask("ZRANGE", due, 0, 1, "WITHSCORES")

    assert flat == (["a", "1", "b", "2"] if wire.protocol == 2 else [["a", 1.0], ["b", 2.0]])


def test_a_script_sees_scores_as_text_in_one_row(wire: Wire, due: str):
    script = "return redis.call('ZRANGE', KEYS[1], 0, 1, 'WITHSCORES')"

    assert wire.ask("EVAL", script, 1, due) == ["a", "1", "b", "2"]


# -- taking


def test_zrem_answers_how_many_were_there(wire: Wire, due: str):
    assert wire.ask("ZREM", due, "a", "x", "b") == 2
    assert wire.ask("ZREM", due, "x") == 0
    assert wire.ask("ZREM", f"{due}:missing", "x") == 0
    assert members(wire, due) == ["c"]


def test_zpopmin_takes_the_lowest(wire: Wire, due: str):
    assert wire.ask("ZPOPMIN", due) == ["a", wire.number("1")]
    assert members(wire, due) == ["b", "c"]
    assert wire.ask("ZPOPMIN", f"{due}:missing") == []


def test_zremrangebyscore_removes_what_is_within(wire: Wire, due: str):
    assert wire.ask("ZREMRANGEBYSCORE", due, "-inf", "(3") == 2
    assert members(wire, due) == ["c"]


@pytest.mark.parametrize("words", ["ZREM {} a", "ZPOPMIN {}", "BZPOPMIN {} 0", "ZREMRANGEBYSCORE {} 1 1"])
def test_a_sorted_set_is_gone_with_its_last_member(wire: Wire, key: str, words: str):
    wire.ask("ZADD", key, 1, "a")

    wire.ask(*words.format(key).split())

    assert wire.ask("EXISTS", key) == 0


def test_nothing_is_found_in_a_missing_set(wire: Wire, key: str):
    assert wire.ask("ZRANGEBYSCORE", key, "-inf", "+inf") == []
    assert wire.ask("ZRANGE", key, 0, 0, "WITHSCORES") == []
    assert wire.ask("ZSCORE", key, "a") is None
    assert wire.ask("ZCARD", key) == 0


@pytest.mark.parametrize(
    "words",
    ["ZADD {} 1 a", "ZREM {} a", "ZRANGE {} 0 0", "ZRANGEBYSCORE {} 0 1", "ZSCORE {} a", "ZCARD {}", "ZPOPMIN {}"],
)
@pytest.mark.parametrize("make", ["SET {} x", "HSET {} field x", "RPUSH {} x", "SADD {} x", "XADD {} * field x"])
def test_what_is_no_sorted_set_is_refused(wire: Wire, key: str, words: str, make: str):
    wire.ask(*make.format(key).split())

    assert wire.error(*words.format(key).split()).startswith("WRONGTYPE")
