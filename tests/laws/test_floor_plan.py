"""The architecture as the folders show it: units on levels, imports only from a higher level to a lower one."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import schedq
from tests.cases import for_each

ROOT = Path(schedq.__file__).parent
LEVELS = [
    {"errors", "aliases"},
    {"model", "handbook"},
    {"transitions", "embedded", "observer"},
    {"schedules", "logs", "tracing"},
    {"inspect", "dependencies", "isolation"},
    {"connection"},
    {"queue"},
    {"background", "doctor", "workflows"},
    {"worker", "testing", "dashboard"},
    {"metrics", "schedq"},
    {"cli"},
    {"integrations", "__main__"},
]
"""The units at the root of the package, lowest first. A unit is one level above the highest that it imports."""
HEIGHT = {unit: height for height, units in enumerate(LEVELS) for unit in units}
LOOSE = {"__init__", "__main__", "aliases", "errors", "logs", "observer"}
"""Modules at the root that are in no folder: at most 8."""
MOST_UNITS = 26
CHECKOUT = ROOT.parent
LONG: dict[str, str] = {
    "tests/cli/whys.py": "the table of every reason that `why` gives, each with the steps that lead to it",
    "tests/queue/test_event_loops.py": "one client on many event loops: each test is a pair of loops in another order",
}
"""Files of more than 500 lines, and why each of them is one idea."""
MOST_FUNCTION_LINES, MOST_CLASS_LINES = 40, 250
DRAWERS = {"utils", "util", "common", "helpers", "helper", "manager", "base", "misc"}


def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("schedq", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def unit(module: str) -> str:
    """The unit at the root that a module is in: `schedq.worker.fetcher` is in `worker`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


@cache
def parsed(module: str) -> ast.Module:
    """Its source, parsed once for all tests."""
    return ast.parse(MODULES[module].read_text())


def imports(module: str) -> Iterator[str]:
    """The modules that a module imports, anywhere in it; imported names count as modules where they are modules."""
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively, which hides where from"
            assert node.module is not None
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module


@cache
def own_imports(module: str) -> set[str]:
    return {name for name in imports(module) if name.split(".")[0] == "schedq" and name != module}


def units_below() -> dict[str, set[str]]:
    """Which units each unit imports."""
    below: dict[str, set[str]] = defaultdict(set)
    for module in MODULES:
        below[unit(module)] |= {unit(name) for name in own_imports(module)} - {unit(module)}
    return below


@for_each(sorted(MODULES))
def test_every_module_is_in_a_unit_of_the_plan(module: str):
    assert unit(module) in HEIGHT, f"{unit(module)} is on no level: add it to LEVELS"
    assert not DRAWERS & set(module.split(".")), "the name of a drawer, not of a subject"


@for_each(sorted(MODULES))
def test_imports_only_go_down(module: str):
    level = HEIGHT[unit(module)]
    above = {name for name in own_imports(module) if unit(name) != unit(module) and HEIGHT[unit(name)] >= level}

    assert not above


def test_the_plan_states_the_real_levels():
    """A unit is as low as its imports allow, so the table can't promise more order than there is."""
    below = units_below()

    assert {unit: 1 + max([HEIGHT[name] for name in below[unit]], default=-1) for unit in HEIGHT} == HEIGHT
    assert len(LEVELS) <= 12


def test_the_root_stays_small_enough_to_be_read_at_a_glance():
    loose = {path.stem for path in ROOT.glob("*.py")}

    assert loose == LOOSE
    assert len(loose) <= 8
    assert len(HEIGHT) <= MOST_UNITS


def test_no_imports_form_a_cycle():
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
    """Whether a module imports from its own package something that is defined before the module is loaded."""
    return module.startswith(name + ".")


@for_each(sorted(MODULES))
def test_only_the_clients_know_the_client_library(module: str):
    knows = any(name.split(".")[0] == "redis" for name in imports(module))

    assert not knows or unit(module) in {"connection", "embedded"}


@for_each(sorted(name for name in MODULES if unit(name) in {"errors", "model"}))
def test_facts_need_nothing_but_the_standard_library(module: str):
    others = {name.split(".")[0] for name in imports(module)} - set(sys.stdlib_module_names) - {"schedq"}

    assert others <= {"croniter", "annotationlib"}  # the latter belongs to Python from 3.14 on


LAZY = {"schedq", "schedq.metrics"} | {
    f"schedq.{name}"
    for name in (
        "cli.worker",
        "connection.address",
        "connection.async_client",
        "integrations.pytest",
        "model.records",
        "queue.around",
        "queue.batch_methods",
        "queue.before_enqueue",
        "queue.extensions",
        "queue.handler",
        "queue.hooks",
        "queue.job",
        "queue.middleware",
        "queue.queue",
        "queue.queue_verbs",
        "queue.registry",
        "queue.task",
        "queue.task_options",
        "queue.workflows",
        "schedules.definition",
    )
}
"""Modules that import others of schedq when they are used: most programs only enqueue, and most workers serve no
metrics. The test for import cycles sees these imports too."""


@for_each(sorted(set(MODULES) - LAZY))
def test_no_circle_is_hidden_from_the_interpreter(module: str):
    """TYPE_CHECKING may avoid an import of an optional package, but never one of schedq's own."""
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            assert "schedq" not in ast.unparse(node), ast.unparse(node)


def sources(*folders: str) -> dict[str, Path]:
    """Python and Lua below these folders of the checkout, by their paths in it."""
    found = (path for folder in folders for pattern in ("*.py", "*.lua") for path in (CHECKOUT / folder).rglob(pattern))
    return {path.relative_to(CHECKOUT).as_posix(): path for path in found}


def test_a_file_of_more_than_five_hundred_lines_says_why():
    files = sources("schedq", "scripts", "tests", "examples")

    long = {name for name, path in files.items() if len(path.read_text().splitlines()) > 500}

    assert long == LONG.keys()


def definitions(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, lines and most lines of each function and class of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            assert node.end_lineno is not None
            most = MOST_CLASS_LINES if isinstance(node, ast.ClassDef) else MOST_FUNCTION_LINES
            yield node.name, node.end_lineno - node.lineno + 1, most


@for_each(["schedq", "scripts", "examples"])
def test_a_function_fits_on_a_screen_and_a_class_on_a_few(folder: str):
    files = {name: path for name, path in sources(folder).items() if path.suffix == ".py"}

    found = [(name, *definition) for name, path in files.items() for definition in definitions(path)]

    assert [(name, what, lines) for name, what, lines, most in found if lines > most] == []


def test_a_program_that_only_enqueues_loads_none_of_the_workers_code():
    """A Queue with a task takes at most 1.35 times the CPU time of `import redis`: see scripts/tools/startup.py."""
    program = "import sys, schedq; schedq.Queue('mail').task(print); print(*sys.modules, sep='\\n')"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    unneeded = (
        "schedq.worker",
        "schedq.queue.enqueue_facts",
        "schedq.queue.inspector",
        "schedq.queue.schedules",
        "schedq.schedules",
        "schedq.dependencies",
        "schedq.embedded",
        "schedq.logs",
        "schedq.observer",
        "schedq.connection.async_connection",
        "schedq.connection.pubsub",
        "schedq.connection.topology",
        "schedq.inspect.forecast",
        "schedq.inspect.queue_names",
        "schedq.transitions.claim",
        "schedq.transitions.heartbeat",
        "schedq.transitions.promote",
        "schedq.transitions.reclaim",
        "croniter",
    )
    assert [name for name in loaded if name.startswith(unneeded)] == []


def test_type_checkers_and_dir_see_the_names_that_are_imported_when_they_are_used():
    (block,) = [node for node in parsed("schedq").body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for alias in node.names
    }

    assert seen == schedq._IMPORTED_WHEN_USED
    assert set(schedq.__all__) <= set(dir(schedq))


def test_names_of_the_workers_code_are_imported_when_they_are_used():
    program = "import schedq; print(schedq.Worker.__name__); from schedq import *; print(StuckSlot.__name__)"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert loaded.stdout.split() == ["Worker", "StuckSlot"]
