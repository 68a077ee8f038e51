"""Scenes: servers with real workers on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.processes.scene import Scene
from tests.servers import Server

MakeScene = Callable[..., Scene]


@pytest.fixture
def make_scene() -> Iterator[MakeScene]:
    """Makes scenes from the settings of their queue and, by `server=`, the options of their server.

    After the test all processes must stop in order and leave nothing behind, and the queue must keep the laws.
    """
    made: list[Scene] = []

    def make(*, server: dict[str, object] | None = None, **settings: Any) -> Scene:
        made.append(Scene(Server(**(server or {})), settings))
        return made[-1]

    yield make
    errors = []
    for scene in made:
        try:
            scene.close()
        except AssertionError as error:
            errors.append(error)
    for error in errors:
        raise error


@pytest.fixture
def scene(make_scene: MakeScene) -> Scene:
    """One whose leases are short."""
    return make_scene(visibility_ms=2000)
