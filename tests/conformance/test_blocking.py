"""Commands that wait: an idle worker's sleep, and how workers of other programs take jobs.

They share one meaning. `words` has {} for the key, and ends before the seconds it may take, 0 for ever.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance.conftest import Blocked, MakeWire
from tests.conformance.wires import Wire
from tests.servers import Server
from tests.worker.crew import until


@dataclass(frozen=True, slots=True)
class Verb:
    """A command that waits for something to take."""

    words: str
    push: str = "RPUSH {} {}"

    def waiting(self, keys: str | list[str], seconds: float = 0) -> list[str]:
        """The command."""
        keys = [keys] if isinstance(keys, str) else keys
        words = self.words.split()
        at = words.index("{}")
        target = f"{keys[0]}:to"
        return [*words[:at], *keys, *(word.replace("{to}", target) for word in words[at + 1 :]), str(seconds)]

    def pushing(self, key: str, element: str) -> list[str]:
        """A command that adds something to take."""
        return self.push.format(key, element).split()

    def taken(self, wire: Wire, key: str, element: str) -> Any:
        """The reply that brings it."""
        if self.words.startswith("BZ"):
            return [key, element, wire.number("0")]
        return element if "{to}" in self.words else [key, element]


VERBS = {
    "BLPOP": Verb("BLPOP {}"),
    "BRPOP": Verb("BRPOP {}"),
    "BZPOPMIN": Verb("BZPOPMIN {}", push="ZADD {} 0 {}"),
    "BLMOVE": Verb("BLMOVE {} {to} RIGHT LEFT"),
    "BRPOPLPUSH": Verb("BRPOPLPUSH {} {to}"),
}
SEVERAL_KEYS = ["BLPOP", "BRPOP", "BZPOPMIN"]


@pytest.fixture(params=VERBS)
def verb(request: pytest.FixtureRequest) -> Verb:
    """Each in turn."""
    return VERBS[request.param]


@pytest.fixture(params=SEVERAL_KEYS)
def verb_of_keys(request: pytest.FixtureRequest) -> Verb:
    """Those that take several keys."""
    return VERBS[request.param]


def test_what_is_there_is_served_at_once(wire: Wire, key: str, verb: Verb):
    wire.ask(*verb.pushing(key, "a"))

    assert wire.ask(*verb.waiting(key)) == verb.taken(wire, key, "a")
    assert wire.ask("EXISTS", key) == 0


def test_what_comes_later_is_served_then(wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb):
    waiter = make_wire()
    waiter.say(*verb.waiting(key))
    blocked(1)

    assert wire.ask(*verb.pushing(key, "a")) == 1

    assert waiter.hear() == verb.taken(wire, key, "a")
    assert wire.ask("EXISTS", key) == 0


def test_waiters_are_served_in_the_order_they_came(
    wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb
):
    waiters = []
    for count in range(1, 4):
        waiters.append(make_wire())
        waiters[-1].say(*verb.waiting(key))
        blocked(count)

    for waiter, element in zip(waiters, "abc", strict=True):
        wire.ask(*verb.pushing(key, element))
        assert waiter.hear() == verb.taken(wire, key, element)


def test_one_element_wakes_one_waiter(wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb):
    waiters = [make_wire(), make_wire()]
    for count, waiter in enumerate(waiters, 1):
        waiter.say(*verb.waiting(key))
        blocked(count)

    wire.ask(*verb.pushing(key, "a"))

    waiters[0].hear()
    blocked(1)
    assert not waiters[1].hears(0)


def test_a_waiter_goes_to_the_end_of_the_line_each_time(
    wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb
):
    first, second = make_wire(), make_wire()
    first.say(*verb.waiting(key))
    blocked(1)
    second.say(*verb.waiting(key))
    blocked(2)
    wire.ask(*verb.pushing(key, "a"))
    first.hear()
    first.say(*verb.waiting(key))
    blocked(2)

    wire.ask(*verb.pushing(key, "b"))

    assert second.hear() == verb.taken(wire, key, "b")
    assert not first.hears(0)


@pytest.mark.parametrize("seconds", [0.01, 0.25])
def test_the_wait_ends_with_null_not_before_its_time(wire: Wire, key: str, verb: Verb, seconds: float):
    began = time.monotonic()

    assert wire.ask(*verb.waiting(key, seconds)) is None

    # The server looks at its own clock, in whole milliseconds.
    assert time.monotonic() - began >= seconds - 0.002


def test_a_wait_that_has_ended_takes_nothing(wire: Wire, make_wire: MakeWire, key: str, verb: Verb):
    waiter = make_wire()
    assert waiter.ask(*verb.waiting(key, 0.01)) is None

    assert wire.ask(*verb.pushing(key, "a")) == 1

    assert wire.ask("EXISTS", key) == 1
    assert not waiter.hears(0)


def test_0_seconds_are_for_ever(wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb):
    waiter = make_wire()
    waiter.say(*verb.waiting(key, 0))

    assert not waiter.hears(0.2)

    wire.ask(*verb.pushing(key, "a"))
    assert waiter.hear() == verb.taken(wire, key, "a")


def test_a_wait_of_less_than_no_time_is_refused(wire: Wire, key: str, verb: Verb):
    assert wire.error(*verb.waiting(key, -1)).startswith("ERR timeout is negative")


def test_a_closed_connection_leaves_the_line(wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb):
    gone, stays = make_wire(), make_wire()
    gone.say(*verb.waiting(key))
    blocked(1)
    stays.say(*verb.waiting(key))
    blocked(2)
    gone.close()
    blocked(1)

    wire.ask(*verb.pushing(key, "a"))

    assert stays.hear() == verb.taken(wire, key, "a")


def test_nothing_is_lost_when_the_only_waiter_has_closed(
    wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb
):
    gone = make_wire()
    gone.say(*verb.waiting(key))
    blocked(1)
    gone.close()
    blocked(0)

    assert wire.ask(*verb.pushing(key, "a")) == 1

    assert wire.ask(*verb.waiting(key, 1)) == verb.taken(wire, key, "a")


def test_the_first_key_that_holds_something_is_served(wire: Wire, key: str, verb_of_keys: Verb):
    keys = [f"{key}:{n}" for n in range(3)]
    for name in (keys[2], keys[1]):
        wire.ask(*verb_of_keys.pushing(name, "a"))

    assert wire.ask(*verb_of_keys.waiting(keys)) == verb_of_keys.taken(wire, keys[1], "a")
    assert wire.ask(*verb_of_keys.waiting(keys)) == verb_of_keys.taken(wire, keys[2], "a")


def test_a_waiter_for_several_keys_is_served_by_any_and_once(
    wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb_of_keys: Verb
):
    keys = [f"{key}:{n}" for n in range(3)]
    waiter = make_wire()
    waiter.say(*verb_of_keys.waiting(keys))
    blocked(1)

    wire.ask(*verb_of_keys.pushing(keys[2], "a"))
    assert wire.ask(*verb_of_keys.pushing(keys[0], "b")) == 1

    assert waiter.hear() == verb_of_keys.taken(wire, keys[2], "a")
    assert wire.ask("EXISTS", keys[0]) == 1
    assert not waiter.hears(0)


@pytest.mark.xfail(strict=False, reason="no script of ours calls them; before Valkey 8, a script may not")
def test_in_a_script_nothing_waits(wire: Wire, key: str, verb: Verb):
    script = "return redis.call(unpack(ARGV)) or 'none'"

    assert wire.ask("EVAL", script, 0, *verb.waiting(key)) == "none"


def test_what_a_script_adds_and_takes_away_wakes_nobody(
    wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb
):
    waiter = make_wire()
    waiter.say(*verb.waiting(key))
    blocked(1)

    wire.ask("EVAL", "redis.call(unpack(ARGV)) redis.call('DEL', KEYS[1])", 1, key, *verb.pushing(key, "a"))

    blocked(1)
    assert not waiter.hears(0)


def test_a_waiter_is_served_after_the_script_has_ended(
    wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb
):
    waiter = make_wire()
    waiter.say(*verb.waiting(key))
    blocked(1)

    script = "redis.call(unpack(ARGV)) return redis.call('EXISTS', KEYS[1])"
    assert wire.ask("EVAL", script, 1, key, *verb.pushing(key, "a")) == 1

    assert waiter.hear() == verb.taken(wire, key, "a")


def test_a_key_of_another_type_does_not_disturb_a_waiter(
    wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb
):
    waiter = make_wire()
    waiter.say(*verb.waiting(key))
    blocked(1)
    wire.ask("SADD", key, "x")
    wire.ask("DEL", key)

    wire.ask(*verb.pushing(key, "a"))

    assert waiter.hear() == verb.taken(wire, key, "a")


def test_bzpopmin_takes_the_lowest_score(wire: Wire, key: str):
    wire.ask("ZADD", key, 2, "b", 1, "c", 1, "d")

    taken = [wire.ask("BZPOPMIN", key, 0)[1:] for _ in range(3)]

    assert taken == [["c", wire.number("1")], ["d", wire.number("1")], ["b", wire.number("2")]]


@pytest.mark.parametrize("make", ["SET {} x", "HSET {} field x", "RPUSH {} x", "SADD {} x"])
def test_bzpopmin_refuses_what_is_no_sorted_set(wire: Wire, key: str, make: str):
    wire.ask(*make.format(key).split())

    assert wire.error("BZPOPMIN", key, 0).startswith("WRONGTYPE")


def test_a_primary_that_becomes_a_replica_lets_its_waiters_go(make_wire: MakeWire, key: str, verb: Verb):
    """They are told so, and may look for the new primary."""
    with Server() as demoted:
        wire, waiter = make_wire(demoted), make_wire(demoted)
        waiter.say(*verb.waiting(key))
        until(lambda: "blocked_clients:1\r\n" in wire.ask("INFO", "clients"), within=20)

        wire.ask("REPLICAOF", "127.0.0.1", 1)

        assert str(waiter.hear()).startswith("UNBLOCKED")
