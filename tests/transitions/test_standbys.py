"""The standbys for the promoter lease: when each looks again, and how vacant places are reported."""

from __future__ import annotations

import time
from typing import Any

import pytest

from schedq.transitions import heartbeat, promote
from schedq.transitions.promote import Part
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.test_full_memory import full


def look(queue: Handle, who: str) -> tuple[Part, int]:
    """A promoter's part after a look, and in how many ms it looks again."""
    found = queue._ask(promote.promote(queue.settings, 200, who))
    assert found.is_leader == (found.part is Part.LEADER)
    return found.part, found.wait_ms


def vacancy(queue: Handle) -> Part:
    """The vacancy that a heartbeat reports."""
    found: heartbeat.Beat = queue._ask(heartbeat.beat(queue.settings, "w-1", {"pid": 7}))
    return found.vacancy


@pytest.fixture(autouse=True)
def _long_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promote, "PROMOTER_LEASE_MS", 2500)  # it outlasts pauses of the machine


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    """A queue on virtual time. Only the promoter lease uses Redis's clock."""
    return make_queue(clock=clock)


def left_ms(queue: Handle, ms: int) -> None:
    """Let the promoter lease end in `ms` ms."""
    queue.redis.pexpire(queue.keys.promoter, ms)


def test_two_standbys_have_places_and_the_others_take_turns_however_many_they_are(queue: Handle):
    looks = [look(queue, name) for name in "habcdef"]

    assert [part for part, _ in looks] == [Part.LEADER, Part.FIRST, Part.SECOND, *[Part.RESERVE] * 4]
    assert [wait for _, wait in looks[2:]] == [2600, 10_000, 20_000, 30_000, 40_000]


def wait_of_the_first(queue: Handle, left: int) -> int:
    """In how many ms the first standby looks again when the holder's lease ends in `left` ms."""
    took_s = 1.0
    while took_s > 0.05:  # the server's clock continues meanwhile
        began = time.monotonic()
        queue.redis.set(queue.keys.promoter, "holder", px=left)
        wait = look(queue, "first")[1]
        took_s = time.monotonic() - began
    return wait


def test_the_first_standby_checks_when_the_lease_has_ended_but_not_too_often(queue: Handle):
    # A holder renews its lease before it has less than 500 ms left.
    waits = [wait_of_the_first(queue, left) for left in (1400, 1000, 400, 100)]

    assert all(abs(wait - ms) <= 60 for wait, ms in zip(waits, (1410, 1250, 410, 110), strict=True)), waits


def test_standbys_keep_their_places_while_the_holder_of_an_unused_queue_rests(queue: Handle):
    def look_at(who: str) -> promote.Promotion:
        found: promote.Promotion = queue._ask(promote.promote(queue.settings, 200, who, rest_ms=20_000))
        return found

    for _ in range(2):
        look_at("holder")
    first, second, third, *again = [look_at(who) for who in ("first", "second", "third", "first", "second")]

    assert [found.part for found in (first, second, third)] == [Part.FIRST, Part.SECOND, Part.RESERVE]
    assert [found.part for found in again] == [Part.FIRST, Part.SECOND]
    assert min(found.wait_ms for found in (first, second, *again)) > 15_000, "nothing to do before the rest is over"
    assert vacancy(queue) is Part.NONE


def test_a_standby_keeps_its_place_by_looking(queue: Handle, clock: Clock):
    for name in ("holder", "first", "second"):
        look(queue, name)
    for _ in range(5):
        clock.pass_time(1.25)
        look(queue, "holder")
        assert look(queue, "first")[0] is Part.FIRST
        assert look(queue, "second")[0] is Part.SECOND


def test_the_second_follows_a_first_that_is_silent_and_a_reserve_the_second(queue: Handle, clock: Clock):
    for name in ("holder", "first", "second"):
        look(queue, name)
    clock.pass_time(3.55)
    look(queue, "holder")

    assert look(queue, "second")[0] is Part.FIRST
    assert look(queue, "reserve")[0] is Part.SECOND
    assert look(queue, "first")[0] is Part.RESERVE  # it comes back


def test_a_standby_that_takes_over_leaves_its_place_to_the_next(queue: Handle):
    for name in ("holder", "first", "second"):
        look(queue, name)
    queue.redis.delete(queue.keys.promoter)
    assert vacancy(queue) is Part.LEADER

    assert look(queue, "first")[0] is Part.LEADER
    assert vacancy(queue) is Part.NONE  # it is the second's
    assert look(queue, "second")[0] is Part.FIRST
    assert vacancy(queue) is Part.SECOND
    assert look(queue, "reserve")[0] is Part.SECOND


@pytest.mark.parametrize(
    ("names", "vacant", "heard"),
    [
        (["holder"], Part.LEADER, Part.LEADER),
        (["first"], Part.FIRST, Part.NONE),
        (["second"], Part.SECOND, Part.SECOND),
        (["first", "second"], Part.FIRST, Part.FIRST),
        (["first", "second", "holder"], Part.LEADER, Part.LEADER),
    ],
)
def test_a_promoter_that_stops_gracefully_leaves_its_part_to_others(
    queue: Handle, names: list[str], vacant: Part, heard: Part
):
    for each in ("holder", "first", "second", "reserve"):
        look(queue, each)
    queue._ask(heartbeat.leave(queue.settings, "w-2", "reserve"))
    assert vacancy(queue) is Part.NONE

    for name in names:
        queue._ask(heartbeat.leave(queue.settings, "w-1", name))

    assert vacancy(queue) is heard
    assert look(queue, "reserve")[0] is vacant


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_places_given_before_a_jump_of_the_clock_are_ignored(queue: Handle, clock: Clock, step_s: int):
    for name in ("holder", "first", "second", "third", "fourth"):
        look(queue, name)

    clock.pass_time(step_s)

    assert look(queue, "holder")[0] is Part.LEADER
    assert [look(queue, name)[0] for name in "ab"] == [Part.FIRST, Part.SECOND]
    assert vacancy(queue) is Part.NONE


def test_turns_from_before_the_clock_went_back_are_not_waited_for(queue: Handle, clock: Clock):
    for name in "habcd":
        look(queue, name)
    clock.pass_time(-3600)

    waits = [wait for part, wait in (look(queue, name) for name in "abcd") if part is Part.RESERVE]

    assert waits == [10_000, 20_000]


def test_turns_that_lie_too_far_ahead_are_not_believed(queue: Handle, clock: Clock):
    for name in ("holder", "first", "second"):
        look(queue, name)
    queue.redis.hset(queue.keys.standbys, "turn_ms", clock.now_ms + 30 * 86_400_000)

    assert look(queue, "reserve") == (Part.RESERVE, 10_000)


@pytest.mark.parametrize("damage", ["of another type", "no numbers"])
def test_damaged_places_are_taken_again(queue: Handle, damage: str):
    if damage == "no numbers":
        fields = {"first": "x", "first_until_ms": "x", "second": "y", "second_until_ms": "nan", "turn_ms": "-inf"}
        queue.redis.hset(queue.keys.standbys, mapping=fields)
    else:
        queue.redis.set(queue.keys.standbys, "another program's")
    assert look(queue, "holder")[0] is Part.LEADER
    assert vacancy(queue) is Part.FIRST
    queue._ask(heartbeat.leave(queue.settings, "w-1", "nobody"))

    assert [look(queue, name)[0] for name in "abc"] == [Part.FIRST, Part.SECOND, Part.RESERVE]


def test_a_process_can_stand_by_while_memory_is_full(make_queue: MakeQueue):
    queue = make_queue()
    look(queue, "holder")

    with full(queue.server):
        parts: list[Any] = [look(queue, name)[0] for name in "abc"]
        queue._ask(heartbeat.leave(queue.settings, "w-1", "a"))
        queue._ask(heartbeat.leave(queue.settings, "w-1", "b"))
        assert vacancy(queue) is Part.FIRST

    assert parts == [Part.FIRST, Part.SECOND, Part.RESERVE]


def test_the_list_of_standbys_disappears_with_the_last_one(queue: Handle):
    look(queue, "holder")
    assert not queue.redis.exists(queue.keys.standbys)
    look(queue, "first")

    assert 0 < queue.redis.pttl(queue.keys.standbys) <= 60_000
    queue._ask(heartbeat.leave(queue.settings, "w-1", "first"))
    assert not queue.redis.exists(queue.keys.standbys)


def test_a_promoter_of_an_older_release_is_stood_by_for_like_any(queue: Handle):
    queue.redis.set(queue.keys.promoter, "of an older release", px=2500)

    assert [look(queue, name)[0] for name in "ab"] == [Part.FIRST, Part.SECOND]
    left_ms(queue, 1)
    time.sleep(0.01)
    assert look(queue, "a")[0] is Part.LEADER
