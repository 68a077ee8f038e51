"""`scripts/audit` distinguishes: no known vulnerability, some found, and no service reached."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.tools import audit

FINE: dict[str, Any] = {"name": "click", "version": "8.4.0", "vulns": []}
BAD: dict[str, Any] = {
    "name": "jinja2",
    "version": "2.4.1",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.11.3", "3.0"]}, {"id": "PYSEC-2", "fix_versions": []}],
}
UNKNOWN = {"name": "own", "skip_reason": "Dependency not found on PyPI"}


def program(folder: Path, text: str) -> list[str]:
    """A stand-in for pip-audit."""
    path = folder / "pip_audit_like.py"
    path.write_text(f"import sys\nservice = sys.argv[-1]\n{text}\n")
    return [sys.executable, str(path)]


def says(*entries: dict[str, Any]) -> str:
    return f"print({json.dumps(json.dumps({'dependencies': entries}))})"


@pytest.mark.parametrize(
    ("entries", "code"), [([FINE], 0), ([FINE, BAD], 1), ([FINE, UNKNOWN], 3), ([BAD, UNKNOWN], 1)], ids=str
)
def test_the_report_of_a_service_decides_the_exit_code(tmp_path: Path, entries: list[dict[str, Any]], code: int):
    assert audit.known(program(tmp_path, says(*entries)), "click==8.4.0\n").code == code


def test_findings_say_what_to_do(tmp_path: Path):
    found = audit.known(program(tmp_path, says(BAD) + "\nsys.exit(1)"), "jinja2==2.4.1\n").findings

    assert [str(one) for one in found] == [
        "jinja2 2.4.1: PYSEC-1, fixed in 2.11.3, 3.0",
        "jinja2 2.4.1: PYSEC-2, no fixed version yet",
    ]


def test_the_second_service_is_asked_when_the_first_does_not_respond(tmp_path: Path):
    command = program(tmp_path, f"if service == 'pypi': sys.exit('no network')\n{says(FINE)}")

    assert audit.known(command, "click==8.4.0\n") == audit.Report(1, (), ())


@pytest.mark.parametrize("text", ["sys.exit('no network')", says(UNKNOWN), "print('{}')", "print('no JSON')"])
def test_no_response_at_all_is_an_error(tmp_path: Path, text: str):
    with pytest.raises(audit.NotAskedError, match=r"pypi: .+; osv: .+"):
        audit.known(program(tmp_path, text), "click==8.4.0\n")


def test_every_installed_package_but_our_own_is_audited():
    names = {line.partition("==")[0].lower() for line in audit.installed().splitlines()}

    assert {"redis", "click", "croniter"} <= names
    assert "schedq" not in names
