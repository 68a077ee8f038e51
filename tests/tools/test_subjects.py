"""Commit subjects as scripts/check verifies them: imperative, at most 60 characters, no semicolon."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.tools import subjects


@pytest.mark.parametrize(
    "subject",
    [
        "Add a promoter",
        "Pass the clock on",
        "Process jobs in order",
        "Bring delayed jobs home",
        "x" * 29 + " " + "x" * 30,
    ],
)
def test_a_good_subject_is_accepted(subject: str):
    assert list(subjects.complaints(subject.capitalize())) == []


@pytest.mark.parametrize(
    ("subject", "complaint"),
    [
        ("Say " + "x" * 57, "61 characters; at most 60 are allowed"),
        ("Add a door; paint it", "a semicolon suggests two changes in one commit"),
        ("Add a promoter.", "the subject must not end with a full stop"),
        ("Added a promoter", "it must start with an imperative, such as 'Add' or 'Name'"),
        ("Promote", "one word does not say what the commit does"),
        ("Adding a promoter", "it must start with an imperative, such as 'Add' or 'Name'"),
        ("Adds a promoter", "it must start with an imperative, such as 'Add' or 'Name'"),
        ("add a promoter", "it must start with an imperative, such as 'Add' or 'Name'"),
    ],
)
def test_a_bad_one_is_refused_with_the_reason(subject: str, complaint: str):
    assert list(subjects.complaints(subject)) == [complaint]


def test_a_shallow_clone_is_not_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", "init", "-q", tmp_path / "whole"], check=True)
    for subject in ("Add a promoter", "x"):
        subprocess.run([*git, "-C", tmp_path / "whole", "commit", "-q", "--allow-empty", "-m", subject], check=True)
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{tmp_path}/whole", tmp_path / "shallow"], check=True)
    monkeypatch.setattr(subjects, "BASE", "0" * 40)

    monkeypatch.setattr(subjects, "ROOT", tmp_path / "shallow")
    assert subjects.main() == 0

    monkeypatch.setattr(subjects, "ROOT", tmp_path / "whole")
    assert subjects.main() == 1  # it has every commit, so the base must be one of them


def test_so_is_a_folder_without_git(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")

    assert subjects.main() == 0
