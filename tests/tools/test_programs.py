"""Each program is where its command expects it: scripts/NAME runs scripts/tools/NAME, which has a README."""

from __future__ import annotations

from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
PROGRAMS = sorted(path.parent for path in SCRIPTS.glob("tools/*/__main__.py"))


def test_there_are_programs():
    assert len(PROGRAMS) >= 6
    assert {path.name for path in (SCRIPTS / "tools").iterdir() if path.is_dir() and path.name != "__pycache__"} == {
        program.name for program in PROGRAMS
    }


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_has_a_command_and_a_short_readme(program: Path):
    assert f"-m scripts.tools.{program.name} " in (SCRIPTS / program.name).read_text()
    readme = (program / "README.md").read_text()
    assert readme.startswith(f"# scripts/{program.name}: ")
    assert 8 <= len(readme.splitlines()) <= 16
