"""Waits between attempts: as the plan says, never early beyond the jitter, never beyond the cap."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedq import Exponential, Fixed, Linear, Steps, UsageError
from schedq.model.backoff import checked_plan, delay_ms, from_text, to_text

SECONDS = st.floats(0, 1e6) | st.integers(0, 10**6)
JITTER = st.floats(0, 1)
PLANS = st.one_of(
    st.builds(Exponential, base=SECONDS, factor=st.floats(1, 1e6), cap=SECONDS, jitter=JITTER),
    st.builds(Linear, base=SECONDS, step=SECONDS, cap=SECONDS, jitter=JITTER),
    st.builds(Fixed, SECONDS, jitter=JITTER),
    st.builds(Steps, st.lists(SECONDS, min_size=1, max_size=10), jitter=JITTER),
)
ATTEMPTS = st.integers(-5, 2**53)


@pytest.mark.parametrize(
    ("plan", "waits"),
    [
        (Exponential(), [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]),
        (Exponential(base=0), [0, 0, 0]),
        (Exponential(factor=1), [2, 2, 2]),
        (Linear(), [10, 20, 30]),
        (Linear(base=1, step=0), [1, 1]),
        (Fixed(7), [7, 7]),
        (Steps([1, 5, 30]), [1, 5, 30, 30, 30]),
    ],
    ids=repr,
)
def test_plans_grow_as_they_say(plan: Any, waits: list[float]):
    assert [plan.wait(attempt) for attempt in range(1, len(waits) + 1)] == waits
    assert [delay_ms(plan, attempt) for attempt in range(1, len(waits) + 1)] == [wait * 1000 for wait in waits]


@given(PLANS, ATTEMPTS)
def test_a_wait_is_never_early_and_never_a_millisecond_beyond_the_plan(plan: Any, attempt: int):
    most = plan.wait(attempt) * 1000

    wait = delay_ms(plan, attempt)

    assert isinstance(wait, int)
    assert most * (1 - plan.jitter) <= wait <= most + 1


@given(PLANS, ATTEMPTS)
def test_a_plan_never_waits_beyond_its_cap_however_many_attempts(plan: Any, attempt: int):
    cap = getattr(plan, "cap", None)

    if cap is not None:
        assert 0 <= plan.wait(attempt) <= cap
    assert plan.wait(attempt) >= 0


@given(PLANS, st.integers(1, 10**6))
def test_waits_never_shrink(plan: Any, attempt: int):
    if not isinstance(plan, Steps):
        assert plan.wait(attempt + 1) >= plan.wait(attempt)


@given(PLANS)
def test_a_plan_is_read_from_its_text_unchanged(plan: Any):
    assert from_text(to_text(plan)) == plan


@given(st.text() | st.lists(st.none() | st.floats() | st.text()).map(json.dumps))
def test_text_that_is_not_a_plan_is_none_and_raises_nothing(text: str):
    assert from_text(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"kind":"other"}',
        '{"kind":"fixed"}',
        '{"kind":"fixed","delay":-1}',
        '{"kind":"fixed","delay":1,"more":2}',
        '{"kind":"fixed","delay":NaN}',
        '{"kind":["fixed"],"delay":1}',
        '{"kind":"steps","delays":"123"}',
        '{"kind":"steps","delays":[]}',
        '{"kind":"exponential","jitter":2}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_text_that_is_nearly_a_plan_is_none(text: str):
    assert from_text(text) is None


def test_jitter_is_spread_over_the_whole_of_its_range():
    waits = [delay_ms(Fixed(1, jitter=0.5), 1) for _ in range(500)]

    assert 500 <= min(waits) < 520
    assert 980 < max(waits) <= 1000


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Exponential, {"base": -1}),
        (Exponential, {"base": "2"}),
        (Exponential, {"base": True}),
        (Exponential, {"factor": 0.5}),
        (Exponential, {"factor": float("nan")}),
        (Exponential, {"cap": float("inf")}),
        (Exponential, {"cap": 10**400}),
        (Exponential, {"jitter": 1.1}),
        (Exponential, {"jitter": -0.1}),
        (Linear, {"step": -1}),
        (Fixed, {"delay": None}),
        (Steps, {"delays": []}),
        (Steps, {"delays": "12"}),
        (Steps, {"delays": [1, -2]}),
        (Steps, {"delays": {1, 2}}),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_a_plan_that_makes_no_sense_is_refused(kind: Any, arguments: Any):
    with pytest.raises(UsageError, match="backoff"):
        kind(**arguments)


def test_a_number_is_answered_with_the_plan_that_it_stands_for():
    with pytest.raises(UsageError, match=r"got 1\.5; write Fixed\(1\.5\)$"):
        checked_plan(1.5)


@pytest.mark.parametrize("plan", [5, None, "exponential", Exponential, lambda attempt: 1])
def test_an_invalid_plan_is_refused(plan: Any):
    with pytest.raises(UsageError, match="backoff must be"):
        checked_plan(plan)


def test_a_list_given_to_steps_can_not_be_changed_afterwards():
    delays = [1, 2]
    plan = Steps(delays)
    delays.append(3)

    assert plan.delays == (1, 2)
    assert hash(plan) == hash(Steps([1, 2]))
