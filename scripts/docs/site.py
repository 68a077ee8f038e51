"""Build the site: `scripts/docs/build [FOLDER]`.

The handbook's pages are copied unchanged. Pages of the API reference are added; they list the public classes and
functions and take the text from their docstrings. The handbook's index defines the navigation.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

import yaml

from schedq import handbook
from tests.laws.reference import GROUPS

ROOT: Final = Path(__file__).resolve().parents[2]
CONFIG: Final = Path(__file__).with_name("mkdocs.yml")
STAGE: Final = ROOT / ".venv" / "docs"
"""Where pages and configuration are assembled."""
REFERENCE: Final = GROUPS | {
    "schedq.dashboard": ["dashboard.create_app", "dashboard.Dashboard"],
    "schedq.logs": ["logs"],
    "schedq.metrics": ["metrics"],
    "schedq.testing": ["testing"],
}
"""Titles of the API reference pages, and the names on each."""
LESS_IN_SEARCHES: Final = "---\nsearch:\n  boost: 0.05\n---\n\n"
"""Ranks pages that explain a word above signatures that contain it."""

DESIGN_IN_SEARCHES: Final = "---\nsearch:\n  boost: 0.5\n---\n\n"
"""Ranks pages for users above pages of the same words that explain how something is built."""

NOT_IN_SEARCHES: Final = "---\nsearch:\n  exclude: true\n---\n\n"
"""Excluded because the API reference covers the handbook's list of names in full."""


def main(folder: str) -> int:
    """Build the site; returns the exit code."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(handbook.FOLDER, STAGE / "pages", ignore=shutil.ignore_patterns("__*__*"))
    reference = list(write_reference(STAGE / "pages" / "api"))
    for page in (STAGE / "pages").glob("how-*-work.md"):
        page.write_text(DESIGN_IN_SEARCHES + page.read_text())
    if (names := STAGE / "pages" / "reference.md").exists():
        names.write_text(NOT_IN_SEARCHES + names.read_text())
    config = yaml.safe_load(CONFIG.read_text())
    config |= {"docs_dir": str(STAGE / "pages"), "site_dir": str(Path(folder).resolve())}
    config["nav"] = [{"Home": "index.md"}, *sections(), {"API reference": reference}]
    (STAGE / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(STAGE / "mkdocs.yml")]
    # --quiet would hide warnings from --strict as well. The theme recommends its successor at each build.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    foreign = sorted(set(loaded_from_elsewhere(Path(folder)))) if code == 0 else []
    print(*(f"loaded from another host: {address}" for address in foreign), sep="\n", end="\n" if foreign else "")
    return code or int(bool(foreign))


def sections() -> Iterator[dict[str, list[dict[str, str]]]]:
    """The handbook's index in MkDocs' format."""
    for section, pages in groupby(handbook.topics(), lambda topic: topic.section):
        yield {section: [{topic.title: f"{topic.name}.md"} for topic in pages]}


def write_reference(folder: Path) -> Iterator[dict[str, str]]:
    """Write the pages of the API reference; yields their navigation entries."""
    folder.mkdir()
    for title, names in REFERENCE.items():
        file = re.sub(r"\W+", "-", title.lower()) + ".md"
        (folder / file).write_text(f"{LESS_IN_SEARCHES}# {title}\n" + "".join(map(entry, names)))
        yield {title: f"api/{file}"}


def entry(name: str) -> str:
    """The mkdocstrings directive of a name; async clients share the methods of their blocking counterparts."""
    options = "    options: {inherited_members: false}\n" if name.startswith("Async") else ""
    return f"\n::: schedq.{name}\n{options}"


def loaded_from_elsewhere(folder: Path) -> Iterator[str]:
    """URLs of scripts, styles, images and fonts on other hosts, which no page may load."""
    for path in folder.rglob("*.html"):
        text = path.read_text()
        yield from re.findall(r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?((?:https?:)?//[^"'\s>]+)""", text)
        yield from re.findall(r"""<link\b(?=[^>]*stylesheet)[^>]*\bhref=["']?((?:https?:)?//[^"'\s>]+)""", text)
    for path in folder.rglob("*.css"):
        yield from re.findall(r"""(?:url\(|@import )["']?((?:https?:)?//[^"')\s]+)""", path.read_text())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
