"""What `scripts/chaos --workflows` starts, and what a run without faults returns.

A run's function performs a *program*: a list of operations, each [verb, label, ...], where the label is its name:

    step      failures (how many tries fail), whether it is async, ms that each try takes
    undoable  flag, failures, whether it is async, ms, how many tries of its undo fail: a step that can be undone
    keep      what was done until then is not undone
    sleep     ms
    until     ms after the run's beginning
    receive   topic
    patience  topic, ms: receive with that timeout, again until there is a message
    call      flag of the child
    nested    program of a run of its own
    map       total, concurrency, tolerate, {number: flag}, ms that each child takes
    gather    programs of the branches
    race      topic, ms: a message against a sleep; if that wins, the message is received afterwards
    late      total, concurrency, ms, ms of each child: a map that loses against a sleep
    graph     nodes of a flow, whose result is that of the last: each [kind, label, numbers of the nodes before, ...]:
                call   flag, ms: adds up what the nodes before came to, and its own value
                map    total, concurrency, ms of each child: what they come to, added up
                first  races the nodes before, which come to the same value
                ended  ms: runs after the nodes before, whatever they came to
                failure ms: runs if one of them failed
    ruin      flag: a step that fails for good, which ends the run
    over      how often the run starts over

A flag says how a child or a step goes: `ok`, `once` (its first try fails), `bad` (it fails for good), `mended` (it
fails for good until it is mended). The result is the list of what the operations came to.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Program = list[list[Any]]
FAILED: Final = "failed"
LOST_RACE: Final = "late"
_ALLOWED_TO_FAIL: Final = ("bad", "mended")


@dataclass
class Plan:
    """One run, batch or chain.

    Attributes:
        number: tells it from others; the ids of all that it has are derived from it.
        kind: run, batch or chain.
        what: a run's `program`, and `is_hurried` if it has a deadline; of a batch `total`, `concurrency`, `tolerate`,
            `flags`, `ms` and `keep`; of a chain its `flags`, by number, its `total` and `ms`.
        acts: what the producer does with it in turn, each [seconds to wait before, what, ...].
        ends: the status at the end.
        error: what the error of a run that fails says.
    """

    number: int
    kind: str
    what: dict[str, Any]
    acts: list[list[Any]]
    ends: str = "completed"
    name: str = ""
    error: str = "as planned"

    @property
    def id(self) -> str:
        return f"{self.kind}-{self.number}"

    @property
    def has(self) -> set[str]:
        """What the producer does with it."""
        return {act[1] for act in self.acts}

    @property
    def messages(self) -> dict[str, int]:
        """Topic → how many messages it gets."""
        return dict(Counter(act[2] for act in self.acts if act[1] == "send"))


def value_of(number: int, label: str, life: int = 0) -> int:
    """What a step or a single child returns."""
    return zlib.crc32(f"{number} {label} {life}".encode()) % 100_000


def child_value(number: int, label: str, n: int) -> int:
    """What a child of a map or a batch returns."""
    return zlib.crc32(f"{number} {label} {n}".encode()) % 1000


def link_value(n: int, before: int) -> int:
    """What a link of a chain returns."""
    return (before * 31 + n + 1) % 1_000_003


def joined_value(number: int, label: str, before: Sequence[int]) -> int:
    """What a node of a flow returns."""
    return (child_value(number, label, 0) + sum(before)) % 1000


def graph_value(number: int, nodes: Sequence[Sequence[Any]], *, is_mended: bool) -> int | None:
    """What a flow returns; None if it fails."""
    values: list[int | None] = []
    raced = {each for kind, _, sources, *_ in nodes if kind == "first" for each in sources}
    for n, (kind, label, sources, *more) in enumerate(nodes):
        before = [values[each] for each in sources]
        known = [value for value in before if value is not None]
        if kind == "map":
            values.append(sum(child_value(number, label, each) for each in range(more[0])) % 1000)
        elif kind == "first":
            values.append(known[0])
        elif kind == "call":
            fails = more[0] == "bad" or (more[0] == "mended" and not is_mended)
            if fails and n not in raced:
                return None
            values.append(None if fails else joined_value(number, label.partition("|")[0], known))
        else:
            values.append(None)
    return values[-1]


def chain_value(total: int) -> int:
    """What the last link of a chain returns."""
    value = 0
    for n in range(total):
        value = link_value(n, value)
    return value


def flag_of(flags: dict[str, str], n: int) -> str:
    """How the child of this number goes."""
    return flags.get(str(n), "ok")


def failing(flags: dict[str, str], *, is_mended: bool) -> set[int]:
    """The numbers of the children that fail for good."""
    return {int(n) for n, flag in flags.items() if flag == "bad" or (flag == "mended" and not is_mended)}


def allowed(total: int, tolerate: float) -> float:
    """How many children may fail."""
    return int(tolerate * total + 1e-9) if tolerate < 1 else tolerate


def child_values(number: int, label: str, total: int, flags: dict[str, str], *, is_mended: bool) -> list[int]:
    """What the children of a map or a batch return, in their order, without those that fail."""
    left_out = failing(flags, is_mended=is_mended)
    return [child_value(number, label, n) for n in range(total) if n not in left_out]


def operations(program: Program) -> Iterator[list[Any]]:
    """All operations of a program, also those of branches and nested runs."""
    for op in program:
        yield op
        for inner in op[2] if op[0] == "gather" else [op[2]] if op[0] == "nested" else ():
            yield from operations(inner)


def undoable(program: Program) -> set[str]:
    """The labels of the steps of a run that can be undone, without those of nested runs."""
    found: set[str] = set()
    for verb, label, *more in program:
        if verb == "undoable":
            found.add(label)
        for branch in more[0] if verb == "gather" else ():
            found |= undoable(branch)
    return found


def older(program: Program) -> Iterator[tuple[str, str]]:
    """Labels of two steps that can be undone, of which the first always begins and ends before the other one."""
    before: set[str] = set()
    for op in program:
        here = undoable([op])
        yield from itertools.product(sorted(before), sorted(here))
        before |= here
        for branch in op[2] if op[0] == "gather" else ():
            yield from older(branch)


@dataclass
class Outcome:
    """Works out what a run returns.

    Args:
        number: the number of its plan.
        is_mended: what can be mended was.
    """

    number: int
    is_mended: bool = False
    _taken: Counter[str] = field(default_factory=Counter)

    def of(self, program: Program, life: int = 0) -> list[Any]:
        """The result of the last life."""
        found = []
        for verb, label, *more in program:
            if verb == "over":
                if life < more[0]:
                    return self.of(program, life + 1)
            else:
                found.append(self._of(verb, label, more, life))
        return found

    def _of(self, verb: str, label: str, more: Sequence[Any], life: int) -> Any:
        if verb in ("sleep", "until", "keep"):
            return None
        if verb in ("receive", "patience", "race"):
            self._taken[more[0]] += 1
            return [more[0], self._taken[more[0]] - 1]
        if verb == "call":
            return FAILED if more[0] == "bad" else child_value(self.number, label, 0)
        if verb == "graph":
            value = graph_value(self.number, more[0], is_mended=self.is_mended)
            return FAILED if value is None else value
        if verb == "nested":
            return Outcome(self.number, self.is_mended).of(more[0])
        if verb == "gather":
            return [self.of(branch, life) for branch in more[0]]
        if verb == "late":
            return LOST_RACE
        if verb == "map":
            total, _, tolerate, flags, _ = more
            count = len(failing(flags, is_mended=self.is_mended))
            if count > allowed(total, tolerate):
                return [FAILED, count, total]
            return child_values(self.number, label, total, flags, is_mended=self.is_mended)
        return value_of(self.number, label, life)
