"""The pages that people read: the README and the handbook."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from schedq.handbook import FOLDER

ROOT: Final = Path(__file__).parents[1]
README: Final = (ROOT / "README.md").read_text()
PAGES: Final = {
    path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "README.md", *sorted(FOLDER.glob("*.md")))
}
"""The text of each page, by its path in the checkout."""


def page(name: str) -> str:
    """The text of a handbook page."""
    return (FOLDER / name).read_text()
