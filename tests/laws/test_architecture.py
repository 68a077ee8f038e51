"""The architecture page only names modules and folders that exist."""

from __future__ import annotations

import re
from pathlib import Path

import schedq
from tests.pages import page

ROOT = Path(schedq.__file__).parent


def test_every_file_that_the_page_names_exists() -> None:
    names = set(re.findall(r"`((?:tests/)?[a-z_]+/[\w/]*(?:\.py|\.lua)?)`", page("architecture.md")))

    assert len(names) > 30
    assert [name for name in names if not ((ROOT if name.count("tests/") == 0 else ROOT.parent) / name).exists()] == []


def test_every_folder_of_the_package_is_on_the_page() -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("_")}
    rows = re.findall(r"^\| (`[^|]+`) \|", page("architecture.md"), re.MULTILINE)

    assert folders <= {name for row in rows for name in re.findall(r"`(\w+)`", row)}
