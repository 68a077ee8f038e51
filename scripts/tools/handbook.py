"""The handbook's pages: their code blocks, and their generated tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from schedq.handbook import FOLDER

FIRST: Final = "first-job.md"
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVED: Final = re.compile(r"\b[Ss]ave\b[^.]*\bas\s+`([\w./-]+)`")
_FRAGMENT: Final = re.compile(r"<!-- fragment: .+ -->\n$")


class CodeBlock(NamedTuple):
    """A fenced block of a page.

    Attributes:
        language: as the fence names it, or ''.
        code: its text.
        path: the file name under which the reader should save it, or ''.
        is_fragment: it does not run as pasted; its first line (`# Fragment…`) or a comment before the block says so.
    """

    language: str
    code: str
    path: str
    is_fragment: bool


def all_blocks(text: str) -> list[CodeBlock]:
    """All fenced blocks of a page."""
    found, end = [], 0
    for fence in _FENCE.finditer(text):
        before = text[end : fence.start()]
        saved = _SAVED.search(before.rstrip().rpartition("\n\n")[2])
        path = saved[1] if saved else ""
        is_fragment = fence[2].startswith("# Fragment") or _FRAGMENT.search(before) is not None
        found.append(CodeBlock(fence[1], fence[2], path, is_fragment))
        end = fence.end()
    return found


def blocks(text: str, language: str) -> list[CodeBlock]:
    """The blocks in one language that run as pasted."""
    return [block for block in all_blocks(text) if block.language == language and not block.is_fragment]


def goes_on_from_first_job(text: str) -> bool:
    """Whether the page's code needs the `app.py` of the page about the first job."""
    return "next to the `app.py` of [The first job]" in " ".join(text.split())


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of a page between `<!-- name -->` and `<!-- /name -->`, written by a program and verified by a test.

    Attributes:
        page: file name of a page of the handbook, or the path of another file.
        name: the name in the marks.
    """

    page: str | Path
    name: str

    def read(self) -> str:
        """The block's current text.

        Raises:
            ValueError: the page lacks a mark.
        """
        return self._parts()[1]

    def write(self, text: str) -> None:
        """Replace it."""
        before, _, after = self._parts()
        (FOLDER / self.page).write_text(before + text + after)

    def _parts(self) -> tuple[str, str, str]:
        text = (FOLDER / self.page).read_text()
        begin, end = f"<!-- {self.name} -->\n", f"<!-- /{self.name} -->"
        start = text.index(begin) + len(begin)
        stop = text.index(end, start)
        return text[:start], text[start:stop], text[stop:]
