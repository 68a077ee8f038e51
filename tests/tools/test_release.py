"""A release is rejected before anything is built, unless the tree, the version and the changelog agree."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GIT = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that the script checks, ready for release 1.2.3 except for the changelog's date."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "schedq" / "handbook").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "release", tmp_path / "scripts")
    (tmp_path / "schedq" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "schedq" / "handbook" / "changelog.md").write_text("# Changelog\n\n## 1.2.3 (not released yet)\n")
    subprocess.run([*GIT, "init", "--quiet"], cwd=tmp_path, check=True)
    commit(tmp_path)
    return tmp_path


def commit(checkout: Path) -> None:
    subprocess.run([*GIT, "add", "--all"], cwd=checkout, check=True)
    subprocess.run([*GIT, "commit", "--quiet", "--message", "Say what is so"], cwd=checkout, check=True)


def release(checkout: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [checkout / "scripts" / "release", *arguments], cwd=checkout, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr.strip()


def test_a_version_is_asked_for(checkout: Path) -> None:
    assert release(checkout) == (2, "usage: scripts/release VERSION")


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3 ", "latest", ""])
def test_a_version_has_three_numbers(checkout: Path, version: str) -> None:
    assert release(checkout, version) == (
        1,
        f"scripts/release: {version} is not a valid version; write it as 1.2.3 or 1.2.3rc1",
    )


def test_changes_that_are_not_committed_are_named(checkout: Path) -> None:
    (checkout / "new.py").touch()

    assert release(checkout, "1.2.3") == (1, "scripts/release: there are uncommitted changes: commit or stash them")


def test_the_code_has_to_have_the_version(checkout: Path) -> None:
    assert release(checkout, "1.2.4") == (
        1,
        'scripts/release: schedq/__init__.py does not say __version__ = "1.2.4"',
    )


def test_the_changelog_has_to_have_the_version_with_a_date(checkout: Path) -> None:
    said = "scripts/release: schedq/handbook/changelog.md has no heading '## 1.2.3 (YYYY-MM-DD)'"

    assert release(checkout, "1.2.3") == (1, said)


def test_a_version_is_released_once(checkout: Path) -> None:
    subprocess.run([*GIT, "tag", "v1.2.3"], cwd=checkout, check=True)

    assert release(checkout, "1.2.3") == (1, "scripts/release: the tag v1.2.3 exists already")


def test_a_consistent_release_reaches_the_build(checkout: Path) -> None:
    changelog = checkout / "schedq" / "handbook" / "changelog.md"
    changelog.write_text(changelog.read_text().replace("not released yet", "2030-01-31"))
    commit(checkout)

    code, said = release(checkout, "1.2.3")

    assert code == 1
    assert "scripts/venv.sh: No such file" in said  # the next file it needs, missing in this checkout
