"""The fixtures of the tests of processes."""

from __future__ import annotations

from tests.stories.processes.conftest import collect_ignore_glob, make_scene

__all__ = ["collect_ignore_glob", "make_scene"]
