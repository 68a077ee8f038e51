"""Files of the wheel without what only readers of the repository need.

Comments go, and docstrings and types of internals. Docstrings and types of public names stay, and docstrings of
commands, which are their help. Then imports and aliases that only types used go (see unused.py). Each line of code
stays where it is, so tracebacks lead to the same lines as in the repository. In pages, line breaks within paragraphs
go.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from markdown_it import MarkdownIt

_HELP: Final = re.compile(r"schedq/cli/|.*/management/commands/")
"""Files with commands, whose docstrings are their help."""
_SILENT: Final = re.compile(
    r"abstractmethod|asynccontextmanager|cache|cached_property|classmethod|contextmanager|dataclass|lru_cache|override|"
    r"property|setter|staticmethod|wraps"
)
"""Decorators of functions that are no commands."""
_INTERNAL: Final = re.compile(
    r"schedq/(background|cli|connection|dashboard|doctor|inspect|isolation|model|queue|schedules|transitions|worker|workflows)"
    "/"
)
_TYPED: Final = re.compile(r"schedq/(integrations|dependencies|testing)/")
"""Files whose functions may be given to frameworks, which read their types."""
_UNREAD: Final = re.compile(
    r"(click\.|functools\.)?(abstractmethod|argument|asynccontextmanager|cache|cached_property|classmethod|command|"
    r"contextmanager|group|lru_cache|option|pass_context|property|staticmethod|version_option|wraps|\w+\.setter)|"
    r"(?!renamed_)(\w+\.)?\w+_(argument|option|options)"
)
"""Decorators that read no types: of the standard library, of click, and the options of several commands."""
_PARTS_OF_STRINGS: Final = {getattr(tokenize, name, -1) for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END")}
_REFERENCE: Final = Path(__file__).resolve().parents[2] / "schedq" / "handbook" / "reference.md"
_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


class Public(NamedTuple):
    """Names that users see.

    Attributes:
        words: every word of the reference, which may be a name of a module outside of the internal ones.
        top: functions and classes.
        methods: methods and properties.
        bases: classes from which public ones inherit.
        decorators: functions that decorate others, whose types are what type checkers see of these.
        is_internal: whether a class or variable of the module is public only if it is one of these names.
    """

    words: frozenset[str]
    top: frozenset[str]
    methods: frozenset[str]
    bases: frozenset[str] = frozenset()
    decorators: frozenset[str] = frozenset()
    is_internal: bool = True

    @classmethod
    def of(cls, reference: str | None = None) -> Public:
        """The names in the handbook's reference."""
        text = _REFERENCE.read_text() if reference is None else reference
        top, methods = (frozenset(re.findall(mark, text, re.MULTILINE)) for mark in (r"^- `(\w+)", r"^ +- `\.(\w+)"))
        return cls(frozenset(re.findall(r"\w+", text)), top | {"create_app", "Dashboard"}, methods)

    def within(self, texts: Iterable[str]) -> Public:
        """The same names, with bases and decorators as the texts of all files have them."""
        nodes = [node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, Definition)]
        parents = {node.name: set(map(_name, node.bases)) for node in nodes if isinstance(node, ast.ClassDef)}
        seen, new = set[str](), set(self.top)
        while new:
            seen |= new
            new = set().union(*(parents.get(name, ()) for name in new)) - seen
        decorators = frozenset(_name(each) for node in nodes for each in node.decorator_list if _is_read(each))
        return self._replace(bases=frozenset(seen - self.top), decorators=decorators)

    def here(self, path: str, tree: ast.AST) -> Public:
        """The names of a file: those of internal modules are public only as the reference has them."""
        others = self._replace(top=self.words, methods=self.words, is_internal=False)
        found = self if _INTERNAL.match(path) else others
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name in found.top]
        members = {
            each.name for node in classes for each in node.body if isinstance(each, Function) and each.name[0] != "_"
        }
        return found._replace(methods=found.methods | members)

    def has(self, node: ast.AST, parent: ast.AST) -> bool:
        """Whether users see this definition; functions within functions are never seen."""
        if not isinstance(node, Definition) or isinstance(parent, Function):
            return False
        if isinstance(parent, ast.ClassDef):
            return node.name in self.methods and self.has_class(parent)
        return node.name in self.top

    def has_class(self, node: ast.ClassDef) -> bool:
        """Whether users see methods of this class, in itself or in one that inherits from it."""
        return not self.is_internal or node.name in self.top or node.name in self.bases


def _name(node: ast.expr) -> str:
    """`name` for `name`, `module.name`, `name(…)` and `name[…]`."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return ast.unparse(node).rpartition(".")[2]


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
    tree = ast.parse(text)
    shown = set(_help(tree)) if _HELP.match(path) else set()
    for node, is_alone in _unneeded(tree, tree, public):
        if node not in shown:
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
    """The text without the annotations of functions and variables that are not public."""
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
    for variable in _variables(tree, public):
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
    """Functions whose types neither users see, nor a decorator, a type checker or Python may look at."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function) and not (public.has(child, node) or _is_looked_at(child, node, public)):
            yield child
        yield from _functions(child, public)


def _is_looked_at(function: Function, parent: ast.AST, public: Public) -> bool:
    name, decorators = function.name, function.decorator_list
    if any(map(_is_read, decorators)) or (isinstance(parent, ast.Module) and name in public.decorators):
        return True
    if isinstance(parent, ast.ClassDef):
        if "Protocol" in map(_name, parent.bases):
            return True  # a method without a type would return None, which no class does that implements it
        if public.has_class(parent):
            return bool(decorators) or name.startswith("__")
    return name.startswith("__") and name != "__init__"


def _is_read(decorator: ast.expr) -> bool:
    """Whether the decorator may look at the types of what it decorates."""
    return not _UNREAD.fullmatch(ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator))


def _variables(node: ast.AST, public: Public, parents: tuple[ast.AST, ...] = ()) -> Iterator[ast.AnnAssign]:
    """Annotated variables that get a value: of functions, and attributes and those of modules that are not public."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.AnnAssign) and child.value is not None:
            if not _is_seen(child.target, (*parents, node), public):
                yield child
        else:
            yield from _variables(child, public, (*parents, node))


def _is_seen(target: ast.expr, parents: Sequence[ast.AST], public: Public) -> bool:
    """Whether users may see the type of a variable or an attribute; fields of classes are read by Python."""
    if isinstance(target, ast.Attribute):
        classes = (each for each in parents if isinstance(each, ast.ClassDef))
        return target.attr[0] != "_" and any(map(public.has_class, classes))
    scope = next(each for each in reversed(parents) if isinstance(each, ast.Module | Definition))
    if isinstance(scope, ast.Module) and isinstance(target, ast.Name):
        return target.id[0] != "_" and (target.id in public.top or not public.is_internal)
    return isinstance(scope, ast.ClassDef)


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


def _help(tree: ast.Module) -> Iterator[ast.stmt]:
    """First statements of functions that are commands: a decorator made them that, or code reads their docstring."""
    read = {_name(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "__doc__"}
    for node in ast.walk(tree):
        if isinstance(node, Function):
            makers = [each for each in map(_name, node.decorator_list) if not _SILENT.fullmatch(each)]
            if makers or node.name in read:
                yield node.body[0]


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def without_line_breaks(page: str) -> str:
    """Return the text of a page of the handbook with each paragraph in one line, which every reader shows the same."""
    lines, tokens = page.split("\n"), _MARKDOWN.parse(page)
    for token in reversed(tokens):
        begin, end = token.map or (0, 0)
        is_broken = any(each.type == "hardbreak" for each in token.children or ())
        following = [line.strip() for line in lines[begin + 1 : end]]
        if token.type == "inline" and not is_broken and not any(line.startswith(">") for line in following):
            lines[begin:end] = [" ".join([lines[begin], *following])]
    return "\n".join(lines)
