"""What only the README has: ten lines that run, the diagram of a job's life cycle, two commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import schedq
from schedq import embedded
from schedq.model.lifecycle import JOB_STATES, MOVES
from scripts.tools.handbook import blocks
from tests.laws.reference import BLOCK, GROUPS, reference
from tests.pages import README, ROOT, page


@pytest.mark.processes
def test_the_ten_lines_work_when_pasted(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(blocks(README, "python")[0].code)
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


def test_the_table_of_moves_is_that_of_the_code() -> None:
    table = page("data-in-redis.md").partition("<!-- moves -->")[2].partition("<!-- /moves -->")[0]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.strip().splitlines()[2:]]

    assert rows == [
        (
            move.name,
            "any" if move.source == JOB_STATES else ", ".join(place or "–" for place in move.source),
            ", ".join(place or "–" for place in move.target),
            ", ".join(f"{script}.lua" for script in move.scripts),
        )
        for move in MOVES
    ]


def test_the_picture_shows_every_place_and_no_other() -> None:
    picture = README.partition("```\n")[2].partition("```")[0]

    words = set(re.findall(r"[a-z]+", picture))

    assert set(JOB_STATES) - {"broken"} <= words


def test_the_two_commands_are_there() -> None:
    commands = re.findall(r"^(scripts/\w+)", README, re.MULTILINE)[:2]

    assert commands == ["scripts/demo", "scripts/test"]
    assert all(os.access(ROOT / command, os.X_OK) for command in commands)


def test_every_public_name_is_there_with_its_signature() -> None:
    """`python -m tests.laws.reference` writes the page again."""
    listed = {name for names in GROUPS.values() for name in names}

    assert listed == set(schedq.__all__) - {"__version__"}
    assert BLOCK.read() == reference()
