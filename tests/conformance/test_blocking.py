"""Commands that wait: an idle worker's sleep (BZPOPMIN), and how guide workers take jobs (BLMOVE, BRPOPLPUSH)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.conformance.conftest import Blocked, MakeWire
from tests.conformance.wires import Wire
from tests.servers import Server
from tests.waiting import until


@dataclass(frozen=True, slots=True)
class Verb:
    """A command that blocks for an element, and one that adds it; {0} is the key, {1} the element."""

    waits: str
    pushes: str
    reply: str

    def waiting(self, key: str, seconds: float = 0) -> list[str]:
        """The blocking command; 0 seconds mean forever."""
        return [*self.waits.format(key).split(), str(seconds)]

    def pushing(self, key: str, element: str) -> list[str]:
        """The command that adds an element."""
        return self.pushes.format(key, element).split()

    def taken(self, key: str, element: str) -> str | list[str]:
        """The reply with the element."""
        words = self.reply.format(key, element).split()
        return words if len(words) > 1 else words[0]


VERBS = {
    "BZPOPMIN": Verb("BZPOPMIN {0}", "ZADD {0} 0 {1}", "{0} {1} 0"),
    "BLMOVE": Verb("BLMOVE {0} {0}:to RIGHT LEFT", "LPUSH {0} {1}", "{1}"),
    "BRPOPLPUSH": Verb("BRPOPLPUSH {0} {0}:to", "LPUSH {0} {1}", "{1}"),
}


@pytest.fixture(params=VERBS)
def verb(request: pytest.FixtureRequest) -> Verb:
    """Each in turn."""
    return VERBS[request.param]


def test_waiters_are_served_in_the_order_they_came_one_element_each(
    wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb
):
    waiters = []
    for count in range(1, 4):
        waiters.append(make_wire())
        waiters[-1].say(*verb.waiting(key))
        blocked(count)

    for waiting, (waiter, element) in zip((2, 1, 0), zip(waiters, "abc", strict=True), strict=True):
        wire.ask(*verb.pushing(key, element))

        assert waiter.hear() == verb.taken(key, element)
        blocked(waiting)


def test_a_waiter_goes_to_the_end_of_the_line_each_time(
    wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb
):
    first, second = make_wire(), make_wire()
    for count, waiter in enumerate((first, second), 1):
        waiter.say(*verb.waiting(key))
        blocked(count)
    wire.ask(*verb.pushing(key, "a"))
    first.hear()
    first.say(*verb.waiting(key))
    blocked(2)

    wire.ask(*verb.pushing(key, "b"))

    assert second.hear() == verb.taken(key, "b")
    assert not first.hears(0)


def test_a_wait_that_has_ended_takes_nothing(wire: Wire, make_wire: MakeWire, key: str, verb: Verb):
    waiter = make_wire()
    assert waiter.ask(*verb.waiting(key, 0.01)) is None

    assert wire.ask(*verb.pushing(key, "a")) == 1

    assert wire.ask("EXISTS", key) == 1
    assert not waiter.hears(0)


def test_a_closed_connection_leaves_the_line_and_takes_nothing(
    wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str, verb: Verb
):
    gone, stays = make_wire(), make_wire()
    for count, waiter in enumerate((gone, stays), 1):
        waiter.say(*verb.waiting(key))
        blocked(count)
    gone.close()
    blocked(1)

    wire.ask(*verb.pushing(key, "a"))

    assert stays.hear() == verb.taken(key, "a")


def test_an_entry_that_a_script_adds_and_removes_wakes_no_waiter(
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

    assert waiter.hear() == verb.taken(key, "a")


def test_a_waiter_for_several_keys_is_served_by_any_and_once(
    wire: Wire, make_wire: MakeWire, blocked: Blocked, key: str
):
    """A worker for several queues waits for all of their wake keys with one command."""
    keys = [f"{key}:{n}" for n in range(3)]
    waiter = make_wire()
    waiter.say("BZPOPMIN", *keys, 0)
    blocked(1)

    wire.ask("ZADD", keys[2], 0, "a")
    wire.ask("ZADD", keys[0], 0, "b")

    assert waiter.hear() == [keys[2], "a", "0"]
    assert wire.ask("EXISTS", keys[0]) == 1
    assert not waiter.hears(0)


def test_a_primary_that_becomes_a_replica_lets_its_waiters_go(make_wire: MakeWire, key: str):
    """They get an error, so they can look for the new primary."""
    with Server() as demoted:
        wire, *waiters = (make_wire(demoted) for _ in range(1 + len(VERBS)))
        for number, (waiter, verb) in enumerate(zip(waiters, VERBS.values(), strict=True)):
            waiter.say(*verb.waiting(f"{key}:{number}"))
        until(lambda: f"blocked_clients:{len(waiters)}\r\n" in wire.ask("INFO", "clients"))

        wire.ask("REPLICAOF", "127.0.0.1", 1)

        assert all(str(waiter.hear()).startswith("UNBLOCKED") for waiter in waiters)
