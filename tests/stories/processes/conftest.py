"""Scenes: servers with real workers on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stories.processes.stage import MakeScene, scenes

# What a process costs and leaves behind is read where Linux shows it.
collect_ignore_glob = [] if Path("/proc/self/stat").exists() else ["test_*.py"]


@pytest.fixture
def make_scene() -> Iterator[MakeScene]:
    """Makes scenes for a test that needs the machine for itself."""
    with scenes() as make:
        yield make
