"""README's crash matrix is what the tests find."""

from __future__ import annotations

from tests.crashes import matrix
from tests.crashes.scenes import SCENES
from tests.crashes.wire import VERBS


def test_readme_says_what_was_found():
    assert matrix.written() == matrix.table(matrix.known()), "run: scripts/crashes --readme"


def test_every_verb_and_every_scene_has_been_looked_at():
    found = matrix.known()

    assert set(found["between"]) == set(VERBS)
    assert all(set(found[column]) == {scene.name for scene in SCENES} for column in ("inside", "types", "memory"))
