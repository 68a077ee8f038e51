"""Runs scenes: one at a time, or those of a module concurrently, because they mostly wait."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.servers import Server
from tests.stories.processes.scene import Scene

MakeScene = Callable[..., Scene]
Act = Callable[..., None]
_AT_ONCE: Final = 8
"""Tests run concurrently: they mostly wait, but more of them would only wait for each other."""


@contextmanager
def scenes(breaks: Sequence[str] = ()) -> Iterator[MakeScene]:
    """Creates scenes from their queue's settings and, by `server=`, their server's options.

    At the end all processes must stop gracefully and leave nothing behind, and the queues must obey all laws except for
    those that `breaks` names.
    """
    made: list[Scene] = []

    def make(*, server: dict[str, Any] | None = None, **settings: Any) -> Scene:
        made.append(Scene(Server(**(server or {})), settings))
        return made[-1]

    broken: dict[str, list[str]] = {}
    errors = []
    try:
        yield make
    finally:
        for scene in made:
            try:
                broken |= scene.close()
            except AssertionError as error:
                errors.append(str(error))
    assert not errors, "\n".join(errors)
    assert broken.keys() == set(breaks), broken


class Together:
    """Decorates the tests of a module; the first one starts all selected ones, each in a thread.

    A test requests `make_scene`, or `scene`, whose leases outlast any pause of the machine. The decorator's arguments
    are the laws that the test breaks on purpose.
    """

    def __init__(self) -> None:
        self._acts: dict[str, Callable[[], None]] = {}
        self._under_way: dict[str, Future[None]] = {}

    def __call__(self, *breaks: str) -> Callable[[Act], Act]:
        def decorate(act: Act) -> Act:
            self._acts[act.__name__] = lambda: play(act, breaks)

            def test(request: pytest.FixtureRequest) -> None:
                if not self._under_way:
                    self._start(request)
                self._under_way[act.__name__].result()

            test.__name__ = act.__name__
            return test

        return decorate

    def _start(self, request: pytest.FixtureRequest) -> None:
        chosen = [item.name for item in request.session.items if item.path == request.node.path]
        pool = ThreadPoolExecutor(max_workers=_AT_ONCE)
        self._under_way = {name: pool.submit(self._acts[name]) for name in chosen if name in self._acts}
        pool.shutdown(wait=False)


def play(act: Act, breaks: Sequence[str]) -> None:
    """Run one test with its own scenes."""
    with scenes(breaks) as make_scene:
        if "scene" in inspect.signature(act).parameters:
            act(make_scene(visibility_ms=60_000))
        else:
            act(make_scene)
