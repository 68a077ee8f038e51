"""The handbook: pages in Markdown, for `schedq help`, the dashboard and the site. Its index lists them."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from schedq.errors import UsageError

FOLDER: Final = Path(__file__).parent
_PACKED: Final = "pages.json.bz2"
"""A wheel has this file instead of the pages, because it is smaller: see scripts/tools/package.py."""
_ENTRY: Final = re.compile(r"^- \[(?P<title>.+)\]\((?P<name>[\w-]+)\.md\): (?P<summary>.+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)


class Topic(NamedTuple):
    """A page of the handbook.

    Attributes:
        section: heading of the index under which it is listed.
        name: what `schedq help` calls it, the file's name without its ending.
    """

    section: str
    name: str
    title: str
    summary: str


def topics() -> list[Topic]:
    """All pages, in the order of the index."""
    sections = read("index").split("\n## ")[1:]
    return [
        Topic(section.partition("\n")[0], found["name"], found["title"], found["summary"])
        for section in sections
        for found in _ENTRY.finditer(section)
    ]


def read(name: str) -> str:
    """The text of a page without its comments. `name` must be that of a topic, or "index"."""
    return _COMMENT.sub("", _text(f"{name}.md"))


def picture(name: str) -> str:
    """The SVG of this name that pages show.

    Raises:
        KeyError: there is none.
    """
    if f"({name}.svg)" not in read("architecture"):
        raise KeyError(name)
    return _text(f"{name}.svg")


def _text(file: str) -> str:
    packed = _packed()
    return packed[file] if packed else (FOLDER / file).read_text(encoding="utf-8")


@cache
def _packed() -> dict[str, str]:
    """The text of each page and picture, if they are in one file."""
    path = FOLDER / _PACKED
    if not path.exists():
        return {}
    try:
        import bz2
    except ImportError as error:
        raise UsageError("this Python was built without bz2, which reads the handbook's pages") from error
    found: dict[str, str] = json.loads(bz2.decompress(path.read_bytes()))
    return found
