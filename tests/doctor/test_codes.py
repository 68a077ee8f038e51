"""Codes are names for programs: each is in the README, and the README has no other."""

from __future__ import annotations

import ast
import re
from importlib.resources import files
from pathlib import Path

from schedq.doctor import strays, timetable
from schedq.doctor.finding import Finding, few, many, span

README = (Path(__file__).parents[2] / "README.md").read_text()


def written() -> set[str]:
    """Every code that the rooms may give a finding."""
    found = {*strays._KINDS, *timetable._KINDS}
    for path in files("schedq.doctor").iterdir():
        if path.name.endswith(".py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                    found |= {str(part.value) for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)}
    persistence = files("schedq.doctor").joinpath("persistence.py").read_text()
    return found | set(re.findall(r'_status", "([a-z-]+)"', persistence))


def test_the_readme_lists_every_code_and_no_other():
    table = README.partition("## The doctor")[2].partition("## Redis users")[0].partition("| subject | findings |")[2]

    assert set(re.findall(r"`([a-z-]+)`", table.partition("\n\n")[0])) == written()


def test_a_cluster_gets_remedies_with_its_own_keys():
    finding = Finding("orphan", "warning", "", "", "redis-cli LPUSH queue:mail:pending ID", queue="mail")

    assert finding.tagged("queue:{mail}:").remedy == "redis-cli LPUSH queue:{mail}:pending ID"


def test_figures_are_written_for_people():
    assert (many(1, "job"), many(1234, "job"), many(2, "entry=entries")) == ("1 job", "1,234 jobs", "2 entries")
    assert [span(ms) for ms in (5, 1999, 2500, 300_000, 7_200_000, 200_000_000)] == [
        "5 ms",
        "1,999 ms",
        "2.5 s",
        "5 min",
        "2 h",
        "2 d",
    ]
    assert few(f"{n}" for n in range(9)) == ("0", "1", "2", "3", "4")
