"""The moves, one `.lua` file each, loaded by content: two releases can share one Redis during a deploy.

A file may say `--@include _name` on a line of its own; the fragment `_name.lua` stands there instead. Fragments
include nothing themselves. Redis knows a script by the SHA-1 of its text, so EVALSHA is sent and EVAL only to
a server that answers NOSCRIPT.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^--@include (_\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One move as Redis gets it.

    Attributes:
        name: the verb.
        source: the text, includes filled in, comments left out.
        sha: SHA-1 of the text, hex, by which Redis knows it.
    """

    name: str
    source: str
    sha: str


@cache
def load(name: str) -> Script:
    """The script `name`.lua."""
    return script(name, text(name))


def script(name: str, source: str) -> Script:
    """A script of this text; includes are filled in, comments and indentation left out."""
    whole = _INCLUDE.sub(lambda found: text(found[1]), source)
    whole = re.sub(r"--\[\[.*?\]\]", "", whole, flags=re.DOTALL)
    lines = (re.sub(r"(^|\s)--.*$", "", line).strip() for line in whole.splitlines())
    shipped = "\n".join(line for line in lines if line)
    return Script(name, shipped, hashlib.sha1(shipped.encode(), usedforsecurity=False).hexdigest())


def text(name: str) -> str:
    """The file as it is, comments and all."""
    return files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
