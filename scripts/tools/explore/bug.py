"""A bug that is injected into a script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from schedq.transitions import scripts


@dataclass(frozen=True)
class Bug:
    """A bug to inject.

    Attributes:
        name: the wrong behavior.
        script: the transition.
        old: the shipped code (without indentation and comments).
        new: the code that replaces it.
        scenario: the scenario that reveals it, which is searched first.
    """

    name: str
    script: str
    old: str
    new: str
    scenario: str


@contextmanager
def broken(bug: Bug) -> Iterator[None]:
    """The engine has this bug while the context is open."""
    whole = scripts.load(bug.script).source
    if bug.old not in whole:
        raise LookupError(f"{bug.script}.lua no longer contains {bug.old!r}; update the bug {bug.name!r}")
    script = scripts.script(bug.script, whole.replace(bug.old, bug.new))
    load = scripts.load
    with patch.object(scripts, "load", lambda name: script if name == bug.script else load(name)):
        yield
