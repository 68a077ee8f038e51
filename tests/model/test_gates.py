"""Gates: which limits and keys are valid, what a rate promises, and how definitions are stored and read."""

from __future__ import annotations

import json
import math
import random
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from schedq import Gate, Rate, UsageError
from schedq.model.gates import checked_key, damaged, declare, definition, parsed_rate, queue_limits, read_gate


def starts(rate: Rate, until_ms: int, gaps: random.Random | None = None) -> list[int]:
    """When jobs start in whole ms if one always waits, or if there are pauses, as the scripts compute it."""
    spacing = Fraction(rate.per_ms, rate.n - rate.burst + 1)
    found: list[int] = []
    now, arrival = 1000, Fraction(0)
    while now < until_ms:
        from_ms = arrival - (rate.burst - 1) * spacing
        if from_ms > now:
            now = math.ceil(from_ms)
        arrival = max(arrival, Fraction(now)) + spacing
        found.append(now)
        if gaps is not None and gaps.random() < 0.1:
            now += gaps.randrange(3 * rate.per_ms)
    return found


@pytest.mark.parametrize(
    "rate",
    [
        *(Rate(n, per) for n in (1, 2, 3, 7, 100) for per in (0.02, 0.1, 1, 60)),
        *(Rate(300, 1), Rate(2000, 1), Rate(100, 60, burst=50), Rate(3, 0.025), Rate(10, 0.02)),
    ],
    ids=repr,
)
def test_no_window_has_more_starts_than_a_rate_allows(rate: Rate) -> None:
    least = 0.5 * rate.n if rate.per_ms < 100 or rate.burst > rate.n / 10 else 0.85 * rate.n
    for seed in (None, 1, 2):
        found = starts(rate, 1000 + 10 * rate.per_ms, None if seed is None else random.Random(seed))
        windows = [found[at + rate.n] - found[at] for at in range(len(found) - rate.n)]
        assert all(window >= rate.per_ms for window in windows), (seed, min(windows))
        assert seed is not None or len(found) >= 10 * least


def test_starts_are_spread_out() -> None:
    ten = starts(Rate(100, per=60), 60_000)[:10]
    assert ten[-1] - ten[0] == 5400


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            (100, 60, 100),
            "Rate(100, per=60, burst=100) would give 1 a minute after the burst: burst must be at most 50",
        ),
        ((100, 3600, 51), "would give 50 an hour after the burst: burst must be at most 50, half of n"),
        ((1, 60, 2), "would give nothing after the burst: burst must be at most 1"),
        ((2, 60, 2), "would give 1 a minute after the burst: burst must be at most 1"),
        ((3, 30, 2), "would give 2 every 30 s after the burst: burst must be at most 1"),
        ((300, 1, 1), "Rate(300, per=1, burst=1) can't be kept in whole milliseconds: burst must be at least 3"),
        ((10, 0.005), "per is too short to spread 10 starts, got 0.005; write a longer time, as in Rate(2000, per=1)"),
        ((200_000, 1), "200,000 a second is more than 100,000 a second"),
        ((10, timedelta(days=30)), "per must be at most 24 days"),
        ((0, 1), "n must be a whole number of 1 to"),
        ((1.5, 1), "n must be a whole number of 1 to"),
        ((10, 0), "per must be more than 0, got 0"),
        ((10, -1), "per must not be negative"),
        ((10, "1s"), "per must be seconds"),
        ((10, 1, 0), "burst must be a whole number of at least 1"),
        ((10, 1, True), "burst must be a whole number of at least 1"),
    ],
)
def test_a_rate_that_can_not_be_kept_is_refused_with_the_way_out(given: tuple[Any, ...], error: str) -> None:
    with pytest.raises(UsageError) as refused:
        Rate(*given)
    assert error in str(refused.value)


@pytest.mark.parametrize("n", range(1, 12))
@pytest.mark.parametrize("per", [0.02, 0.021, 0.03, 0.1, 1])
def test_the_default_burst_may_also_be_given(n: int, per: float) -> None:
    assert Rate(n, per, burst=Rate(n, per).burst) == Rate(n, per)
    assert Rate(n, per).burst <= max(1, n / 2)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/s", Rate(10, 1)),
        ("500/m", Rate(500, 60)),
        ("20000/h", Rate(20_000, timedelta(hours=1))),
        ("1000/30s", Rate(1000, 30)),
        (" 5 / d ", Rate(5, timedelta(days=1))),
        ("1/500ms", Rate(1, 0.5)),
    ],
)
def test_a_rate_can_be_typed(text: str, rate: Rate) -> None:
    assert parsed_rate(text) == rate


@pytest.mark.parametrize("text", ["", "10", "10/", "/s", "10/x", "1.5/s", "-1/s", "10/s/s"])
def test_what_is_not_a_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a rate; write 10/s, 500/m, 20000/h or 1000/30s"):
        parsed_rate(text)


def test_a_definition_has_only_what_is_set() -> None:
    gate = Gate(
        "api",
        concurrency=40,
        rate=[Rate(500, per=60, burst=20), Rate(20_000, per=3600)],
        key_concurrency=2,
        key_rate=Rate(10, per=1),
        weight=2,
    )
    assert json.loads(definition(gate)) == {
        "concurrency": 40,
        "rate": [[500, 60_000, 20], [20_000, 3_600_000, 1]],
        "key_concurrency": 2,
        "key_rate": [[10, 1000, 1]],
        "weight": 2,
    }
    assert definition(Gate("fair")) == "{}"
    assert definition(Gate("ledger", serial=True)) == '{"serial":true}'
    assert definition(queue_limits(200, Rate(1000, per=1))) == '{"concurrency":200,"rate":[[1000,1000,25]]}'
    for each in (gate, Gate("fair"), Gate("ledger", serial=True)):
        assert read_gate(each.name, definition(each)) == each


def test_damaged_fields_of_a_definition_read_as_not_set() -> None:
    text = '{"concurrency":0,"rate":[[10,1000]],"key_concurrency":3,"weight":1001,"serial":"yes","later":1}'
    assert read_gate("api", text) == Gate("api", key_concurrency=3)
    assert damaged(text) == ("concurrency", "rate", "weight", "serial")
    assert damaged('{"key_rate":[[10,1000,11]]}') == ("key_rate",)
    for nothing in ("", "nonsense", "[]", "null"):
        assert read_gate("api", nothing) == Gate("api")
        assert damaged(nothing) == ("definition",)
    assert damaged("{}") == ()


def test_a_burst_that_an_operator_stored_is_read_as_it_is() -> None:
    (rate,) = read_gate("api", '{"rate":[[10,1000,10]]}').rate
    assert (rate.n, rate.per, rate.burst) == (10, 1, 10)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": "-"}, "gate name '-' must be 1 to 48 characters"),
        ({"name": "a b"}, "gate name 'a b' must be"),
        ({"name": ""}, "gate name '' must be"),
        ({"name": "x" * 49}, "must be 1 to 48 characters"),
        ({"name": 7}, "gate name 7 must be"),
        ({"concurrency": 0}, "gate 'api': concurrency must be a whole number of 1 to"),
        ({"key_concurrency": 1.5}, "gate 'api': key_concurrency must be"),
        ({"weight": 1001}, "gate 'api': weight must be a whole number of 1 to 1000, got 1001"),
        ({"rate": 10}, "gate 'api': rate must be a Rate or a list of them, as in Rate(10, per=1), got 10"),
        ({"key_rate": "10/s"}, "gate 'api': key_rate must be a Rate"),
        ({"rate": []}, "rate must be 1 to 8 rates, got 0; leave it out for no limit"),
        ({"serial": 1}, "serial must be True or False, got 1"),
        ({"serial": True, "key_concurrency": 2}, "one job of a key at a time: leave out key_concurrency=2"),
    ],
)
def test_an_invalid_gate_is_refused_with_its_value(given: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError) as refused:
        Gate(**{"name": "api", **given})
    assert error in str(refused.value)


def test_a_gate_is_defined_once() -> None:
    known: dict[str, str] = {}
    for _ in range(2):
        declare(known, Gate("api", concurrency=2))
    with pytest.raises(UsageError, match="gate 'api' is defined already with other limits"):
        declare(known, Gate("api", concurrency=3))
    assert known == {"api": '{"concurrency":2}'}


def test_a_queue_has_at_most_64_gates() -> None:
    known: dict[str, str] = {}
    declare(known, queue_limits(10, None))
    for number in range(64):
        declare(known, Gate(f"gate-{number}"))
    with pytest.raises(UsageError, match="a queue has at most 64 gates.*use one gate with a key"):
        declare(known, Gate("another"))
    declare(known, Gate("gate-7"))


@pytest.mark.parametrize(
    ("given", "key"), [(None, ""), ("", ""), (42, "42"), (-1, "-1"), ("shop/7:ä", "shop/7:ä"), ("x" * 128, "x" * 128)]
)
def test_a_key_is_a_short_text(given: object, key: str) -> None:
    assert checked_key(given) == key


@pytest.mark.parametrize("given", [True, 1.5, ["a"], b"a", "a b", "a\n", "\u00a0", "\ud800", "x" * 129])
def test_another_key_is_refused_with_the_way_out(given: object) -> None:
    with pytest.raises(UsageError, match=r"a key must be .*, got .*; (use a digest of it|convert it)"):
        checked_key(given)
