"""Draw the state diagrams of a job, an attempt and a fetch loop from the tables in the code.

    python -m scripts.tools.diagrams

Writes the pictures of the architecture page. It needs `dot` (package graphviz). Each picture names the digest of its
source text, so that a test can detect an outdated picture without `dot`.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from schedq.handbook import FOLDER
from schedq.model.lifecycle import JOB_STATES, MOVES
from schedq.worker import attempt, fetcher

_STYLE: Final = """\
  rankdir=LR; bgcolor=white; pad=0.2; nodesep=0.3; ranksep=0.7
  node [shape=box, style="rounded,filled", fillcolor="#f3f6fb", color="#51637f", fontname="sans-serif", fontsize=12]
  edge [color="#51637f", fontcolor="#333333", fontname="sans-serif", fontsize=10]"""
_NEXT_LINE: Final = r"\n"
MANY: Final = 3
_DIGEST: Final = re.compile(r"<desc>(.*?)</desc>")
_NOT_SEEN: Final = re.compile(r"<!--.*?-->\n?|<title>.*?</title>\n?| (id|class|xmlns:xlink)=\"[^\"]*\"", re.DOTALL)
_BOX: Final = re.compile(r'<path( fill="#[^>]*?) d="([^"]*)"/>')


def main() -> int:
    """Write all pictures; returns the exit code."""
    for name, text in drawings().items():
        try:
            done = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"diagrams: dot is missing (package graphviz): {error}", file=sys.stderr)
            return 1
        svg = slim(done.stdout[done.stdout.index("<svg") :])
        head, end, rest = svg.partition(">\n")
        (FOLDER / name).write_text(f"{head}{end}<desc>{digest(text)}</desc>\n{rest}")
    return 0


def drawings() -> dict[str, str]:
    """The source text of each picture, by file name."""
    jobs = [(move.name, [place or "not stored" for place in move.source], move.target) for move in MOVES]
    return {
        "life-of-a-job.svg": drawn(
            (name, sources, target or "deleted")
            for name, sources, targets in jobs
            if len(sources) < len(JOB_STATES) - 2  # purge and delete lead from everywhere
            for target in targets
        ),
        "life-of-an-attempt.svg": drawn((each.name, each.sources, each.target) for each in attempt.TRANSITIONS),
        "life-of-a-fetch-loop.svg": drawn((each.name, each.sources, each.target) for each in fetcher.TRANSITIONS),
    }


def drawn(ways: Iterable[tuple[str, Sequence[str], str]]) -> str:
    """The source text for `dot`: one arrow from state to state, labeled with the names of all transitions.

    A transition from many states starts at a box of its own, which names them.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for name, sources, target in ways:
        begins = (
            [f"from {', '.join(sources[:2])},{_NEXT_LINE}{', '.join(sources[2:])}"] if len(sources) > MANY else sources
        )
        for begin in begins:
            names.setdefault((begin, target), []).append(name.replace("_", " "))
    boxes = sorted({begin for begin, _ in names if begin.startswith("from ")})
    return "\n".join(
        [
            "digraph {",
            _STYLE,
            *(f'  "{box}" [shape=plaintext, style="", fontsize=10]' for box in boxes),
            *(
                f'  "{begin}" -> "{target}" [label="{_NEXT_LINE.join(found)}"]'
                for (begin, target), found in names.items()
            ),
            "}",
            "",
        ]
    )


def slim(svg: str) -> str:
    """A picture of `dot` without invisible text, its coordinates in whole points: a third as large."""
    svg = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.0f}", _NOT_SEEN.sub("", svg))
    svg = _BOX.sub(_rectangle, svg)
    for same in (' text-anchor="middle"', ' font-family="sans-serif"'):
        svg = svg.replace(same, "").replace("<svg", f"<svg{same}", 1)
    return svg


def _rectangle(path: re.Match[str]) -> str:
    """A box with round corners, which `dot` draws as a path of 17 points."""
    numbers = [int(number) for number in re.findall(r"-?\d+", path[2])]
    left, top = min(numbers[::2]), min(numbers[1::2])
    width, height = max(numbers[::2]) - left, max(numbers[1::2]) - top
    return f'<rect{path[1]} x="{left}" y="{top}" width="{width}" height="{height}" rx="12"/>'


def digest(text: str) -> str:
    """A digest of a source text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def drawn_from(name: str) -> str:
    """The digest of the source text that a picture names."""
    found = _DIGEST.search((FOLDER / name).read_text())
    return found[1] if found else ""


if __name__ == "__main__":
    sys.exit(main())
