"""README says what is so: its code runs, its names exist, its table is the one that the scripts are held against."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import schedq
from schedq import Queue, embedded
from schedq.lifecycle import MOVES, PLACES
from tests.reference import GROUPS, reference, written
from tests.servers import Server

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.processes
def test_the_ten_lines_work_when_pasted(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PYTHON[0])
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    worker = subprocess.Popen([sys.executable, "-m", "schedq", "worker", "app:queue"], cwd=tmp_path, env=environment)
    try:
        said = subprocess.run(
            [sys.executable, "app.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
    finally:
        worker.terminate()
        worker.wait(30)
        embedded.stop_server(tmp_path / "data")

    assert (said.stdout.strip(), said.returncode) == ("Hello, Ada! Hello, Grace!", 0), said.stderr


RUN_ALL = """
import runpy, sys, traceback
for name in sys.argv[1:]:
    try:
        runpy.run_path(name, run_name="__main__")
    except BaseException:
        print(name, traceback.format_exc(limit=-1), sep=": ")
"""


def test_every_block_of_python_runs_as_pasted(tmp_path: Path) -> None:
    """Beside the `app.py` of the first one, which has a test of its own."""
    (tmp_path / "app.py").write_text(PYTHON[0])
    names = [f"block-{number}.py" for number in range(1, len(PYTHON))]
    for name, text in zip(names, PYTHON[1:], strict=True):
        (tmp_path / name).write_text(text)
    path = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "examples")))
    settings = {"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "shop_django.settings"}
    with Server(appendonly=True, appendfsync="always") as durable:
        environment = os.environ | settings | {"SCHEDQ_REDIS_URL": durable.unix_url}
        try:
            said = subprocess.run(
                [sys.executable, "-c", RUN_ALL, *names],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
        finally:
            embedded.stop_server(tmp_path / "data")

    assert (said.stdout, said.returncode) == ("", 0), said.stdout + said.stderr


@pytest.mark.parametrize("block", range(len(PYTHON)))
def test_every_name_that_the_code_uses_exists(block: int) -> None:
    tree = ast.parse(PYTHON[block])

    imported = [
        (str(node.module), name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("schedq", "schedq.dashboard")
        for name in node.names
    ]
    verbs = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "queue"
    ]

    assert [name for module, name in imported if name not in importlib.import_module(module).__all__] == []
    assert [verb for verb in verbs if not hasattr(Queue, verb)] == []
    assert imported or verbs


def test_every_verb_in_the_text_exists() -> None:
    verbs = set(re.findall(r"`(?:job = )?queue\.(\w+)\(", README))

    assert {"claim", "complete", "requeue"} <= verbs
    assert {verb for verb in verbs if not hasattr(Queue, verb)} == set()


def test_the_table_of_moves_is_that_of_the_code() -> None:
    table = README.partition("<!-- moves -->")[2].partition("<!-- /moves -->")[0]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.strip().splitlines()[2:]]

    assert rows == [
        (
            move.name,
            "any" if move.source == PLACES else ", ".join(place or "–" for place in move.source),
            ", ".join(place or "–" for place in move.target),
            ", ".join(f"{script}.lua" for script in move.scripts),
        )
        for move in MOVES
    ]


def test_the_picture_shows_every_place_and_no_other() -> None:
    picture = README.partition("```\n")[2].partition("```")[0]

    words = set(re.findall(r"[a-z]+", picture))

    assert set(PLACES) - {"broken"} <= words


def test_the_two_commands_are_there() -> None:
    commands = re.findall(r"^(scripts/\w+)", README, re.MULTILINE)

    assert commands == ["scripts/demo", "scripts/test"]
    assert all(os.access(ROOT / command, os.X_OK) for command in commands)


def test_every_public_name_is_there_with_its_signature() -> None:
    """`python -m tests.reference` writes it anew."""
    listed = {name for names in GROUPS.values() for name in names}

    assert listed == set(schedq.__all__) - {"__version__"}
    assert written() == reference()
