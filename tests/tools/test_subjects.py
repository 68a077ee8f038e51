"""Commit subjects as scripts/check verifies them: imperative, at most 60 characters, no semicolon."""

from __future__ import annotations

import pytest

from scripts.tools import subjects


@pytest.mark.parametrize(
    "subject", ["Add a promoter", "Pass the clock on", "Process jobs in order", "Bring delayed jobs home", "x" * 60]
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
        ("Adding a promoter", "it must start with an imperative, such as 'Add' or 'Name'"),
        ("Adds a promoter", "it must start with an imperative, such as 'Add' or 'Name'"),
        ("add a promoter", "it must start with an imperative, such as 'Add' or 'Name'"),
    ],
)
def test_a_bad_one_is_refused_with_the_reason(subject: str, complaint: str):
    assert list(subjects.complaints(subject)) == [complaint]


def test_a_clone_without_the_base_is_not_checked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subjects, "BASE", "0" * 40)

    assert subjects.commits() == []
    assert subjects.main() == 0


def test_so_is_a_folder_without_git(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")

    assert subjects.main() == 0
