"""The Lua scripts: how their files are read, how Redis gets them, and how Python passes keys and arguments by name.

A script is next to the Python module that sends it. Its header is its contract: what it does, its keys and arguments
by name, what it returns.

    --[[
    Delete the oldest entries of a list.

    KEYS  log (list), stats (hash)
    RARE  gates (hash)
    ARGV  prefix, jobs, clock
          limit (number): the most entries to delete
          ids...: entries to keep
    Returns  how many were deleted
    ]]

Redis receives keys and arguments in this order. The word in parentheses is the type of a key, or how an argument is
read: `number` uses tonumber, so '' is nil; `flag` compares it to 1; every other argument is text. Only the last
argument may repeat; Lua then gets the index of its first value: `ids...` becomes `ids_start`. The loader generates the
Lua that assigns each name its value. A `Binding` lists the names that a request passes; all others come from the queue.

`RARE` keys are those of the queue that few calls touch. Each key that is sent costs the client and Redis 0.5 µs of a
call that takes 100, so these are not sent: where the text names one, the loader puts an expression that builds the key
from `prefix`.

A line `--@include name` in a script is replaced by the fragment `transitions/shared/name.lua`. Fragments include
nothing themselves. Lua makes a fragment's functions again in each call, so a script includes what only some calls
need in the block that needs it. Redis identifies a script by the SHA-1 of its text, so two releases can share one
Redis. EVALSHA is sent first, and EVAL only after the reply NOSCRIPT.

On a cluster, PUBLISH sends a message to every node, so it costs more with each of them. There the loader makes the
scripts use SPUBLISH, which stays on the nodes of the slot. PUBLISH remains for what SPUBLISH can't do: Redis 6.2 lacks
it, a user may not be allowed to send it, and a queue's script reaches only channels of its own slot.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from operator import itemgetter
from typing import Any, Final, NamedTuple

from schedq.model import settings
from schedq.model.keys import Key, QueueKeys
from schedq.model.settings import Settings
from schedq.model.times import duration_ms

Argument = str | int
_HEADER: Final = re.compile(
    r"\A--\[\[\n.+?\n\nKEYS {2}(?P<keys>.+?)\n(?:RARE {2}(?P<rare>.+?)\n)?ARGV {2}(?P<args>.+?)\n"
    r"Returns {2}.+?\n\]\]\n",
    re.DOTALL,
)
_NAME: Final = re.compile(r"([a-z]\w*)(\.\.\.)?(?: \(([a-z ]+)\))?")
_READ_AS: Final = {None: "ARGV[{}]", "number": "tonumber(ARGV[{}])", "flag": "ARGV[{}] == '1'"}
_PUBLISH: Final = re.compile(r"redis\.pcall\('PUBLISH', ?")
_SHARDED: Final = """local function publish(channel, text)
if redis.REDIS_VERSION_NUM and type(redis.pcall('SPUBLISH', channel, text)) == 'number' then return end
redis.pcall('PUBLISH', channel, text)
end
"""
"""REDIS_VERSION_NUM is missing before Redis 7.0, where each unknown command would count as an error of the server."""
_PACKAGE: Final = files("schedq")
_PACKED: Final = "scripts.json"
"""A wheel has this file instead of the scripts, because it is smaller: see scripts/tools/package.py."""


class Script(NamedTuple):
    """A script as Redis gets it.

    Attributes:
        name: the verb.
        source: the text, with includes filled in and comments removed.
        sha: the SHA-1 of the text in hex, by which Redis identifies it.
    """

    name: str
    source: str
    sha: str


class Name(NamedTuple):
    """A key or an argument of a script, as in its header; `type` is None for an argument that is text."""

    name: str
    type: str | None
    repeats: bool

    @property
    def local(self) -> str:
        """Its name in Lua."""
        return f"{self.name}_start" if self.repeats else self.name


class Header(NamedTuple):
    """The keys and arguments of a script, in order, and its `rare` keys."""

    keys: tuple[Name, ...]
    args: tuple[Name, ...]
    rare: tuple[Name, ...]

    @property
    def names(self) -> frozenset[str]:
        """All names, as Python passes them."""
        return frozenset(each.name for each in (*self.keys, *self.args))

    def to_lua(self) -> str:
        """The Lua lines that assign all names their values."""
        keys = [f"KEYS[{n}]" for n in range(1, len(self.keys) + 1)]
        args = [str(n) if each.repeats else _READ_AS[each.type].format(n) for n, each in enumerate(self.args, 1)]
        return "".join(
            f"local {', '.join(each.local for each in names)} = {', '.join(values)}\n"
            for names, values in ((self.keys, keys), (self.args, args))
            if names
        )

    def with_rare_keys(self, source: str) -> str:
        """`source`, with an expression for each name of a rare key: `prefix .. 'gates'`."""
        if not self.rare:
            return source
        built = {each.name: f"(prefix .. '{vars(QueueKeys)[each.name].suffix}')" for each in self.rare}

        def replaced(found: re.Match[str]) -> str:
            before = source[: found.start()][-1:]
            return found[0] if re.match(r"[\w.:'\"]", before) else built[found[0]]

        # Not in texts, such as 'failed', nor fields of tables: {failed = true}. Python searches quickly only if the
        # pattern begins with the names.
        return re.sub(rf"(?:{'|'.join(built)})(?![\w'\"]|\s*=[^=])", replaced, source)


@cache
def load(name: str) -> Script:
    """Load the script `name`.lua.

    Raises:
        ValueError: it has no header, or the header is invalid or names something that the script does not use.
    """
    given = header(name)
    body = "\n".join(_code(text(name)))
    whole = given.with_rare_keys(body)
    if unused := sorted(
        [each.local for each in given.rare if each.local not in body]
        + [each.local for each in (*given.keys, *given.args) if each.local not in whole]
    ):
        raise ValueError(f"{name}.lua does not use all of its header: {', '.join(unused)}")
    return _identified(name, given.to_lua() + whole)


def of_queue(queue: Settings, name: str) -> Script:
    """The script `name`.lua as this queue sends it."""
    found = load(name)
    return _sharded(found) if queue.tagged else found


@cache
def _sharded(plain: Script) -> Script:
    """The same script for a queue on a cluster."""
    source, count = _PUBLISH.subn("publish(", plain.source)
    return _identified(plain.name, _SHARDED + source) if count else plain


@cache
def header(name: str) -> Header:
    """The header of the script `name`.lua.

    Raises:
        ValueError: it has none, or the header is invalid.
    """
    form = _HEADER.match(text(name))
    if form is None:
        raise ValueError(f"{name}.lua has no header of the form: what it does, KEYS, ARGV, Returns")
    found = Header(_names(name, form["keys"]), _names(name, form["args"]), _names(name, form["rare"] or "none"))
    _check_unique(f"{name}.lua", [each.name for each in (*found.keys, *found.args, *found.rare)])
    if any(each.repeats for each in (*found.keys, *found.args[:-1], *found.rare)):
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
                raise ValueError(f"{script}.lua: {part!r} is not a name with a type")
            found.append(Name(match[1], match[3], match[2] is not None))
    return tuple(found)


def _check_unique(where: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{where} names {name} twice")


def script(name: str, source: str) -> Script:
    """Make a script from its text; fills in includes, removes comments and indentation."""
    return _identified(name, "\n".join(_code(source)))


def _identified(name: str, shipped: str) -> Script:
    return Script(name, shipped, hashlib.sha1(shipped.encode(), usedforsecurity=False).hexdigest())


def _code(source: str) -> Iterator[str]:
    for line in map(str.strip, re.sub(r"--\[\[.*?\]\]", "", source, flags=re.DOTALL).split("\n")):
        if line.startswith("--@include "):
            yield _fragment(line.split()[1])
        elif line and not line.startswith("--"):
            yield line.partition(" --")[0].rstrip() if " --" in line else line


@cache
def _fragment(name: str) -> str:
    return "\n".join(_code(text(f"shared/{name}")))


def text(name: str) -> str:
    """The unchanged text of a script, or of the fragment `shared/name`, with its comments."""
    for folder in ("transitions", "schedules", "inspect"):
        path = _PACKAGE.joinpath(folder, f"{name}.lua")
        if path.is_file():
            return path.read_text(encoding="utf-8")
        if found := _packed().get(f"{folder}/{name}.lua"):
            return found
    raise LookupError(f"no script {name}.lua")


@cache
def _packed() -> dict[str, str]:
    """The texts by their paths in the package, if they are in one file."""
    path = _PACKAGE.joinpath(_PACKED)
    found: dict[str, str] = json.loads(path.read_bytes(), strict=False) if path.is_file() else {}
    return found


COMMON: Final[Mapping[str, Callable[[Settings], Argument]]] = {
    "prefix": lambda queue: queue.keys.prefix,
    "jobs": lambda queue: queue.keys.jobs,
    "wakes": lambda queue: queue.keys.wakes,
    "gate_keys": lambda queue: queue.keys.gate_keys,
    "group_keys": lambda queue: queue.keys.group_keys,
    "worker_keys": lambda queue: queue.keys.worker_keys,
    "definitions": lambda queue: queue.keys.definitions,
    "events": lambda queue: queue.keys.events,
    "due_channel": lambda queue: queue.keys.due,
    "clock": Settings.now_argument,
    "log_size": lambda queue: queue.log_size,
    "visibility_ms": lambda queue: queue.visibility_ms,
    "max_attempts": lambda queue: queue.max_attempts,
    "max_pending": lambda queue: "" if queue.max_pending is None else queue.max_pending,
    "min_keep_ms": lambda queue: duration_ms(queue.min_keep, "min_keep"),
    "completed_ttl_ms": lambda queue: _record_ttl_ms(queue, queue.completed_ttl),
    "failed_ttl_ms": lambda queue: "" if queue.failed_ttl is None else _record_ttl_ms(queue, queue.failed_ttl),
    "completed_history": lambda queue: queue.completed_history,
    "failed_history": lambda queue: queue.failed_history,
    "silence_ms": lambda _: 3000 * settings.HEARTBEAT_S,
}
"""Arguments that follow from the queue, so callers do not pass them.

All keys begin with `prefix`, keys of jobs with `jobs`, those of schedules with `definitions`, wake markers of tasks
with `wakes`, keys of gates with `gate_keys`, those of groups with `group_keys`, those of workers with `worker_keys`.
`events` and `due_channel` are channels. `clock` is the time, or '' for Redis's own. A worker that is silent for
`silence_ms` counts as dead. The rest are settings.
"""
_QUEUE_KEYS: Final = {name: found.suffix for name, found in vars(QueueKeys).items() if isinstance(found, Key)}


def _record_ttl_ms(queue: Settings, ttl: float) -> int:
    return max(duration_ms(ttl, "the ttl"), duration_ms(queue.min_keep, "min_keep"))


class Binding:
    """A script, with the names of the keys and arguments that its caller passes.

    All other names of its header come from the queue: keys of `QueueKeys` and `COMMON` arguments. These are read once
    per queue, and the order is determined once, so that a request costs one look-up per name.
    """

    def __init__(self, script: str, *given: str) -> None:
        self.script = script
        self.given = given
        self._plan: _Plan | None = None

    def __call__(
        self, queue: Settings, **given: Argument | Sequence[Argument]
    ) -> tuple[Script, tuple[str, ...], tuple[Argument, ...]]:
        """The script, its keys and its arguments for one request.

        Raises:
            TypeError: the given names are not those of the binding.
            ValueError: binding and header do not match, or a name occurs twice.
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
        return of_queue(queue, self.script), pick_keys(values) if keys is None else keys, args

    def _bind(self, queue: Settings) -> tuple[Any, ...]:
        """What all requests of this queue have in common; the keys are None if the caller passes some of them."""
        plan = self._plan = self._plan or self._planned()
        prefix, fixed = queue.keys.prefix, None
        keys = {name: prefix + suffix for name, suffix in plan.suffixes.items()}
        common = {name: COMMON[name](queue) for name in plan.common}
        if plan.is_fixed:
            fixed = plan.pick_keys(keys)
        else:
            common |= keys
        bound = (common, len(common) + len(self.given), fixed, plan.pick_keys, plan.pick_args, plan.repeating)
        queue.bound[self.script] = bound
        return bound

    def _planned(self) -> _Plan:
        """What all queues have in common."""
        where, ours, given = f"the binding of {self.script}.lua", header(self.script), frozenset(self.given)
        _check_unique(where, self.given)
        suffixes = {each.name: _QUEUE_KEYS[each.name] for each in ours.keys if each.name in _QUEUE_KEYS.keys() - given}
        common = tuple(each.name for each in ours.args if each.name in COMMON.keys() - given)
        if unknown := given - ours.names:
            raise ValueError(f"{where} gives {', '.join(sorted(unknown))}, which the header does not name")
        if missing := ours.names - given - suffixes.keys() - frozenset(common):
            raise ValueError(f"{where} does not give {', '.join(sorted(missing))}")
        return _Plan(
            suffixes,
            common,
            len(suffixes) == len(ours.keys),
            _picker([each.name for each in ours.keys]),
            _picker([each.name for each in ours.args if not each.repeats]),
            next((each.name for each in ours.args if each.repeats), ""),
        )


class _Plan(NamedTuple):
    """How a binding gets its values from a queue.

    Attributes:
        suffixes: of the queue's keys, by name.
        common: the names of the arguments that come from the queue.
        is_fixed: all keys are the queue's.
        pick_keys, pick_args: put keys and arguments in their order.
        repeating: the name of the argument that may repeat, or ''.
    """

    suffixes: dict[str, str]
    common: tuple[str, ...]
    is_fixed: bool
    pick_keys: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    pick_args: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    repeating: str


def _picker(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """A function that picks the values of these names, in this order."""
    return itemgetter(*names) if len(names) > 1 else lambda values: tuple(values[name] for name in names)
