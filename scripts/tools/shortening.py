"""Source files of the wheel without what only readers of the repository need.

Comments go, and docstrings and types of internals. Docstrings and types of public names stay, and docstrings of
commands, which are their help. Each line stays where it is, so tracebacks lead to the same lines as in the repository.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_HELP: Final = re.compile(r"schedq/cli/|.*/management/commands/")
"""Files whose docstrings are shown by commands."""
_TYPED: Final = re.compile(r"schedq/(integrations|dependencies|testing)/")
"""Files whose functions may be given to frameworks, which read their types."""
_PARTS_OF_STRINGS: Final = {getattr(tokenize, name, -1) for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END")}
_REFERENCE: Final = Path(__file__).resolve().parents[2] / "schedq" / "handbook" / "reference.md"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def public_words(reference: str | None = None) -> frozenset[str]:
    """Every word of the reference: the names of all public classes, functions and methods are among them."""
    return frozenset(re.findall(r"\w+", _REFERENCE.read_text() if reference is None else reference))


def shortened(path: str, text: str, public: frozenset[str]) -> str:
    """Return the text of a Python file without comments, and without docstrings and types of what is not public.

    Args:
        path: its path in the wheel.
        text: its text.
        public: names whose docstrings and types stay.
    """
    public = public | set(_methods(ast.parse(text), public))
    if not _TYPED.match(path):
        text = _without_types(text, public)
    lines = text.splitlines(keepends=True)
    if not _HELP.match(path):
        for node, is_alone in _unneeded(ast.parse(text), public):
            assert node.end_lineno is not None
            lines[node.lineno - 1 : node.end_lineno] = ["\n"] * (node.end_lineno - node.lineno + 1)
            if is_alone:
                lines[node.lineno - 1] = " " * node.col_offset + '""\n'
    return _less_indented(_without_comments("".join(lines)))


def _less_indented(text: str) -> str:
    """The text with a space for each level; lines within strings stay as they are."""
    lines = text.splitlines(keepends=True)
    inside: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING or token.type in _PARTS_OF_STRINGS:
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
    for row, line in enumerate(lines, 1):
        if row not in inside:
            code = line.lstrip(" ")
            lines[row - 1] = " " * ((len(line) - len(code)) // 4) + code
    return "".join(lines)


def _methods(tree: ast.AST, public: frozenset[str]) -> Iterator[str]:
    """The names of the methods of public classes; the reference leaves out those of data."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in public:
            yield from (each.name for each in node.body if isinstance(each, Function) and each.name[0] != "_")


def _without_types(text: str, public: frozenset[str]) -> str:
    """The text without the annotations of functions that are not public; those of methods such as `__init__` stay."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]  # positions count bytes
    for begin, end in sorted(_annotations(ast.parse(text), public, lines), reverse=True):
        (row, column), (last_row, last_column) = begin, end
        breaks = b"".join(b"\n" for _ in range(row, last_row))
        lines[row - 1 : last_row] = [lines[row - 1][:column] + breaks + lines[last_row - 1][last_column:]]
        lines[row - 1 : row] = lines[row - 1].splitlines(keepends=True)
    return b"".join(lines).decode()


def _annotations(
    tree: ast.AST, public: frozenset[str], lines: Sequence[bytes]
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where they begin and end: row and column behind the name of a parameter, or of the arrow, and behind the type."""
    for variable in _variables(tree):
        kind, target = variable.annotation, variable.target
        yield (target.end_lineno or 0, target.end_col_offset or 0), (kind.end_lineno or 0, kind.end_col_offset or 0)
    for node in ast.walk(tree):
        if not isinstance(node, Function) or node.name in public or node.name.startswith("__") or node.decorator_list:
            continue
        arguments = node.args
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
            if each is not None and each.annotation is not None:
                assert each.annotation.end_lineno is not None
                assert each.annotation.end_col_offset is not None
                begin = each.lineno, each.col_offset + len(each.arg.encode())
                yield begin, (each.annotation.end_lineno, each.annotation.end_col_offset)
        if (found := node.returns) is not None:
            assert found.end_lineno is not None
            assert found.end_col_offset is not None
            arrow = lines[found.lineno - 1].rfind(b" ->", 0, found.col_offset)
            if arrow >= 0:
                yield (found.lineno, arrow), (found.end_lineno, found.end_col_offset)


def _variables(node: ast.AST, *, is_local: bool = False) -> Iterator[ast.AnnAssign]:
    """Annotated variables of functions, and those of modules that are not public, if they get a value there."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name) and child.value is not None:
            if is_local or (isinstance(node, ast.Module) and child.target.id[0] == "_"):
                yield child
        elif not isinstance(child, ast.ClassDef):
            yield from _variables(child, is_local=is_local or isinstance(child, Function))


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
