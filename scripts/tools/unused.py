"""Files of the wheel without the imports and aliases that only types used which are not in the wheel either.

A name stays if its file still has it, in code or as a word of a text that is not a docstring; if a module of the
package imports it from there; if any code has an attribute of this name; and if it is imported as itself (`x as x`),
which makes it one of the module's own. Only what a module does first of all is looked at: imports within functions or
`try` stay, and so does `import a.b`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cache
from typing import Final, NamedTuple

Import = ast.Import | ast.ImportFrom
IsUsed = Callable[[str], bool]
_ALIAS: Final = ast.Name | ast.Attribute | ast.Subscript | ast.BinOp | ast.Tuple | ast.List | ast.Constant
"""What aliases of types are made of."""
_PARTS: Final = ast.expr_context | ast.BitOr
_VARIABLES_OF_TYPES: Final = ("TypeVar", "ParamSpec")


class _Facts(NamedTuple):
    """What the text of a file has.

    Attributes:
        words: names that it uses.
        taken: module and name of all that it imports from a module; '' for the module of attributes, which may be any.
        is_annotated: whether it has a type that Python would evaluate without the import from `__future__`.
    """

    tree: ast.Module
    words: frozenset[str]
    taken: frozenset[tuple[str, str]]
    is_annotated: bool


def without_unused(files: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of all Python files of the package, by their paths, without what nothing uses.

    Each line stays where it is.
    """
    found, last = dict(files), dict[str, str]()
    while found != last:  # a module need not have what no other imports from it any more
        last = found
        taken = frozenset[tuple[str, str]]().union(*(_facts(text).taken for text in last.values()))
        found = {path: _without_unused(path, text, taken) for path, text in last.items()}
    return found


@cache
def _facts(text: str) -> _Facts:
    tree = ast.parse(text)
    return _Facts(tree, frozenset(_words(tree)), frozenset(_taken(tree)), any(map(_is_annotated, ast.walk(tree))))


def _without_unused(path: str, text: str, taken: Set[tuple[str, str]]) -> str:
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    facts = _facts(text)
    lines = text.splitlines(keepends=True)

    def is_used(name: str) -> bool:
        return name in facts.words or (module, name) in taken or ("", name) in taken

    for node, left in _changed(facts.tree.body, is_used):
        lines[node.lineno - 1 : node.end_lineno] = ["\n"] * ((node.end_lineno or 0) - node.lineno + 1)
        lines[node.lineno - 1] = f"{' ' * node.col_offset}{left}\n" if left else "\n"
    if not facts.is_annotated:
        lines = ["\n" if line == "from __future__ import annotations\n" else line for line in lines]
    return "".join(lines)


def _taken(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", each.name) for each in node.names)
        elif isinstance(node, ast.Attribute):
            yield "", node.attr


def _words(tree: ast.AST) -> Iterator[str]:
    """Names that code uses, and words of texts: `__all__`, tables of names and types within quotes have names."""
    others = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    others |= {id(node.args[0]) for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_variable(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in others:
            yield from re.findall(r"\w+", node.value)


def _changed(body: Iterable[ast.stmt], is_used: IsUsed) -> Iterator[tuple[ast.stmt, str]]:
    """Statements of which something is not used, each with what is left of it; '' for nothing."""
    for node in body:
        if isinstance(node, Import) and not _is_future(node):
            kept = [each for each in node.names if _is_kept(node, each, is_used)]
            if kept != node.names:
                yield node, _import_of(node, kept) if kept else ""
        elif isinstance(node, ast.Assign) and _is_alias(node) and not any(map(is_used, _targets(node))):
            yield node, ""
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            changed = list(_changed(node.body, is_used))
            is_gone = [each for each, left in changed if not left] == node.body and not node.orelse
            yield from [(node, "")] if is_gone else changed


def _is_future(node: Import) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _is_kept(node: Import, each: ast.alias, is_used: IsUsed) -> bool:
    name = each.asname or each.name
    is_own = each.asname == each.name or name == "*" or (isinstance(node, ast.Import) and "." in each.name)
    return is_own or is_used(name)


def _import_of(node: Import, kept: list[ast.alias]) -> str:
    """The statement with these names only."""
    if isinstance(node, ast.Import):
        return ast.unparse(ast.Import(kept))
    return ast.unparse(ast.ImportFrom(node.module, kept, node.level))


def _is_alias(node: ast.Assign) -> bool:
    """Whether it is an alias of types, or a variable for types; making it has no other effect."""
    value = node.value
    if isinstance(value, ast.Call):
        return _is_variable(value)
    is_made = isinstance(value, ast.Subscript | ast.BinOp)
    return is_made and all(isinstance(each, _ALIAS | _PARTS) for each in ast.walk(value))


def _is_variable(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in _VARIABLES_OF_TYPES


def _targets(node: ast.Assign) -> Iterator[str]:
    """The names that it sets; those of attributes are never unused."""
    return (ast.unparse(each) for each in node.targets)


def _is_annotated(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.returns is not None
    return isinstance(node, ast.AnnAssign) or (isinstance(node, ast.arg) and node.annotation is not None)
