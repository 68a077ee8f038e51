"""Attributes that are computed at their first use."""

from __future__ import annotations

import os
import threading

import pytest

from schedq.model.cached_property import cached_property
from tests.doors import in_thread


class Lazy:
    """An object with a value that takes as long as the gate is closed."""

    def __init__(self, gate: threading.Event) -> None:
        self.begun = threading.Event()
        self.count = 0
        self._gate = gate

    @cached_property
    def value(self) -> object:
        """What it is."""
        self.count += 1
        self.begun.set()
        assert self._gate.wait(60)
        return object()


@pytest.fixture
def open_gate() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


def test_a_value_is_computed_once(open_gate: threading.Event):
    lazy = Lazy(open_gate)

    assert lazy.value is lazy.value
    assert lazy.count == 1
    assert Lazy.value.__doc__ == "What it is."


def test_threads_that_read_it_first_at_the_same_time_get_the_same_value():
    gate = threading.Event()
    lazy = Lazy(gate)
    both = [in_thread(lambda: lazy.value) for _ in range(2)]
    assert lazy.begun.wait(60)
    gate.set()

    assert both[0].result(60) is both[1].result(60)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_a_thread_computes_a_value_computes_its_own(open_gate: threading.Event):
    gate = threading.Event()
    slow, other = Lazy(gate), Lazy(open_gate)
    computing = in_thread(lambda: slow.value)
    assert slow.begun.wait(60)
    child = os.fork()
    if not child:
        code = 1
        threading.Timer(30, os._exit, [2]).start()
        try:
            code = 0 if other.value else 1
        finally:
            os._exit(code)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        gate.set()
        computing.result(60)
