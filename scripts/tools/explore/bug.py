"""A bug that is injected into a script."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch

from schedq.transitions import scripts


@dataclass(frozen=True)
class Bug:
    """A bug to inject.

    Attributes:
        name: the wrong behavior.
        script: the transition; or "module.function" of `schedq.transitions`, for a bug in Python.
        old: the shipped code (of a script, without indentation and comments).
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
    module, _, function = bug.script.rpartition(".")
    if module:
        with _broken_function(importlib.import_module(f"schedq.transitions.{module}"), function, bug):
            yield
        return
    script, load = changed(bug.script, bug.old, bug.new), scripts.load
    with patch.object(scripts, "load", lambda name: script if name == bug.script else load(name)):
        yield


@contextmanager
def _broken_function(module: ModuleType, name: str, bug: Bug) -> Iterator[None]:
    source, found = inspect.getsource(getattr(module, name)), dict[str, Any]()
    if bug.old not in source:
        raise LookupError(f"{bug.script} no longer contains {bug.old!r}; update the bug")
    exec(source.replace(bug.old, bug.new), vars(module), found)
    with patch.object(module, name, found[name]):
        yield
