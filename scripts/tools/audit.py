"""Known vulnerabilities of the installed packages: runs pip-audit in its own environment and interprets its report."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".venv" / "audit"
SERVICES = ("pypi", "osv")
NONE_KNOWN, SOME_KNOWN, NOT_ASKED = 0, 1, 3
_MOST_S = 300


class NotAskedError(Exception):
    """No vulnerability service could be asked; the text says why, in one line."""


class _NoReportError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Finding:
    """One known vulnerability.

    Attributes:
        package: name and version.
        id: its identifier.
        fixed_in: fixed versions, or ''.
    """

    package: str
    id: str
    fixed_in: str

    def __str__(self) -> str:
        fix = f"fixed in {self.fixed_in}" if self.fixed_in else "no fixed version yet"
        return f"{self.package}: {self.id}, {fix}"


@dataclass(frozen=True, slots=True)
class Report:
    """What a vulnerability service reports.

    Attributes:
        count: packages that were looked up.
        unknown: names of packages that the service does not know.
        findings: all vulnerabilities.
    """

    count: int
    unknown: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def code(self) -> int:
        """The exit code."""
        if self.findings:
            return SOME_KNOWN
        return NOT_ASKED if self.unknown else NONE_KNOWN


def main() -> int:
    """Run the audit, print the findings, and return the exit code."""
    try:
        report = known(tool(FOLDER), installed())
    except NotAskedError as error:
        print(f"not audited: {error}", file=sys.stderr)
        return NOT_ASKED
    for finding in report.findings:
        print(finding)
    if report.unknown:
        print(f"not audited: {', '.join(report.unknown)}", file=sys.stderr)
    print(f"{report.count} packages audited, {len(report.findings)} known vulnerabilities")
    return report.code


def tool(folder: Path) -> list[str]:
    """The pip-audit command; installed on first use.

    Raises:
        NotAskedError: pip-audit can't be installed.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    done = _run([*pip, "install", "pip-audit>=2.7"])
    if done.returncode:
        raise NotAskedError(f"pip-audit can't be installed: {_last_line(done.stderr)}")
    return [str(python), "-m", "pip_audit"]


def installed() -> str:
    """The packages of this environment except our own, one `name==version` per line."""
    done = _run([sys.executable, "-m", "pip", "--disable-pip-version-check", "freeze", "--exclude-editable"])
    if done.returncode:
        raise NotAskedError(f"pip can't list the installed packages: {_last_line(done.stderr)}")
    return done.stdout


def known(command: Sequence[str], packages: str) -> Report:
    """The report of the first service that responds.

    Raises:
        NotAskedError: none responds.
    """
    silent = []
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "installed.txt")
        listed.write_text(packages)
        options = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "15"]
        for service in SERVICES:
            done = _run([*command, "--requirement", str(listed), *options, "--vulnerability-service", service])
            try:
                return read(done.stdout)
            except _NoReportError as error:
                silent.append(f"{service}: {str(error) or _last_line(done.stderr)}")
    raise NotAskedError("; ".join(silent))


def read(report: str) -> Report:
    """Parse pip-audit's JSON.

    Raises:
        _NoReportError: the output is not a report, or not one package was looked up.
    """
    try:
        entries = json.loads(report)["dependencies"]
        packages = [entry for entry in entries if "vulns" in entry]
        skipped = [entry for entry in entries if "vulns" not in entry]
        findings = [
            Finding(
                f"{entry['name']} {entry['version']}", vulnerability["id"], ", ".join(vulnerability["fix_versions"])
            )
            for entry in packages
            for vulnerability in entry["vulns"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise _NoReportError from error
    if not packages:
        raise _NoReportError(f"not one package was looked up ({skipped[0].get('skip_reason')})" if skipped else "")
    return Report(len(packages), tuple(entry["name"] for entry in skipped), tuple(findings))


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_MOST_S
        )
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 124, "", f"no response within {error.timeout:.0f} s")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"


if __name__ == "__main__":
    sys.exit(main())
