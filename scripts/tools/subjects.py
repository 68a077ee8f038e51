"""Check commit subjects: imperative, at most 60 characters, no semicolon, no full stop.

    python -m scripts.tools.subjects

Only commits since BASE are checked, because older ones can't be changed. In a shallow clone and without git, as in a
source archive, there is nothing to check. In a whole clone, a BASE that git does not know is an error: the check would
pass whatever the subjects are.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE = "ce27534"
"""The last commit that the rule came too late for."""
MOST = 60
_NO_IMPERATIVE = re.compile(r"\w+(?:ed|ing|[^s]s)")
_IMPERATIVES = {"Bring", "Embed", "Exceed", "Feed", "Focus", "Need", "Seed", "Shed", "Speed", "Spring", "String"}
"""Imperatives that look like another form of a verb."""


def main() -> int:
    """Print the violations, and return the exit code."""
    wrong = [f"{commit}: {complaint}: {subject}" for commit, subject in commits() for complaint in complaints(subject)]
    if _git("rev-parse", "--is-shallow-repository").strip() == "false" and not _git("cat-file", "-t", BASE):
        wrong.append(f"{BASE}, the commit to begin after, is not in this repository: name another one in subjects.py")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return int(bool(wrong))


def complaints(subject: str) -> Iterator[str]:
    """The violations of one subject."""
    if " " not in subject:
        yield "one word does not say what the commit does"
    if len(subject) > MOST:
        yield f"{len(subject)} characters; at most {MOST} are allowed"
    if ";" in subject:
        yield "a semicolon suggests two changes in one commit"
    if subject.endswith("."):
        yield "the subject must not end with a full stop"
    first = subject.partition(" ")[0]
    if not first[:1].isupper() or (_NO_IMPERATIVE.fullmatch(first) and first not in _IMPERATIVES):
        yield "it must start with an imperative, such as 'Add' or 'Name'"


def commits() -> list[tuple[str, str]]:
    """Short hash and subject of each commit since BASE; none if unknown here."""
    found = _git("log", "--no-merges", "--format=%h%x09%s", f"{BASE}..HEAD")
    return [(commit, subject) for commit, _, subject in (line.partition("\t") for line in found.splitlines())]


def _git(*arguments: str) -> str:
    """What a git command prints; '' if it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout


if __name__ == "__main__":
    sys.exit(main())
