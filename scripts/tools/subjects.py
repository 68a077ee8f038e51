"""Say which commit subjects break the rule: imperative, at most 60 characters, no semicolon, no full stop.

    python -m scripts.tools.subjects

Looks at the commits since BASE only, as older ones can't be changed. Where git or that commit is missing, as in a
shallow clone or a source archive, there is nothing to look at.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE = "b2d2bbd"
"""The last commit before the rule was checked."""
MOST = 60
_NO_IMPERATIVE = re.compile(r"\w+(?:ed|ing|[^s]s)")
_IMPERATIVES = {"Bring", "Embed", "Exceed", "Feed", "Focus", "Need", "Seed", "Shed", "Speed", "Spring", "String"}
"""Verbs that look like another form."""


def main() -> int:
    """Print what is wrong, and return the exit code."""
    wrong = [f"{commit}: {complaint}: {subject}" for commit, subject in commits() for complaint in complaints(subject)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return int(bool(wrong))


def complaints(subject: str) -> Iterator[str]:
    """What is wrong with a subject."""
    if len(subject) > MOST:
        yield f"{len(subject)} characters, at most {MOST} are allowed"
    if ";" in subject:
        yield "a semicolon joins two changes"
    if subject.endswith("."):
        yield "a subject has no full stop"
    first = subject.partition(" ")[0]
    if not first[:1].isupper() or (_NO_IMPERATIVE.fullmatch(first) and first not in _IMPERATIVES):
        yield "it must begin with an imperative, as in 'Add' or 'Name'"


def commits() -> list[tuple[str, str]]:
    """Short hash and subject of each commit since BASE; none if that is not known here."""
    command = ["git", "log", "--no-merges", "--format=%h%x09%s", f"{BASE}..HEAD"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode:
        return []
    return [(commit, subject) for commit, _, subject in (line.partition("\t") for line in done.stdout.splitlines())]


if __name__ == "__main__":
    sys.exit(main())
