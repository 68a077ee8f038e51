"""Scenes: servers with real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stories.processes.stage import MakeScene, scenes

# CPU time and leftovers of processes are read from /proc, which needs Linux.
collect_ignore_glob = [] if Path("/proc/self/stat").exists() else ["test_*.py"]


@pytest.fixture
def make_scene() -> Iterator[MakeScene]:
    """Creates scenes for a test that needs the machine to itself."""
    with scenes() as make:
        yield make
