"""The Lua scripts of the wheel with short names for what they declare, and without most spaces.

All scripts and fragments get the same names, because a script uses the functions of the fragments that it includes.
Names of keys and arguments stay: Python passes them by name. So do fields of tables and names of Lua's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from string import ascii_letters
from typing import Final

_HEADER: Final = re.compile(r"\A--\[\[.*?\]\]\n", re.DOTALL)
_TOKEN: Final = re.compile(
    r"--[^\n]*|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|(?P<name>[A-Za-z_]\w*)|\d[\w.]*|[=~<>]=|\.\.+|\s+|.", re.DOTALL
)
_DECLARED: Final = re.compile(
    r"\blocal\s+(?!function\b)(\w+(?:\s*,\s*\w+)*)|\bfor\s+(\w+(?:\s*,\s*\w+)*)\s*(?:=|\bin\b)"
    r"|\bfunction\b\s*(\w*)\s*\(([^)]*)\)"
)
_OF_LUA: Final = frozenset(
    re.findall(
        r"\w+",
        """
        ARGV KEYS and assert bit break cjson cmsgpack do else elseif end error false for function if in ipairs
        local math next nil not or os pairs pcall rawget rawset redis repeat return select setmetatable string
        struct table then tonumber tostring true type unpack until while
        """,
    )
)
_OPENED: Final = frozenset(("{", "(", "[", "function", "if", "do", "repeat"))
_TIGHT: Final = frozenset(("=", "==", "~=", "<", "<=", ">", ">=", "+", "*", "/", "%", ","))
"""Tokens that need no space before or after them; next to a dot or a minus, one may be needed."""
_CLOSED: Final = frozenset(("}", ")", "]", "end", "until"))


def with_short_names(scripts: Mapping[str, str]) -> dict[str, str]:
    """The texts of all scripts and fragments, by path, without comments except headers and includes."""
    names = _short_names(scripts.values())
    return {path: "".join(_renamed(text, names)) for path, text in scripts.items()}


def _short_names(texts: Iterable[str]) -> dict[str, str]:
    """A name of one or two letters for each declared one that is longer, the shortest for those that occur most."""
    counts = Counter(name for text in texts for name, is_variable in _names(text) if is_variable)
    words = {word for text in texts for word in re.findall(r"\w+", _header(text))}
    passed = words | {f"{word}_start" for word in words}
    declared = {
        name
        for text in texts
        for groups in _DECLARED.findall(_code(text))
        for name in re.findall(r"\w+", ",".join(groups))
        if len(name) > 2
    }
    changed = sorted(declared - passed - _OF_LUA, key=lambda name: (-counts[name] * len(name), name))
    taken = {*counts, *_OF_LUA} - set(changed)
    free = ("".join(letters) for size in (1, 2) for letters in product(ascii_letters, repeat=size))
    return dict(zip(changed, (name for name in free if name not in taken), strict=False))


def _header(text: str) -> str:
    found = _HEADER.match(text)
    return found[0] if found else ""


def _code(text: str) -> str:
    """The text without header and includes."""
    return re.sub(r"^--.*$", "", text[len(_header(text)) :], flags=re.MULTILINE)


def _renamed(text: str, names: Mapping[str, str]) -> Iterator[str]:
    yield _header(text)
    found = [*_names(text[len(_header(text)) :])]
    tokens = ["", *(token for token, _ in found), ""]
    for nth, (token, is_variable) in enumerate(found):
        if token.strip(" ") or _TIGHT.isdisjoint((tokens[nth], tokens[nth + 2])):
            yield names.get(token, token) if is_variable else token


def _names(text: str) -> Iterator[tuple[str, bool]]:
    """Each token after the header, and whether it is the name of a variable; a field of a table is none."""
    found = list(_TOKEN.finditer(text[len(_header(text)) :]))
    solid = [each for each in found if not each[0].isspace()]
    fields = set()
    opened: list[str] = []
    for before, each, after in zip([None, *solid], solid, [*solid[1:], None], strict=False):
        if before is not None and each["name"]:
            is_key = opened[-1:] == ["{"] and before[0] in "{,;" and after is not None and after[0] == "="
            if before[0] in (".", ":") or is_key:
                fields.add(each.start())
        if each[0] in _OPENED:
            opened.append(each[0])
        elif each[0] in _CLOSED:
            opened.pop()
    for each in found:
        yield each[0], each["name"] is not None and each.start() not in fields
