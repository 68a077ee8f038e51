"""Lists: the places of jobs, and what workers of other programs take them from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.wires import Wire


def content(wire: Wire, key: str) -> Any:
    return wire.ask("LRANGE", key, 0, -1)


@pytest.fixture
def abc(wire: Wire, key: str) -> str:
    """A list of a, b and c."""
    wire.ask("RPUSH", key, "a", "b", "c")
    return key


# -- adding


def test_lpush_adds_one_after_the_other_at_the_left_and_answers_the_length(wire: Wire, key: str):
    assert wire.ask("LPUSH", key, "a", "b") == 2
    assert wire.ask("LPUSH", key, "c") == 3
    assert content(wire, key) == ["c", "b", "a"]


def test_rpush_adds_one_after_the_other_at_the_right_and_answers_the_length(wire: Wire, key: str):
    assert wire.ask("RPUSH", key, "a", "b") == 2
    assert wire.ask("RPUSH", key, "c") == 3
    assert content(wire, key) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("verb", "after"), [("LPUSHX", ["e", "d", "a", "b", "c"]), ("RPUSHX", ["a", "b", "c", "d", "e"])]
)
def test_pushx_adds_to_a_list_that_is_there(wire: Wire, abc: str, verb: str, after: list[str]):
    assert wire.ask(verb, abc, "d", "e") == 5
    assert content(wire, abc) == after


@pytest.mark.parametrize("verb", ["LPUSHX", "RPUSHX"])
def test_pushx_makes_no_list(wire: Wire, key: str, verb: str):
    assert wire.ask(verb, key, "a") == 0
    assert wire.ask("EXISTS", key) == 0


# -- taking


@pytest.mark.parametrize(("verb", "taken", "left"), [("LPOP", "a", ["b", "c"]), ("RPOP", "c", ["a", "b"])])
def test_pop_takes_the_end_it_names(wire: Wire, abc: str, verb: str, taken: str, left: list[str]):
    assert wire.ask(verb, abc) == taken
    assert content(wire, abc) == left


@pytest.mark.parametrize(("verb", "taken", "left"), [("LPOP", ["a", "b"], ["c"]), ("RPOP", ["c", "b"], ["a"])])
def test_pop_with_a_count_takes_so_many_in_order(wire: Wire, abc: str, verb: str, taken: list[str], left: list[str]):
    assert wire.ask(verb, abc, 2) == taken
    assert content(wire, abc) == left


@pytest.mark.parametrize(("verb", "taken"), [("LPOP", ["a", "b", "c"]), ("RPOP", ["c", "b", "a"])])
def test_pop_with_a_count_beyond_the_end_takes_what_is_there(wire: Wire, abc: str, verb: str, taken: list[str]):
    assert wire.ask(verb, abc, 5) == taken
    assert wire.ask("EXISTS", abc) == 0


@pytest.mark.parametrize("verb", ["LPOP", "RPOP"])
@pytest.mark.xfail(strict=False, reason="nothing here asks for none")
def test_pop_with_a_count_of_none_answers_an_empty_list(wire: Wire, abc: str, verb: str):
    assert wire.ask(verb, abc, 0) == []


@pytest.mark.parametrize("words", ["LPOP {}", "RPOP {}", "LPOP {} 2", "RPOP {} 2", "LINDEX {} 0"])
def test_nothing_is_taken_from_a_missing_key(wire: Wire, key: str, words: str):
    assert wire.ask(*words.format(key).split()) is None


@pytest.mark.parametrize("words", ["LMOVE {0} {0}:to RIGHT LEFT", "RPOPLPUSH {0} {0}:to"])
def test_nothing_is_moved_from_a_missing_key(wire: Wire, key: str, words: str):
    assert wire.ask(*words.format(key).split()) is None
    assert wire.ask("EXISTS", f"{key}:to") == 0


# -- moving


@pytest.mark.parametrize("source", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("target", ["LEFT", "RIGHT"])
def test_lmove_moves_from_the_end_to_the_end_it_names(wire: Wire, abc: str, source: str, target: str):
    to = f"{abc}:to"
    wire.ask("RPUSH", to, "x", "y")
    moved, left = ("a", ["b", "c"]) if source == "LEFT" else ("c", ["a", "b"])

    assert wire.ask("LMOVE", abc, to, source, target) == moved

    assert content(wire, abc) == left
    assert content(wire, to) == ([moved, "x", "y"] if target == "LEFT" else ["x", "y", moved])


def test_rpoplpush_moves_the_oldest_to_the_newest(wire: Wire, abc: str):
    wire.ask("LPUSH", f"{abc}:to", "x")

    assert wire.ask("RPOPLPUSH", abc, f"{abc}:to") == "c"

    assert content(wire, abc) == ["a", "b"]
    assert content(wire, f"{abc}:to") == ["c", "x"]


@pytest.mark.parametrize("words", ["LMOVE {0} {0} RIGHT LEFT", "RPOPLPUSH {0} {0}"])
def test_a_list_can_be_turned_round(wire: Wire, abc: str, words: str):
    assert wire.ask(*words.format(abc).split()) == "c"
    assert content(wire, abc) == ["c", "a", "b"]


# -- removing


@pytest.mark.parametrize(
    ("count", "removed", "left"),
    [(1, 1, "baca"), (2, 2, "bca"), (-1, 1, "abac"), (-2, 2, "abc"), (0, 3, "bc"), (7, 3, "bc"), (-7, 3, "bc")],
)
def test_lrem_removes_so_many_from_the_end_that_the_sign_names(
    wire: Wire, key: str, count: int, removed: int, left: str
):
    wire.ask("RPUSH", key, *"abaca")

    assert wire.ask("LREM", key, count, "a") == removed
    assert content(wire, key) == list(left)


def test_lrem_of_nothing_changes_nothing(wire: Wire, abc: str):
    assert wire.ask("LREM", abc, 1, "x") == 0
    assert wire.ask("LREM", f"{abc}:missing", 1, "x") == 0
    assert content(wire, abc) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("first", "last", "left"),
    [(0, 1, "ab"), (1, 1, "b"), (0, -1, "abc"), (-2, -1, "bc"), (0, 99, "abc"), (-99, 0, "a")],
)
def test_ltrim_keeps_the_range_and_lrange_reads_it(wire: Wire, abc: str, first: int, last: int, left: str):
    assert wire.ask("LRANGE", abc, first, last) == list(left)
    assert wire.ask("LTRIM", abc, first, last) == "OK"
    assert content(wire, abc) == list(left)


@pytest.mark.parametrize(("first", "last"), [(3, 9), (2, 1), (-1, 0)])
def test_lrange_outside_is_empty(wire: Wire, abc: str, first: int, last: int):
    assert wire.ask("LRANGE", abc, first, last) == []
    assert wire.ask("LRANGE", f"{abc}:missing", 0, -1) == []


@pytest.mark.parametrize(("index", "found"), [(0, "a"), (2, "c"), (-1, "c"), (-3, "a"), (3, None), (-4, None)])
def test_lindex_counts_from_either_end(wire: Wire, abc: str, index: int, found: str | None):
    assert wire.ask("LINDEX", abc, index) == found


def test_lpos_finds_the_first_from_the_end_that_the_rank_names(wire: Wire, key: str):
    wire.ask("RPUSH", key, *"abaca")

    assert wire.ask("LPOS", key, "a") == 0
    assert wire.ask("LPOS", key, "a", "RANK", -1) == 4
    assert wire.ask("LPOS", key, "a", "RANK", -1, "MAXLEN", 2) == 4
    assert wire.ask("LPOS", key, "b", "RANK", -1, "MAXLEN", 2) is None
    assert wire.ask("LPOS", key, "x") is None


def test_llen_of_a_missing_list_is_0(wire: Wire, abc: str):
    assert wire.ask("LLEN", abc) == 3
    assert wire.ask("LLEN", f"{abc}:missing") == 0


@pytest.mark.parametrize(
    "words",
    [
        "LPOP {}",
        "RPOP {} 3",
        "LREM {} 0 a",
        "LTRIM {} 1 0",
        "LTRIM {} 5 9",
        "LMOVE {0} {0}:to LEFT LEFT",
        "RPOPLPUSH {0} {0}:to",
    ],
)
def test_a_list_is_gone_with_its_last_element(wire: Wire, key: str, words: str):
    wire.ask("RPUSH", key, *("aaa" if words == "RPOP {} 3" else "a"))

    wire.ask(*words.format(key).split())

    assert wire.ask("EXISTS", key) == 0
    assert wire.ask("TYPE", key) == "none"


LIST_VERBS = [
    *("LPUSH {} a", "RPUSH {} a", "LPUSHX {} a", "RPUSHX {} a", "LPOP {}", "RPOP {}", "LPOP {} 2", "RPOP {} 2"),
    *("LMOVE {0} {0}:to LEFT LEFT", "LMOVE {0}:list {0} LEFT LEFT", "RPOPLPUSH {0} {0}:to", "RPOPLPUSH {0}:list {0}"),
    *("BLMOVE {0} {0}:to LEFT LEFT 0", "BRPOPLPUSH {0} {0}:to 0", "BLPOP {} 0", "BRPOP {} 0"),
    *("LREM {} 0 a", "LTRIM {} 0 1", "LRANGE {} 0 -1", "LINDEX {} 0", "LLEN {}", "LPOS {} a"),
]


@pytest.mark.parametrize("words", LIST_VERBS)
@pytest.mark.parametrize("make", ["SET {} x", "HSET {} field x", "ZADD {} 0 x", "SADD {} x", "XADD {} * field x"])
def test_what_is_no_list_is_refused_and_left_alone(wire: Wire, key: str, words: str, make: str):
    wire.ask("RPUSH", f"{key}:list", "a")
    wire.ask(*make.format(key).split())
    before = wire.ask("TYPE", key)

    assert wire.error(*words.format(key).split()).startswith("WRONGTYPE")

    assert wire.ask("TYPE", key) == before
    assert content(wire, f"{key}:list") == ["a"]
