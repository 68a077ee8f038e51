"""The handbook's crash matrix matches the results."""

from __future__ import annotations

from scripts.tools.crashes import matrix
from scripts.tools.crashes.scenes import SCENES
from scripts.tools.crashes.wire import VERBS


def test_the_handbook_shows_the_results():
    assert matrix.BLOCK.read() == matrix.table(matrix.known()), "run: scripts/crashes --handbook"


def test_every_verb_and_every_scene_has_results():
    found = matrix.known()

    assert set(found["between"]) == set(VERBS)
    assert all(set(found[column]) == {scene.name for scene in SCENES} for column in ("inside", "types", "memory"))
