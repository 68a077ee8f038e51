"""Scenes: servers with real workers on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes.scene import Scene
from tests.servers import Server

# What a process costs and leaves behind is read where Linux shows it.
collect_ignore_glob = [] if Path("/proc/self/stat").exists() else ["test_*.py"]

MakeScene = Callable[..., Scene]


@pytest.fixture
def make_scene(request: pytest.FixtureRequest) -> Iterator[MakeScene]:
    """Makes scenes from the settings of their queue and, by `server=`, the options of their server.

    After the test all processes must stop in order and leave nothing behind, and the queues must keep the laws but for
    those that the test is marked to break.
    """
    made: list[Scene] = []

    def make(*, server: dict[str, Any] | None = None, **settings: Any) -> Scene:
        made.append(Scene(Server(**(server or {})), settings))
        return made[-1]

    yield make
    broken: dict[str, list[str]] = {}
    errors = []
    for scene in made:
        try:
            broken |= scene.close()
        except AssertionError as error:
            errors.append(str(error))
    assert not errors, "\n".join(errors)
    allowed = {law for mark in request.node.iter_markers("breaks") for law in mark.args}
    assert broken.keys() == allowed, broken


@pytest.fixture
def scene(make_scene: MakeScene) -> Scene:
    """One whose leases are short."""
    return make_scene(visibility_ms=2000)
