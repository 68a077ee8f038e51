"""What workers and promoters run on: the event loop, and the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import sys
import types
from collections.abc import Iterator

import pytest

from schedq.cli import daemon


def kind_of_loop() -> list[type]:
    found: list[type] = []

    async def work() -> None:
        found.append(type(asyncio.get_running_loop()))

    with asyncio.Runner(loop_factory=daemon._loop_factory()) as runner:
        runner.run(work())
    return found


def test_commands_run_on_uvloop_where_it_is_installed(monkeypatch: pytest.MonkeyPatch):
    class Loop(asyncio.SelectorEventLoop):
        """A replacement of uvloop's."""

    monkeypatch.setitem(sys.modules, "uvloop", types.SimpleNamespace(new_event_loop=Loop))

    assert kind_of_loop() == [Loop]


def test_without_uvloop_they_run_on_asyncios_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert daemon._loop_factory() is None


# -- the garbage collector


@pytest.fixture
def collector() -> Iterator[None]:
    """Restores the settings of the garbage collector."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("collector")
def test_objects_loaded_before_the_work_begins_are_not_traversed_again():
    gc.set_threshold(700, 9, 8)
    frozen, loaded = gc.get_freeze_count(), [[n] for n in range(1000)]

    daemon._tune_garbage_collector()

    assert gc.get_freeze_count() - frozen >= len(loaded)
    assert gc.get_threshold() == (10_000, 9, 8)


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("first", [0, 50_000])
def test_an_application_that_wants_less_of_the_collector_gets_it(first: int):
    gc.set_threshold(first, 9, 8)

    daemon._tune_garbage_collector()

    assert gc.get_threshold() == (first, 9, 8)
