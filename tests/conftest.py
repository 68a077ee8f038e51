"""Fixtures and options shared by all tests."""

from __future__ import annotations

import asyncio.constants
import gc
import signal
import tomllib
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import _pytest.fixtures
import pytest
from hypothesis import settings as hypothesis_settings

from schedq import AsyncQueue, Queue
from tests.doors import Clock, Handle, Loop
from tests.roles import ROLE
from tests.servers import Server, ServerError, described
from tests.state import LAWS
from tests.stories.bad_input.tally import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]

MakeQueue = Callable[..., Handle]

hypothesis_settings.register_profile("schedq", derandomize=True, deadline=None, database=None)
hypothesis_settings.load_profile("schedq")


# Workers in tests run in asyncio's debug mode. It notes a stack with each callback, which took a seventh of the tests'
# processor time; one frame shows where a callback comes from.
asyncio.constants.DEBUG_STACK_DEPTH = 1  # type: ignore[misc]  # typed as final
# Futures, which are written in C, take this default for theirs.
traceback.extract_stack.__defaults__ = (None, 1)

# pytest describes the fixture `request` again for each fixture of each test, by inspecting a function without
# arguments, which took a twelfth of the time of a short test.
_fixtures: Any = _pytest.fixtures
_names_of = _fixtures.getfuncargnames
_REQUEST = "RequestFixtureDef.__init__.<locals>.<lambda>"


def _names_unless_request(function: Any, **rest: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = () if getattr(function, "__qualname__", "") == _REQUEST else _names_of(function, **rest)
    return found


_fixtures.getfuncargnames = _names_unless_request

gc.disable()  # collecting tests creates no garbage, and every process of the suite collects all tests


def pytest_collection_finish() -> None:
    # Some tests run the garbage collector. The thousands of collected tests are not garbage, and scanning them each
    # time took a third of the suite's time. There is little else, so nothing is collected before.
    gc.freeze()
    gc.enable()


SECONDS = Path(__file__).with_name("seconds.toml")
"""How long the slow files take."""

STARTED_BY = {
    "processes": {"make_scene", "scene"},
    "topologies": {"lasting_pair", "mortal_pair"},
    "browser": {"browser"},
}
"""Marker → fixtures that start such things. The quick part of the suite leaves out tests with these markers."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by what its fixtures start; tests that start something themselves are marked in their file."""
    for marker, fixtures in STARTED_BY.items():
        if not fixtures.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(marker)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files, the longest first, as the suite's processes take whole files in this order."""
    known = tomllib.loads(SECONDS.read_text())
    seconds = {SECONDS.parent / name: float(long) for name, long in known.items()}
    count = Counter(item.path for item in items)
    items.sort(key=lambda item: seconds.get(item.path, count[item.path] / 20), reverse=True)


def pytest_sessionstart() -> None:
    """Fail once and immediately if there is no server, instead of in thousands of tests."""
    try:
        described()
    except ServerError as error:
        pytest.exit(str(error), returncode=1)


def pytest_report_header() -> str:
    """The server that the tests run on."""
    return f"server: {described()}"


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell script's background jobs ignore Ctrl-C, and so would the processes that tests start and interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "breaks(*laws, because): leaves laws of tests/state.py broken, on purpose")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server for all tests; each test uses its own queues."""
    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    """The event loop of the asyncio client's queues."""
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def long_goodbyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that stops has a minute for deregistering, instead of a second."""
    monkeypatch.setattr("schedq.worker.served._DEREGISTER_S", 60)
    monkeypatch.setattr("schedq.worker.worker._LEAVE_S", 60)


@pytest.fixture
def clock() -> Clock:
    """A clock that a test advances; pass it to `make_queue(clock=clock)`."""
    return Clock()


@pytest.fixture(params=["blocking", "asyncio"])
def door(request: pytest.FixtureRequest) -> str:
    """The client that this test uses; a test that requests it runs once with each."""
    found: str = request.param
    return found


@pytest.fixture
def make_queue(door: str, server: Server, loop: Loop, request: pytest.FixtureRequest) -> Iterator[MakeQueue]:
    """Creates queues, with a new name unless one is given; after the test each must obey the laws."""
    made: list[Handle] = []

    def make(name: str | None = None, *, at: Server = server, url: str | None = None, **settings: Any) -> Handle:
        kind = Queue if door == "blocking" else AsyncQueue
        name = name or f"q-{uuid.uuid4().hex[:12]}"
        queue, beyond = kind(name, redis=url or at.unix_url, **settings), None
        if ROLE:
            beyond = kind(name, redis=at.own_url, **settings)
            beyond.registry = queue.registry
            object.__setattr__(beyond.settings, "gates", queue.settings.gates)
        made.append(Handle(queue, at, loop, beyond))
        return made[-1]

    yield make
    broken: dict[str, list[str]] = {}
    try:
        for handle in made:
            if handle.server.is_running:
                state = handle.state()
                for law, complaints in state.broken_laws().items():
                    broken.setdefault(law, []).extend(complaints)
                prefix = handle.keys.prefix
                handle.delete([prefix + name for name in state.keys])
    finally:
        loop.check(made)
    marks = list(request.node.iter_markers("breaks"))
    allowed = {law for mark in marks for law in mark.args}
    assert allowed <= set(LAWS), f"no such law: {allowed - set(LAWS)}"
    assert all(mark.kwargs.get("because") for mark in marks), "say why the law is broken"
    assert not {law: found for law, found in broken.items() if law not in allowed}
    assert allowed <= broken.keys(), f"marked as broken, yet kept: {allowed - broken.keys()}"


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    """A queue with default settings."""
    return make_queue()
