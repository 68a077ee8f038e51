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


def changed(name: str, old: str, new: str) -> scripts.Script:
    """A script in which `old`, code without indentation and comments, is replaced.

    Raises:
        LookupError: the script does not contain it.
    """
    source, build = scripts.load(name).source, scripts.header(name).with_rare_keys
    if build(old) not in source:
        raise LookupError(f"{name}.lua no longer contains {old!r}; update the bug")
    return scripts.script(name, source.replace(build(old), build(new)))


@contextmanager
def broken(bug: Bug) -> Iterator[None]:
    """The engine has this bug while the context is open."""
    script, load = changed(bug.script, bug.old, bug.new), scripts.load
    with patch.object(scripts, "load", lambda name: script if name == bug.script else load(name)):
        yield
