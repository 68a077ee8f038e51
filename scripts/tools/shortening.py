"""Source files of the wheel without what only readers of the repository need: comments, and docstrings of internals.

Docstrings of public names stay, and those of commands, which are their help. Each line stays where it is, so
tracebacks lead to the same lines as in the repository.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_HELP: Final = re.compile(r"schedq/cli/|.*/management/commands/")
"""Files whose docstrings are shown by commands."""
_REFERENCE: Final = Path(__file__).resolve().parents[2] / "schedq" / "handbook" / "reference.md"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def public_words(reference: str | None = None) -> frozenset[str]:
    """Every word of the reference: the names of all public classes, functions and methods are among them."""
    return frozenset(re.findall(r"\w+", _REFERENCE.read_text() if reference is None else reference))


def shortened(path: str, text: str, public: frozenset[str]) -> str:
    """Return the text of a Python file without comments and without docstrings of what is not public.

    Args:
        path: its path in the wheel.
        text: its text.
        public: names whose docstrings stay.
    """
    lines = text.splitlines(keepends=True)
    if not _HELP.match(path):
        for node, is_alone in _unneeded(ast.parse(text), public):
            assert node.end_lineno is not None
            lines[node.lineno - 1 : node.end_lineno] = ["\n"] * (node.end_lineno - node.lineno + 1)
            if is_alone:
                lines[node.lineno - 1] = " " * node.col_offset + '""\n'
    return _without_comments("".join(lines))


def _without_comments(text: str) -> str:
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    return "".join(lines)


def _unneeded(node: ast.AST, public: frozenset[str]) -> Iterator[tuple[ast.Expr, bool]]:
    """The docstrings below a node that no help shows, and whether each is all that its body has."""
    is_public = isinstance(node, Definition) and node.name in public
    if isinstance(node, ast.Module | Definition):
        for number, each in enumerate(node.body):
            if isinstance(each, ast.Expr) and _is_text(each.value) and not (number == 0 and is_public):
                yield each, len(node.body) == 1
    if isinstance(node, Function):  # a method of any class may be inherited by a public one
        public = frozenset()
    for child in ast.iter_child_nodes(node):
        yield from _unneeded(child, public)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
