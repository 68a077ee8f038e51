"""On which event loop workers and promoters run."""

from __future__ import annotations

import asyncio
import sys
import types

import pytest

from schedq.cli import lasting


def kind_of_loop() -> list[type]:
    found: list[type] = []

    async def work() -> None:
        found.append(type(asyncio.get_running_loop()))

    with asyncio.Runner(loop_factory=lasting._loop_factory()) as runner:
        runner.run(work())
    return found


def test_they_run_on_uvloop_where_it_is_installed(monkeypatch: pytest.MonkeyPatch):
    class Loop(asyncio.SelectorEventLoop):
        """Stands for uvloop's."""

    monkeypatch.setitem(sys.modules, "uvloop", types.SimpleNamespace(new_event_loop=Loop))

    assert kind_of_loop() == [Loop]


def test_without_uvloop_they_run_on_asyncios_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert lasting._loop_factory() is None
