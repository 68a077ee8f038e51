"""The architecture's diagrams match the tables in the code."""

from __future__ import annotations

import pytest

from scripts.tools import diagrams


@pytest.mark.parametrize("name", diagrams.drawings())
def test_a_picture_was_drawn_from_the_table_as_it_is(name: str) -> None:
    """`python -m scripts.tools.diagrams` draws them again."""
    assert diagrams.source(name) == diagrams.drawings()[name]
