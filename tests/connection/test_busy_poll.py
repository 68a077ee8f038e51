"""When a blocking caller looks for its reply all the time, and when it sleeps: by an injected clock."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator

import pytest

from schedq.connection import codec
from schedq.connection.codec import BusyPoll


class Watch:
    """A clock that goes on by some microseconds whenever it is read, and by as many as a test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 5e-6
        return self.now


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(codec, "monotonic", watch)
    monkeypatch.setattr(codec, "_processors", lambda: 2)
    return watch


@pytest.fixture
def wire() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def looks(watch: Watch, wire: tuple[socket.socket, socket.socket]) -> Callable[[], int]:
    """Waits for a reply; answers how many times the socket was looked at."""
    poll = BusyPoll(wire[0])
    real = poll._look
    assert real is not None
    count = 0

    def look(timeout: int) -> list[object]:
        nonlocal count
        count += 1
        return real(timeout)

    poll._look = look

    def wait() -> int:
        nonlocal count
        count = 0
        poll.wait()
        return count

    return wait


def test_who_asks_in_a_loop_looks_until_the_reply_is_there(looks, watch, wire):
    wire[1].send(b"x")
    assert looks() == 0  # nobody knows yet that it is a loop

    assert looks() == 1
    assert looks() == 1


def test_who_asks_now_and_then_sleeps_at_once(looks, watch, wire):
    wire[1].send(b"x")
    for _ in range(5):
        assert looks() == 0
        watch.now += 0.002


def test_a_reply_that_takes_long_is_looked_for_a_moment_only_and_then_not_for_a_while(looks, watch):
    looks()

    assert [10 < looks() <= 70 for _ in range(2)] == [True, True]
    assert [looks() for _ in range(codec._REST)] == [0] * codec._REST
    assert looks() > 0


def test_one_late_reply_among_many_changes_nothing(looks, wire):
    looks()
    for _ in range(3):
        wire[1].send(b"x")
        assert [looks() for _ in range(2 * codec._MISS)] == [1] * (2 * codec._MISS)
        wire[0].recv(1)

        assert looks() > 1


def test_one_thread_of_a_process_looks_at_a_time(looks, watch):
    looks()
    with codec._turn:
        assert looks() == 0
    assert looks() > 0


@pytest.mark.parametrize("instead", [None, type("GreenPoll", (), {})])
def test_where_green_threads_stand_in_for_poll_nobody_looks(instead, watch, wire, monkeypatch):
    if instead is None:
        monkeypatch.delattr(select, "poll")
    else:
        monkeypatch.setattr(select, "poll", instead)

    assert BusyPoll(wire[0])._look is None


def test_on_a_single_processor_nobody_looks(watch, wire, monkeypatch):
    monkeypatch.setattr(codec, "_processors", lambda: 1)

    assert BusyPoll(wire[0])._look is None
