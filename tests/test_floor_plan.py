"""Imports only go down: the floors of the house, and who may talk to Redis."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import schedq

ROOT = Path(schedq.__file__).parent
FLOORS = {
    "facts": {
        "errors",
        "durability",
        "lifecycle",
        "keys",
        "backoff",
        "ids",
        "instants",
        "clocks",
        "crontab",
        "callables",
    },
    "words": {"settings", "payload", "job", "schedule", "lua", "escaping", "logger"},
    "decisions": {"task", "handle", "registry", "outcome", "running", "slots", "observer", "logs"},
    "requests": {"operations"},
    "doors": {"application", "connection", "embedded", "queue", "aio", "schedules", "inspector", "ainspector"},
    "roles": {"spans", "tracing", "link", "promoter", "scheduler", "reclaimer", "worker", "service", "fleet"},
    "people": {"cli", "doctor", "testing", "metrics", "monitor", "dashboard", "__main__", "schedq"},
}
HEIGHT = {room: height for height, rooms in enumerate(FLOORS.values()) for room in rooms}
LONG: dict[str, str] = {}
"""Modules of more than 500 lines, and why each of them is one idea."""
DRAWERS = {"utils", "util", "common", "helpers", "helper", "manager", "base", "misc"}


def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("schedq", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def room(module: str) -> str:
    """The part of the house that a module is in: `schedq.worker.pump` is in `worker`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def imports(module: str) -> Iterator[str]:
    """The modules that a module imports, anywhere in it; names it imports are followed to where they are modules."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively, which hides where from"
            assert node.module is not None
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module


def own_imports(module: str) -> set[str]:
    return {name for name in imports(module) if name.split(".")[0] == "schedq" and name != module}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_room_is_on_the_plan(module: str):
    assert room(module) in HEIGHT, f"{room(module)} is on no floor; add it to FLOORS and DESIGN"
    assert not DRAWERS & set(module.split(".")), "a drawer is no room"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_only_go_down(module: str):
    above = {name for name in own_imports(module) if HEIGHT[room(name)] > HEIGHT[room(module)]}

    assert not above


def test_no_import_goes_round_in_a_circle():
    graph = {module: own_imports(module) for module in MODULES}
    done: set[str] = set()

    def walk(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join([*path[path.index(module) :], module])
        if module not in done:
            for name in sorted(graph[module]):
                if not is_own_package(name, module):
                    walk(name, (*path, module))
            done.add(module)

    for module in sorted(graph):
        walk(module, ())


def is_own_package(name: str, module: str) -> bool:
    """Whether a module asks its own package for something that is there before the module is loaded."""
    return module.startswith(name + ".")


@pytest.mark.parametrize("module", sorted(MODULES))
def test_only_the_doors_know_the_client_library(module: str):
    knows = any(name.split(".")[0] == "redis" for name in imports(module))

    assert not knows or room(module) in {"connection", "embedded"}


@pytest.mark.parametrize("module", sorted(name for name in MODULES if HEIGHT[room(name)] == 0))
def test_facts_need_nothing_but_the_standard_library(module: str):
    others = {name.split(".")[0] for name in imports(module)} - set(sys.stdlib_module_names) - {"schedq"}

    assert others <= {"croniter"}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_circle_is_hidden_from_the_interpreter(module: str):
    """TYPE_CHECKING may spare an import of what need not be installed, never one of our own."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            assert "schedq" not in ast.unparse(node), ast.unparse(node)


def test_a_module_of_more_than_five_hundred_lines_says_why():
    files = [*ROOT.rglob("*.py"), *ROOT.rglob("*.lua")]
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}

    assert {name: count for name, count in lines.items() if count > 500 and name not in LONG} == {}
