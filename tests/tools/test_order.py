"""The order in which the suite's processes take the files."""

from __future__ import annotations

import tomllib

from tests.conftest import SECONDS


def test_each_file_whose_seconds_are_known_exists():
    known = tomllib.loads(SECONDS.read_text())

    assert [name for name in known if not (SECONDS.parent / name).is_file()] == []
