"""The architecture's diagrams match the tables in the code."""

from __future__ import annotations

from scripts.tools import diagrams
from tests.cases import for_each


@for_each(diagrams.drawings())
def test_a_diagram_matches_its_table(name: str) -> None:
    """`python -m scripts.tools.diagrams` draws them again."""
    assert diagrams.drawn_from(name) == diagrams.digest(diagrams.drawings()[name])
