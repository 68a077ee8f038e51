"""The rows of `--peers`: what is measured, and for whom. Instants are those of the monotonic clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from scripts.tools.bench import processes
from scripts.tools.bench.arena import Arena, Mark, TroubleError
from scripts.tools.bench.throughput import Figures, MakeArena
from scripts.tools.bench.workflows.flows import FLOWS

HELD: Final = 1_000_000
CALLED: Final = 2_000_000
AFTER: Final = 3_000_000
"""Numbers in marks that are none of children; as in contestants/flowing.py."""
PATIENCE_S: Final = 100
"""How long a continuation may take after the worker was killed."""
FIGURE: Final = "figure"
"""The name of the one figure that each row has."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured.

    Attributes:
        turns: how often each run repeats what is short, as long as ten seconds have not passed.
        fan_outs: the same for the batch of many children.
    """

    turns: int
    fan_outs: int
    children: int
    waiting: int


FULL: Final = Amount(turns=20, fan_outs=3, children=1000, waiting=10_000)
QUICK: Final = Amount(turns=3, fan_outs=1, children=1000, waiting=10_000)


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement of one figure.

    Attributes:
        who: the contestants that have this.
        is_once: measured once whatever `--runs` says.
    """

    name: str
    title: str
    measure: Callable[[MakeArena, Amount], float | str]
    who: tuple[str, ...]
    is_once: bool = False

    def figures(self, make: MakeArena, amount: Amount) -> Figures:
        """The figure, by its name."""
        return {FIGURE: self.measure(make, amount)}


def by_turn(marks: Iterable[Mark]) -> list[list[Mark]]:
    """The marks of each turn, in the order of time."""
    found: dict[float, list[Mark]] = {}
    for mark in sorted(marks, key=lambda mark: mark.at):
        found.setdefault(mark.reference, []).append(mark)
    return [found[turn] for turn in sorted(found)]


def only(marks: Iterable[Mark], number: int) -> Mark:
    """The first mark with this number."""
    return next(mark for mark in marks if mark.number == number)


def children(marks: Iterable[Mark]) -> list[Mark]:
    """The marks of children, jobs of a chain, or steps."""
    return [mark for mark in marks if mark.number < HELD]


def gap_ms(turn: Sequence[Mark]) -> float:
    """From the last child to the continuation."""
    return 1000 * (only(turn, AFTER).at - max(mark.at for mark in children(turn)))


def rate(turn: Sequence[Mark]) -> float:
    """Children a second, from the call to the continuation."""
    return len(children(turn)) / (only(turn, AFTER).at - only(turn, CALLED).at)


def pace(turn: Sequence[Mark]) -> float:
    """Steps a second, from the first to the last."""
    steps = children(turn)
    return (len(steps) - 1) / (steps[-1].at - steps[0].at)


def _turns(make: MakeArena, shape: str, count: int, times: int) -> list[list[Mark]]:
    with make() as arena:
        _start(arena)
        arena.produce("turns", shape, count, times)
        return by_turn(arena.marks())


def _start(arena: Arena) -> None:
    kind = arena.contestant.kinds[0]
    arena.start(kind)
    arena.produce("fill", kind, 20)
    arena.wait_for(21, 60)
    arena.pause(0.5)
    arena.forget()


def after(make: MakeArena, amount: Amount) -> float:
    """How soon the continuation follows the last of 100 children, in ms."""
    return statistics.median(map(gap_ms, _turns(make, "batch", 100, amount.turns)))


def fan_out(make: MakeArena, amount: Amount) -> float:
    """Children a second."""
    return statistics.median(map(rate, _turns(make, "batch", amount.children, amount.fan_outs)))


def memory(make: MakeArena, amount: Amount) -> float:
    """Bytes of Redis for a child that waits."""
    with make() as arena:
        arena.produce("wait", 100)
        before = arena.store.info("memory")["used_memory"]
        arena.produce("wait", amount.waiting)
        arena.pause(0.5)
        return float(arena.store.info("memory")["used_memory"] - before) / amount.waiting


def steps(make: MakeArena, amount: Amount) -> float:
    """Steps a second of one run."""
    return statistics.median(map(pace, _turns(make, "steps", 100, amount.turns)))


def chain(make: MakeArena, amount: Amount) -> float:
    """Jobs a second of a chain."""
    return statistics.median(map(pace, _turns(make, "chain", 100, amount.turns)))


def killed(make: MakeArena, _amount: Amount) -> float | str:
    """SIGKILL the worker while it runs the last of 100 children, and start it again: seconds to the continuation."""
    with make(setting="short") as arena:
        worker = arena.start(arena.contestant.kinds[0])
        arena.produce("hold", 100)
        arena.wait_for(100, 60)
        arena.pause(1)
        if any(mark.number == AFTER for mark in arena.marks()):
            raise TroubleError(f"{arena.contestant.name}: the continuation ran before the last child had ended")
        processes.kill([worker])
        at = time.monotonic()
        arena.start(arena.contestant.kinds[0])
        return _continued(arena, at)


def _continued(arena: Arena, killed_at: float) -> float | str:
    while time.monotonic() < killed_at + PATIENCE_S:
        if found := [mark.at for mark in arena.marks() if mark.number == AFTER]:
            return found[0] - killed_at
        arena.pause(0.05)
    return f"no (waited {PATIENCE_S} s)"


_ALL: Final = tuple(FLOWS)
_CHAINS: Final = ("schedq", "celery", "bullmq_node", "rq")

ROWS: Final = {
    row.name: row
    for row in (
        Row("after", "from the last of 100 children to the continuation, ms", after, _ALL),
        Row("fan-out", "1,000 children, from the call to the continuation, children/s", fan_out, _ALL),
        Row("memory", "10,000 children that wait, bytes of Redis each", memory, _CHAINS),
        Row("steps", "one run of 100 durable steps, steps/s", steps, ("schedq", "dbos", "dbos_unsynced")),
        Row("chain", "a chain of 100 jobs, jobs/s", chain, _CHAINS),
        Row("killed", "worker killed in the last of 100 children: continuation after, s", killed, _ALL, is_once=True),
    )
}
