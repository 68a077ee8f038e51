"""Known vulnerabilities of what is installed: pip-audit, in an environment of its own, and what its answer means."""

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
    """No service was asked; the text says why, in one line."""


class _NoAnswerError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Finding:
    """One known vulnerability.

    Attributes:
        package: name and version.
        id: what it is called.
        mended_in: versions without it, or ''.
    """

    package: str
    id: str
    mended_in: str

    def __str__(self) -> str:
        way_out = f"mended in {self.mended_in}" if self.mended_in else "mended nowhere yet"
        return f"{self.package}: {self.id}, {way_out}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service knows.

    Attributes:
        count: packages that were looked up.
        unknown: names of those that it does not know, of which it therefore says nothing.
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
    """Ask; say what was found. Answers the exit code."""
    try:
        answer = known(tool(FOLDER), installed())
    except NotAskedError as error:
        print(f"not audited: {error}", file=sys.stderr)
        return NOT_ASKED
    for finding in answer.findings:
        print(finding)
    if answer.unknown:
        print(f"not audited: {', '.join(answer.unknown)}", file=sys.stderr)
    print(f"{answer.count} packages audited, {len(answer.findings)} known vulnerabilities")
    return answer.code


def tool(folder: Path) -> list[str]:
    """The command; installed on first use.

    Raises:
        NotAskedError: it can't be.
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
    """The packages of this environment but our own, one `name==version` a line."""
    done = _run([sys.executable, "-m", "pip", "--disable-pip-version-check", "freeze", "--exclude-editable"])
    if done.returncode:
        raise NotAskedError(f"pip can't say what is installed: {_last_line(done.stderr)}")
    return done.stdout


def known(command: Sequence[str], packages: str) -> Answer:
    """What the first service that answers knows of the packages.

    Raises:
        NotAskedError: none does.
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
            except _NoAnswerError as error:
                silent.append(f"{service}: {str(error) or _last_line(done.stderr)}")
    raise NotAskedError("; ".join(silent))


def read(answer: str) -> Answer:
    """What is known, by pip-audit's JSON.

    Raises:
        _NoAnswerError: it is none, or not one package was looked up.
    """
    try:
        entries = json.loads(answer)["dependencies"]
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
        raise _NoAnswerError from error
    if not packages:
        raise _NoAnswerError(f"not one package was looked up ({skipped[0].get('skip_reason')})" if skipped else "")
    return Answer(len(packages), tuple(entry["name"] for entry in skipped), tuple(findings))


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_MOST_S
        )
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 124, "", f"no answer within {error.timeout:.0f} s")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it says nothing"


if __name__ == "__main__":
    sys.exit(main())
