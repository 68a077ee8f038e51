"""The scripts: what their files say, how Redis gets them, and how Python names what it sends them.

A script stands beside the Python that sends it. Its header is its contract: what it does, its keys and arguments by
name, what it returns.

    --[[
    Delete the oldest entries of a list.

    KEYS  log (list), stats (hash)
    ARGV  jobs, clock
          limit (number): most entries to delete
          ids...: entries to keep
    Returns  how many were deleted
    ]]

Redis receives keys and arguments in this order. The word in parentheses is the type of a key, or how an argument is
read: `number` is tonumber, so '' is nil; `flag` is whether it is 1; every other argument is text. Only the last one may
repeat; Lua then knows the index of its first value: `ids...` gives `ids_start`. The loader writes the Lua that gives
each name its value. A `Binding` names what a request gives; all other names are the queue's.

A script may say `--@include name` on a line of its own: the fragment `transitions/shared/name.lua` stands there
instead. Fragments include nothing themselves. Redis knows a script by the SHA-1 of its text, so two releases can share
one Redis; EVALSHA is sent, and EVAL only to a server that replies NOSCRIPT.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from operator import itemgetter
from typing import Any, Final, NamedTuple

from schedq.model import settings
from schedq.model.keys import Key, QueueKeys
from schedq.model.settings import KEEP_ALL, Settings
from schedq.model.times import duration_ms

Argument = str | int
_HEADER: Final = re.compile(
    r"\A--\[\[\n.+?\n\nKEYS {2}(?P<keys>.+?)\nARGV {2}(?P<args>.+?)\nReturns {2}.+?\n\]\]\n", re.DOTALL
)
_NAME: Final = re.compile(r"([a-z]\w*)(\.\.\.)?(?: \(([a-z ]+)\))?")
_READ_AS: Final = {None: "ARGV[{}]", "number": "tonumber(ARGV[{}])", "flag": "ARGV[{}] == '1'"}
_PACKAGE: Final = files("schedq")


class Script(NamedTuple):
    """One move as Redis gets it.

    Attributes:
        name: the verb.
        source: the text, includes filled in, comments left out.
        sha: SHA-1 of the text, hex, by which Redis knows it.
    """

    name: str
    source: str
    sha: str


class Name(NamedTuple):
    """A key or an argument of a script, as the header has it; `type` is None for an argument that is text."""

    name: str
    type: str | None
    repeats: bool

    @property
    def local(self) -> str:
        """What it is called in Lua."""
        return f"{self.name}_start" if self.repeats else self.name


class Header(NamedTuple):
    """What a script is given, in this order."""

    keys: tuple[Name, ...]
    args: tuple[Name, ...]

    @property
    def names(self) -> frozenset[str]:
        """All names, as Python gives them."""
        return frozenset(each.name for each in (*self.keys, *self.args))

    def to_lua(self) -> str:
        """The lines that give all names their values."""
        keys = [f"KEYS[{n}]" for n in range(1, len(self.keys) + 1)]
        args = [str(n) if each.repeats else _READ_AS[each.type].format(n) for n, each in enumerate(self.args, 1)]
        return "".join(
            f"local {', '.join(each.local for each in names)} = {', '.join(values)}\n"
            for names, values in ((self.keys, keys), (self.args, args))
            if names
        )


@cache
def load(name: str) -> Script:
    """The script `name`.lua.

    Raises:
        ValueError: it has no header, or one that can't be bound, or that names what its text does not have.
    """
    given = header(name)
    values = given.to_lua()
    loaded = script(name, values + text(name))
    body = loaded.source[len(values) :]
    if unused := sorted(each.local for each in (*given.keys, *given.args) if each.local not in body):
        raise ValueError(f"{name}.lua does not use all of its header: {', '.join(unused)}")
    return loaded


@cache
def header(name: str) -> Header:
    """The contract of the script `name`.lua.

    Raises:
        ValueError: it has none, or one that can't be bound.
    """
    form = _HEADER.match(text(name))
    if form is None:
        raise ValueError(f"{name}.lua has no header of the form: what it does, KEYS, ARGV, Returns")
    found = Header(_names(name, form["keys"]), _names(name, form["args"]))
    _check_unique(f"{name}.lua", [each.name for each in (*found.keys, *found.args)])
    if any(each.repeats for each in (*found.keys, *found.args[:-1])):
        raise ValueError(f"{name}.lua: only the last argument may repeat")
    for each in found.args:
        if each.type not in _READ_AS:
            raise ValueError(f"{name}.lua: an argument is text, number or flag; {each.name} is {each.type!r}")
    return found


def _names(script: str, block: str) -> tuple[Name, ...]:
    found: list[Name] = []
    for line in re.split(r"\n {6}(?! )", block) if block != "none" else ():
        for part in line.partition(":")[0].rstrip(",").split(", "):
            match = _NAME.fullmatch(part)
            if match is None:
                raise ValueError(f"{script}.lua: {part!r} is no name with a type")
            found.append(Name(match[1], match[3], match[2] is not None))
    return tuple(found)


def _check_unique(where: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{where} names {name} twice")


def script(name: str, source: str) -> Script:
    """A script of this text; includes are filled in, comments and indentation left out."""
    shipped = "\n".join(_code(source))
    return Script(name, shipped, hashlib.sha1(shipped.encode(), usedforsecurity=False).hexdigest())


def _code(source: str) -> Iterator[str]:
    for line in map(str.strip, re.sub(r"--\[\[.*?\]\]", "", source, flags=re.DOTALL).split("\n")):
        if line.startswith("--@include "):
            yield from _code(text(f"shared/{line.split()[1]}"))
        elif line and not line.startswith("--"):
            yield line.partition(" --")[0].rstrip()


def text(name: str) -> str:
    """The file of a script, or of the fragment `shared/name`, as it is, comments and all."""
    for folder in ("transitions", "schedules", "inspect"):
        path = _PACKAGE.joinpath(folder, f"{name}.lua")
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise LookupError(f"no script {name}.lua")


COMMON: Final[Mapping[str, Callable[[Settings], Argument]]] = {
    "jobs": lambda queue: queue.keys.jobs,
    "definitions": lambda queue: queue.keys.definitions,
    "events": lambda queue: queue.keys.events,
    "due_channel": lambda queue: queue.keys.due,
    "clock": Settings.now_argument,
    "log_size": lambda queue: queue.log_size,
    "visibility_ms": lambda queue: queue.visibility_ms,
    "max_attempts": lambda queue: queue.max_attempts,
    "max_pending": lambda queue: "" if queue.max_pending is None else queue.max_pending,
    "min_keep_ms": lambda queue: duration_ms(queue.min_keep, "min_keep"),
    "completed_ttl_ms": lambda queue: max(_record_ttl_ms(queue), 1),
    # A completed record that would expire at once is not kept at all.
    "completed_cap": lambda queue: (
        queue.completed_history if _record_ttl_ms(queue) or queue.completed_history == KEEP_ALL else 0
    ),
    "completed_history": lambda queue: queue.completed_history,
    "failed_history": lambda queue: queue.failed_history,
    "silence_ms": lambda _: 3000 * settings.HEARTBEAT_S,
}
"""Arguments that follow from the queue, so that no caller gives them.

Keys of jobs begin with `jobs`, those of schedules with `definitions`. `events` and `due_channel` are channels. `clock`
is the time, or '' for Redis's own. A worker that was silent for `silence_ms` does not count. The rest are settings.
"""
_QUEUE_KEYS: Final = frozenset(name for name, found in vars(QueueKeys).items() if isinstance(found, Key))


def _record_ttl_ms(queue: Settings) -> int:
    return max(duration_ms(queue.completed_ttl, "completed_ttl"), duration_ms(queue.min_keep, "min_keep"))


class Binding:
    """A script, with the names of the keys and arguments that its caller gives.

    All other names of its header are the queue's: keys of `QueueKeys`, and `COMMON` arguments. These are read once per
    queue, and the order of all is found once, so that a request costs one look-up per name.
    """

    def __init__(self, script: str, *given: str) -> None:
        self.script = script
        self.given = given

    def __call__(
        self, queue: Settings, **given: Argument | Sequence[Argument]
    ) -> tuple[Script, tuple[str, ...], tuple[Argument, ...]]:
        """The script, its keys and its arguments for one request.

        Raises:
            TypeError: other names were given than the binding says.
            ValueError: a name of the binding is missing in the header, or the other way round, or comes twice.
        """
        common, count, keys, pick_keys, pick_args, repeating = queue.bound.get(self.script) or self._bind(queue)
        values = {**common, **given}
        if len(given) != len(self.given) or len(values) != count:
            raise TypeError(f"{self.script}.lua takes {', '.join(self.given)}; given: {', '.join(given)}")
        if queue.clock is not None:
            values["clock"] = queue.now_argument()
        args = pick_args(values)
        if repeating:
            args += tuple(values[repeating])
        return load(self.script), pick_keys(values) if keys is None else keys, args

    def _bind(self, queue: Settings) -> tuple[Any, ...]:
        """What is the same in all requests of this queue; its keys are None if the caller gives some of them."""
        where, ours, given = f"the binding of {self.script}.lua", header(self.script), frozenset(self.given)
        _check_unique(where, self.given)
        keys = {each.name: getattr(queue.keys, each.name) for each in ours.keys if each.name in _QUEUE_KEYS - given}
        common = {each.name: COMMON[each.name](queue) for each in ours.args if each.name in COMMON.keys() - given}
        if unknown := given - ours.names:
            raise ValueError(f"{where} gives {', '.join(sorted(unknown))}, which the header does not name")
        if missing := ours.names - given - keys.keys() - common.keys():
            raise ValueError(f"{where} does not give {', '.join(sorted(missing))}")
        pick_keys, fixed = _picker([each.name for each in ours.keys]), None
        if len(keys) == len(ours.keys):
            fixed = pick_keys(keys)
        else:
            common |= keys
        pick_args = _picker([each.name for each in ours.args if not each.repeats])
        repeating = next((each.name for each in ours.args if each.repeats), "")
        bound = (common, len(common) + len(given), fixed, pick_keys, pick_args, repeating)
        queue.bound[self.script] = bound
        return bound


def _picker(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """What takes the values of these names, in this order."""
    return itemgetter(*names) if len(names) > 1 else lambda values: tuple(values[name] for name in names)
