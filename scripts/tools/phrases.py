"""Look for phrases in prose that a native writer would not print: the number of lines that have one may only fall.

    python -m scripts.tools.phrases [--accept]

`phrases.toml` has the phrases, `phrases_left.toml` how many lines of each file still have one. A file with more lines
than that fails the check, and so does one with fewer, until `--accept` has written the lower number down. Prose is
what pages, comments, docstrings, texts of Python and templates say. The exit code is 0 if nothing has changed.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
LIST: Final = Path(__file__).with_name("phrases.toml")
LEFT: Final = Path(__file__).with_name("phrases_left.toml")
NOT_OURS: Final = re.compile(
    r"scripts/tools/phrases\.toml|examples/guide/|tests/laws/test_words\.py|schedq/LICENSE|\.json$"
)
"""The list itself, the programs of others, and the words that were retired."""
GENERATED: Final = re.compile(r"^<!-- (bench|chaos|crashes|moves|reasons|reference) -->$")
"""Blocks of pages that programs write: their words are found where they come from."""


class Phrase(NamedTuple):
    """What not to write.

    Attributes:
        say: what to write instead.
        finds, leaves: examples that the expression must and must not match.
    """

    pattern: re.Pattern[str]
    say: str
    finds: tuple[str, ...]
    leaves: tuple[str, ...]


class Found(NamedTuple):
    """One line of prose that has a phrase."""

    path: str
    line: int
    text: str
    say: str


PHRASES: Final = tuple(
    Phrase(re.compile(each["pattern"], re.IGNORECASE), each["say"], tuple(each["finds"]), tuple(each["leaves"]))
    for each in tomllib.loads(LIST.read_text())["phrase"]
)


def main(arguments: list[str]) -> int:
    """Compare with what is left, print what changed, and return the exit code."""
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
    """The file of what is left."""
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
    """Docstrings, other texts that have a space, and comments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


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
    """What is neither a tag nor an expression."""
    for number, line in enumerate(text.splitlines(), start=1):
        yield number, re.sub(r"<[^>]*>|\{[{%#].*?[}%#]\}", "", line)


def of_comments(text: str) -> Iterator[tuple[int, str]]:
    """From # to the end of the line."""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := re.search(r"(?:^|\s)#(?!!) ?(.*)", line):
            yield number, match[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
