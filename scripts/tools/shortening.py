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
from typing import Final, NamedTuple

_HELP: Final = re.compile(r"schedq/cli/|.*/management/commands/")
"""Files whose docstrings are shown by commands."""
_INTERNAL: Final = re.compile(
    r"schedq/(background|connection|dashboard|doctor|inspect|isolation|model|queue|schedules|transitions|worker|workflows)/"
)
_TYPED: Final = re.compile(r"schedq/(integrations|dependencies|testing)/")
"""Files whose functions may be given to frameworks, which read their types."""
_PARTS_OF_STRINGS: Final = {getattr(tokenize, name, -1) for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END")}
_REFERENCE: Final = Path(__file__).resolve().parents[2] / "schedq" / "handbook" / "reference.md"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


class Public(NamedTuple):
    """Names that users see.

    Attributes:
        words: every word of the reference, which may be a name of a module outside of the internal ones.
        top: functions and classes.
        methods: methods and properties.
    """

    words: frozenset[str]
    top: frozenset[str]
    methods: frozenset[str]

    @classmethod
    def of(cls, reference: str | None = None) -> Public:
        """The names in the handbook's reference."""
        text = _REFERENCE.read_text() if reference is None else reference
        top, methods = (frozenset(re.findall(mark, text, re.MULTILINE)) for mark in (r"^- `(\w+)", r"^ +- `\.(\w+)"))
        return cls(frozenset(re.findall(r"\w+", text)), top | {"create_app"}, methods)

    def here(self, path: str, tree: ast.AST) -> Public:
        """The names of a file: those of internal modules are public only as the reference has them."""
        found = self if _INTERNAL.match(path) else Public(self.words, self.words, self.words)
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name in found.top]
        members = {
            each.name for node in classes for each in node.body if isinstance(each, Function) and each.name[0] != "_"
        }
        return found._replace(methods=found.methods | members)

    def has(self, node: ast.AST, parent: ast.AST) -> bool:
        """Whether users see this definition; functions within functions are never seen."""
        if not isinstance(node, Definition) or isinstance(parent, Function):
            return False
        return node.name in (self.methods if isinstance(parent, ast.ClassDef) else self.top)


def shortened(path: str, text: str, public: Public) -> str:
    """Return the text of a Python file without comments, and without docstrings and types of what is not public.

    Args:
        path: its path in the wheel.
        text: its text.
        public: names whose docstrings and types stay.
    """
    public = public.here(path, ast.parse(text))
    if not _TYPED.match(path):
        text = _without_types(text, public)
    lines = text.splitlines(keepends=True)
    if not _HELP.match(path):
        tree = ast.parse(text)
        for node, is_alone in _unneeded(tree, tree, public):
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


def _without_types(text: str, public: Public) -> str:
    """The text without the annotations of functions that are not public; those of methods such as `__init__` stay."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]  # positions count bytes
    for begin, end in sorted(_annotations(ast.parse(text), public, lines), reverse=True):
        (row, column), (last_row, last_column) = begin, end
        breaks = b"".join(b"\n" for _ in range(row, last_row))
        lines[row - 1 : last_row] = [lines[row - 1][:column] + breaks + lines[last_row - 1][last_column:]]
        lines[row - 1 : row] = lines[row - 1].splitlines(keepends=True)
    return b"".join(lines).decode()


def _annotations(
    tree: ast.AST, public: Public, lines: Sequence[bytes]
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where they begin and end: row and column behind the name of a parameter, or of the arrow, and behind the type."""
    for variable in _variables(tree):
        target = variable.target
        yield (target.end_lineno or 0, target.end_col_offset or 0), _end_of(variable.annotation)
    for node in _functions(tree, public):
        arguments = node.args
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
            if each is not None and each.annotation is not None:
                yield (each.lineno, each.col_offset + len(each.arg.encode())), _end_of(each.annotation)
        if (returns := node.returns) is not None:
            arrow = lines[returns.lineno - 1].rfind(b" ->", 0, returns.col_offset)
            if arrow >= 0:
                yield (returns.lineno, arrow), _end_of(returns)


def _end_of(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _functions(node: ast.AST, public: Public) -> Iterator[Function]:
    """Functions that are not public, except those that a decorator or Python itself may look at."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            is_plain = not (child.name.startswith("__") or child.decorator_list)
            if is_plain and not public.has(child, node):
                yield child
        yield from _functions(child, public)


def _variables(node: ast.AST, *, is_local: bool = False) -> Iterator[ast.AnnAssign]:
    """Annotated variables of functions, and those of modules that are not public, if they get a value there."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name) and child.value is not None:
            if is_local or (isinstance(node, ast.Module) and child.target.id[0] == "_"):
                yield child
        else:
            inside = isinstance(child, Function) or (is_local and not isinstance(child, ast.ClassDef))
            yield from _variables(child, is_local=inside)


def _without_comments(text: str) -> str:
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    return "".join(lines)


def _unneeded(node: ast.AST, parent: ast.AST, public: Public) -> Iterator[tuple[ast.Expr, bool]]:
    """The docstrings below a node that no help shows, and whether each is all that its body has."""
    is_public = public.has(node, parent)
    if isinstance(node, ast.Module | Definition):
        for number, each in enumerate(node.body):
            if isinstance(each, ast.Expr) and _is_text(each.value) and not (number == 0 and is_public):
                yield each, len(node.body) == 1
    for child in ast.iter_child_nodes(node):
        yield from _unneeded(child, node, public)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
