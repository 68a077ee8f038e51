"""A server that accepts only the users of the roles, and the tests' own."""

from __future__ import annotations

import re

from schedq.transitions import scripts

_FUNCTION = re.compile(r"^local function (\w+)\(.*?(?: end|\nend)$", re.MULTILINE | re.DOTALL)


def called(script: str) -> frozenset[str]:
    """The commands that a script may call: functions of its fragments that it does not use are left out."""
    text = re.sub(r"\A--\[\[.*?\]\]\n", "", scripts.text(script), flags=re.DOTALL)
    while "--@include " in text:
        text = re.sub(
            r"^ *--@include (\w+)$", lambda found: scripts.text(f"shared/{found[1]}"), text, flags=re.MULTILINE
        )
    text = re.sub(r"--.*", "", text)
    while unused := [found[0] for found in _FUNCTION.finditer(text) if len(re.findall(rf"\b{found[1]}\b", text)) == 1]:
        for function in unused:
            text = text.replace(function, "")
    counts = (
        dict(re.findall(r"(\w+) = '([A-Z]+)'", re.findall(r"^local COUNT = (.*)$", text, re.MULTILINE)[0]))
        if "COUNT" in text
        else {}
    )
    named = {counts[kind] for kind in re.findall(r"wrong_type\('(\w+)'", text)}
    return frozenset(name.lower() for name in named.union(re.findall(r"redis\.p?call\('([A-Z]+)'", text)))
