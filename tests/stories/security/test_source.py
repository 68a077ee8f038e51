"""Nothing that comes from Redis is executed: what the package's code must not do, and the few exceptions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from tests.laws.test_floor_plan import MODULES

FORBIDDEN_IMPORTS = {
    **dict.fromkeys(
        ("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle"), "runs what it reads"
    ),
    **dict.fromkeys(("code", "codeop", "runpy", "imp", "pty"), "runs text as a program"),
    "yaml": "its load() creates arbitrary objects",
    "xmlrpc": "this protocol is not used here",
    "telnetlib": "this protocol is not used here",
    "ctypes": "bypasses the language",
}
FORBIDDEN_CALLS = {
    **dict.fromkeys(
        ("eval", "exec", "compile", "__import__", "globals", "breakpoint", "input"), "runs or changes code"
    ),
    **dict.fromkeys(("importlib.import_module", "importlib.reload"), "imports by name"),
    **dict.fromkeys(("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"), "runs a shell"),
    **dict.fromkeys(("pickle.loads", "marshal.loads", "yaml.load", "tempfile.mktemp"), "unsafe by design"),
    "ssl._create_unverified_context": "accepts any certificate",
    "logging.config.listen": "executes what a socket receives",
}
STARTS = {"subprocess.Popen", "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output"}
ALLOWED = {
    ("schedq", "importlib.import_module"): "modules of public names that are imported when used, named in the source",
    ("schedq", "globals"): "keeps such a name once it is imported",
    ("schedq.metrics", "importlib.import_module"): "as schedq",
    ("schedq.metrics", "globals"): "as schedq",
    ("schedq.cli.lazy_group", "importlib.import_module"): "modules of commands, named in the source",
    (
        "schedq.cli.queues",
        "importlib.import_module",
    ): "what the operator types: MODULE:QUEUE, --import",
    ("schedq.worker.application", "importlib.import_module"): "modules that the worker has imported already",
    ("schedq.isolation.handed", "pickle"): "what run_isolated passes between a worker and its own child processes",
    ("schedq.isolation.handed", "pickle.loads"): "the same; nothing of it comes from Redis",
    ("schedq.cli.demo", "importlib.import_module"): "the demo of a checkout, named in the source",
    ("schedq.embedded.watcher", "ctypes"): "prctl, so that the embedded server ends with its watcher; by a fixed name",
    ("schedq.cli.daemon", "importlib.import_module"): "uvloop where it is installed; the name is in the source",
    ("schedq.connection.codec", "globals"): "as schedq.model.ids",
    ("schedq.observer", "globals"): "the class of a former name, from a table in the source",
    ("schedq.model.ids", "globals"): "puts a fresh lock into its own module after a fork; no name from outside",
}
"""(module, what it calls) → why it is allowed."""
STARTERS = {
    "schedq.doctor.notices": "`schedq watch --exec`: the operator's command, whose words never come from Redis",
    "schedq.cli.dev": "the worker of `schedq dev`: this interpreter with the words of its own command line",
    "schedq.worker.process": "the processes of --processes: this interpreter with the words of its own command line",
    "schedq.embedded": "the watcher of an embedded server: this interpreter, with a folder",
    "schedq.embedded.watcher": "the embedded server: the program found on PATH or in the extra, with fixed options",
    "schedq.embedded.program": "asks that program for its version",
}
"""Modules that start programs, never through a shell."""


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or an attribute; '' for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{head}.{node.attr}" if (head := dotted(node.value)) else ""
    return node.id if isinstance(node, ast.Name) else ""


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call with its full name, whatever the names were imported as."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (found := dotted(node.func)):
            first, dot, rest = found.partition(".")
            yield names.get(first, first) + dot + rest, node


def faults(tree: ast.AST) -> set[str]:
    """Everything forbidden in a module's code."""
    found = {name for name, _ in calls(tree) if name.removeprefix("builtins.") in FORBIDDEN_CALLS}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_IMPORTS}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_IMPORTS:
            found.add(str(node.module))
        elif isinstance(node, ast.keyword) and node.arg == "shell" and ast.unparse(node.value) != "False":
            found.add("shell=")
        elif isinstance(node, ast.Attribute) and node.attr == "CERT_NONE":
            found.add("CERT_NONE")
    return found


def starts_programs(tree: ast.AST) -> bool:
    return any(name in STARTS or name.startswith(("os.exec", "os.spawn", "os.posix_spawn")) for name, _ in calls(tree))


@cache
def trees() -> dict[str, ast.AST]:
    """The package's modules, parsed by the first test that needs them."""
    return {module: ast.parse(path.read_text()) for module, path in MODULES.items()}


def test_no_module_runs_imports_or_unpickles_data():
    found = {(module, what) for module, tree in trees().items() for what in faults(tree)}

    assert found - ALLOWED.keys() == set()
    assert ALLOWED.keys() - found == set(), "allowed but no longer used"


def test_programs_are_started_where_that_is_known():
    assert {module for module, tree in trees().items() if starts_programs(tree)} == STARTERS.keys()


def test_the_text_of_a_script_is_a_file_of_the_package():
    """EVAL gets no text assembled at run time."""
    makers = {
        (module, name) for module, tree in trees().items() for name, _ in calls(tree) if name.endswith("scripts.script")
    }
    commands = {
        module
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in ("EVAL", "EVALSHA", "SCRIPT", "FUNCTION", "FCALL")
    }

    # The doctor tests what scripts may do on a server, with scripts from its own source.
    assert makers == {("schedq.doctor.probes", "schedq.transitions.scripts.script")}
    assert commands == {"schedq.transitions", "schedq.doctor.workers"}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from marshal import loads",
        "def f():\n    import yaml",
        "eval(x)",
        "import builtins\nbuiltins.exec(x)",
        "from builtins import eval as harmless\nharmless(x)",
        "__import__(x)",
        "from importlib import import_module as load\nload(x)",
        "import importlib as i\ni.import_module(x)",
        "import subprocess\nsubprocess.run(x, shell=True)",
        "from subprocess import run\nrun(x, shell=flag)",
        "import os\nos.system(x)",
        "import ssl\ncontext.verify_mode = ssl.CERT_NONE",
    ],
)
def test_the_scan_finds_forbidden_code(text: str):
    assert faults(ast.parse(text))


@pytest.mark.parametrize("text", ["import re\nre.compile(x)", "import subprocess\nsubprocess.run(x, shell=False)"])
def test_the_scan_accepts_harmless_code(text: str):
    assert not faults(ast.parse(text))
