"""When a blocking caller polls for its reply and when it sleeps, with an injected clock."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator

import pytest

from schedq.connection import codec
from schedq.connection.codec import BusyPoll


class Watch:
    """A clock that advances by some microseconds at each reading, and by as many as a test adds."""

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
    """Waits for a reply and returns how often the socket was polled."""
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


def test_a_caller_in_a_loop_polls_until_the_reply_arrives(looks, watch, wire):
    wire[1].send(b"x")
    assert looks() == 0  # the first request does not show yet that it is a loop

    assert looks() == 1
    assert looks() == 1


def test_an_occasional_caller_sleeps_without_polling(looks, watch, wire):
    wire[1].send(b"x")
    for _ in range(5):
        assert looks() == 0
        watch.now += 0.002


def test_polling_for_a_slow_reply_stops_soon_and_pauses_for_a_while(looks, watch):
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


def test_only_one_thread_of_a_process_polls_at_a_time(looks, watch):
    looks()
    with codec._turn:
        assert looks() == 0
    assert looks() > 0


@pytest.mark.parametrize("instead", [None, type("GreenPoll", (), {})])
def test_with_green_threads_no_caller_polls(instead, watch, wire, monkeypatch):
    if instead is None:
        monkeypatch.delattr(select, "poll")
    else:
        monkeypatch.setattr(select, "poll", instead)

    assert BusyPoll(wire[0])._look is None


def test_on_a_single_cpu_no_caller_polls(watch, wire, monkeypatch):
    monkeypatch.setattr(codec, "_processors", lambda: 1)

    assert BusyPoll(wire[0])._look is None
