"""Find phrases that a native technical writer would not use. The number of lines that contain one may only fall.

    python -m scripts.tools.phrases [--accept]

`phrases.toml` lists the phrases, and `phrases_left.toml` the number of lines per file that still contain one. The
check fails if a file has more such lines, and also if it has fewer, until `--accept` records the lower number. It reads
pages, comments, docstrings, strings in Python, and templates. The exit code is 0 if nothing has changed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
LIST: Final = Path(__file__).with_name("phrases.toml")
LEFT: Final = Path(__file__).with_name("phrases_left.toml")
NOT_OURS: Final = re.compile(
    r"scripts/tools/phrases\.toml|examples/guide/|tests/laws/test_words\.py|tests/tools/test_phrases\.py|schedq/LICENSE|\.json$"
)
"""The list itself and its test, programs written from other guides, and the list of retired words."""
GENERATED: Final = re.compile(r"^<!-- (bench|chaos|crashes|moves|reasons|reference) -->$")
"""Generated blocks of pages: their text is checked where it comes from."""

_PYTHON: Final = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<prefix>\b[rRbBfFuU]{1,2}|)(?:
        (?P<three>\"{3}|'{3})(?P<long>(?:[^\\]|\\.)*?)(?P=three)
        |(?P<one>["'])(?P<short>(?:(?!(?P=one))[^\\\n]|\\.)*)(?P=one)
    )""",
    re.DOTALL | re.VERBOSE,
)


class Phrase(NamedTuple):
    """An expression to avoid.

    Attributes:
        say: what to write instead.
        finds, leaves: examples that the expression must match and must not match.
    """

    pattern: re.Pattern[str]
    say: str
    finds: tuple[str, ...]
    leaves: tuple[str, ...]


class Found(NamedTuple):
    """A phrase in a line of prose."""

    path: str
    line: int
    text: str
    say: str


PHRASES: Final = tuple(
    Phrase(re.compile(each["pattern"], re.IGNORECASE), each["say"], tuple(each["finds"]), tuple(each["leaves"]))
    for each in tomllib.loads(LIST.read_text())["phrase"]
)


def main(arguments: list[str]) -> int:
    """Compare with the recorded numbers, print what changed, and return the exit code."""
    everything = list(find_all())
    now = Counter(path for path, _ in {(found.path, found.line) for found in everything})
    if arguments == ["--accept"]:
        LEFT.write_text(written(now))
        return 0
    left = Counter(tomllib.loads(LEFT.read_text())["lines"])
    for path in sorted(now.keys() | left.keys()):
        if now[path] > left[path]:
            print(f"phrases: {path} has {now[path]} lines to reword, and had {left[path]}:", file=sys.stderr)
            for found in everything:
                if found.path == path:
                    print(f"  {found.path}:{found.line}: {found.text!r}: {found.say}", file=sys.stderr)
        elif now[path] < left[path]:
            print(f"phrases: {path} got better; keep it so: python -m scripts.tools.phrases --accept", file=sys.stderr)
    return int(now != left)


def written(lines: Counter[str]) -> str:
    """The text of phrases_left.toml."""
    head = "# Lines per file that still have a phrase of phrases.toml; scripts/tools/phrases.py writes it.\n[lines]\n"
    return head + "".join(f'"{path}" = {count}\n' for path, count in sorted(lines.items()) if count)


def find_all() -> Iterator[Found]:
    """Every phrase in every file of the repository."""
    said = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for path in said.stdout.splitlines():
        if (ROOT / path).is_file() and not NOT_OURS.search(path):
            yield from find(path)


def find(path: str) -> Iterator[Found]:
    """The phrases in one file."""
    for line, text in prose(path):
        for phrase in PHRASES:
            for match in phrase.pattern.finditer(text):
                yield Found(path, line + text.count("\n", 0, match.start()), match[0], phrase.say)


def prose(path: str) -> Iterator[tuple[int, str]]:
    """Pieces of prose in a file, each with the number of its first line."""
    suffix = Path(path).suffix
    reader = {".py": of_python, ".lua": of_lua, ".md": of_markdown, ".html": of_template, ".toml": of_comments}.get(
        suffix
    )
    if reader is None and suffix == "" and path.startswith(("scripts/", ".ci/")):
        reader = of_comments
    if reader is not None:
        yield from reader((ROOT / path).read_text())


def of_python(text: str) -> Iterator[tuple[int, str]]:
    """Docstrings, other strings that contain a space, and comments.

    An expression finds them: `ast` and `tokenize` would take ten times as long, for every file of the repository.
    Strings with nothing between them are one text.
    """
    start, end, parts = 0, 0, list[str]()
    for match in _PYTHON.finditer(text):
        if comment := match["comment"]:
            yield text.count("\n", 0, match.start()) + 1, comment.lstrip("# ")
            continue
        if parts and text[end : match.start()].strip():
            yield from _of_string(text, start, parts)
            parts = []
        if not parts:
            start = match.start()
        end = match.end()
        body = match["long"] or match["short"] or ""
        parts.append(re.sub(r"\{[^{}]*\}", "", body) if "f" in match["prefix"].lower() else body)
    yield from _of_string(text, start, parts)


def _of_string(text: str, start: int, parts: Sequence[str]) -> Iterator[tuple[int, str]]:
    joined = "".join(parts)
    if " " in joined:
        yield text.count("\n", 0, start) + 1, joined


def of_lua(text: str) -> Iterator[tuple[int, str]]:
    """Comments: a block, or from -- to the end of the line."""
    for match in re.finditer(r"--\[\[(?P<block>.*?)\]\]|--(?![\[@])(?P<line>[^\n]*)", text, re.DOTALL):
        yield text.count("\n", 0, match.start()) + 1, match["block"] or match["line"] or ""


def of_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside of fenced and generated blocks, with what stands between backticks left out."""
    skipping = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if skipping:
            skipping = "" if line.startswith(skipping) else skipping
        elif line.startswith("```"):
            skipping = "```"
        elif block := GENERATED.match(line):
            skipping = f"<!-- /{block[1]} -->"
        else:
            yield number, re.sub(r"`[^`]*`", "", line)


def of_template(text: str) -> Iterator[tuple[int, str]]:
    """Text outside of tags and expressions."""
    for number, line in enumerate(text.splitlines(), start=1):
        yield number, re.sub(r"<[^>]*>|\{[{%#].*?[}%#]\}", "", line)


def of_comments(text: str) -> Iterator[tuple[int, str]]:
    """From # to the end of the line."""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := re.search(r"(?:^|\s)#(?!!) ?(.*)", line):
            yield number, match[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
