"""Codes are names for programs: each is in the handbook, and the handbook has no other."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules

import schedq.doctor
from schedq.doctor.checks import Check, Finding, few
from schedq.inspect.display import approximate, count
from tests.pages import page


def written() -> set[str]:
    """Every code that a row of the doctor's tables may give a finding."""
    modules = [import_module(f"schedq.doctor.{name}") for _, name, _ in iter_modules(schedq.doctor.__path__)]
    values = [value for module in modules for value in vars(module).values()]
    rows = [row for value in values for row in (value if isinstance(value, tuple) else [value])]
    return {row.code for row in rows if isinstance(row, Check)}


def test_the_handbook_lists_every_code_and_no_other():
    table = page("doctor.md").partition("| subject | findings |")[2]

    assert set(re.findall(r"`([a-z-]+)`", table.partition("\n\n")[0])) == written()


def test_a_cluster_gets_remedies_with_its_own_keys():
    finding = Finding("orphan", "warning", "", "", "redis-cli LPUSH queue:mail:pending ID", queue="mail")

    assert finding.tagged("queue:{mail}:").remedy == "redis-cli LPUSH queue:{mail}:pending ID"


def test_figures_are_written_for_people():
    assert (count(1, "job"), count(1234, "job"), count(2, "entry=entries")) == ("1 job", "1,234 jobs", "2 entries")
    assert [approximate(ms) for ms in (5, 1999, 2500, 300_000, 7_200_000, 200_000_000)] == [
        "5 ms",
        "1,999 ms",
        "2.5 s",
        "5 min",
        "2 h",
        "2 d",
    ]
    assert few(f"{n}" for n in range(9)) == ("0", "1", "2", "3", "4")
