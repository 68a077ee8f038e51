"""Draws what `scripts/chaos --workflows` starts."""

from __future__ import annotations

import random
from typing import Any, Final

from scripts.tools.chaos.workflows_graphs import nodes
from scripts.tools.chaos.workflows_plan import Plan, Program, allowed, failing

_KINDS: Final = {
    "steps": 10, "sleeps": 8, "talk": 8, "patience": 8, "calls": 8, "map": 6, "wide": 2, "failures": 4, "gather": 8,
    "race": 8, "late": 3, "over": 6, "cancelled": 6, "ruin": 3, "undoable": 4, "undone": 6, "undone_cancelled": 8,
    "undone_nested": 3, "graph": 10, "graph_cancelled": 3, "graph_mended": 3, "undone_kept": 4, "undone_late": 4,
    "mended": 4, "mended_map": 2, "batch": 9, "large_batch": 1, "failed_batch": 3, "mended_batch": 4,
    "cancelled_batch": 3, "chain": 7, "failed_chain": 2, "mended_chain": 2,
}  # fmt: skip
"""Kind of a plan → its weight."""
_LARGEST: Final = (500, 1000, 2000)
_LEAST_KEEP_S: Final = 60


def drawn(seed: int, number: int) -> Plan:
    """The plan of this number."""
    draw = random.Random(f"{seed} {number}")
    (kind,) = draw.choices(list(_KINDS), list(_KINDS.values()))
    plan: Plan = getattr(_Draw(draw, number), f"_{kind}")()
    plan.name = kind
    return plan


class _Draw:
    """The plans; each method is named after its kind."""

    def __init__(self, draw: random.Random, number: int) -> None:
        self._draw, self._number, self._labels = draw, number, 0

    # -- runs

    def _run(self, program: Program, *acts: list[Any], ends: str = "completed") -> Plan:
        return Plan(self._number, "run", {"program": program}, [[0, "start"], *acts], ends)

    def _label(self) -> str:
        self._labels += 1
        return f"o{self._labels}"

    def _step(self) -> list[Any]:
        failures = self._draw.choice((0, 0, 0, 1, 2))
        return ["step", self._label(), failures, self._draw.random() < 0.5, self._long()]

    def _sleep(self) -> list[Any]:
        return ["sleep", self._label(), self._draw.choice((50, 300, 700, 1500, 3000))]

    def _flags(self, total: int, share: float, flag: str) -> dict[str, str]:
        some = {str(n): "once" for n in range(total) if self._draw.random() < 0.03}
        return some | {str(n): flag for n in range(total) if self._draw.random() < share}

    def _map_of(self, total: int, tolerate: float = 0, share: float = 0.0, flag: str = "bad") -> list[Any]:
        flags = self._flags(total, share, flag)
        return ["map", self._label(), total, self._draw.choice((1, 3, 8, 20)), tolerate, flags, self._ms()]

    def _ms(self) -> int:
        return self._draw.choice((0, 5, 20, 100))

    def _long(self) -> int:
        """How long a step or a link takes, in ms: now and then longer than a lease."""
        return self._draw.choices((0, 50, 400, 1500, 6000), (30, 30, 25, 14, 1))[0]

    def _sends(self, topic: str, count: int) -> list[list[Any]]:
        return [[self._draw.choice((0.0, 0.2, 0.6, 1.5, 2.5)), "send", topic, n] for n in range(count)]

    def _steps(self) -> Plan:
        return self._run([self._step() for _ in range(self._draw.randint(2, 6))])

    def _sleeps(self) -> Plan:
        until = ["until", self._label(), self._draw.choice((500, 2000, 4000))]
        return self._run([self._step(), self._sleep(), until, self._sleep(), self._step()])

    def _talk(self) -> Plan:
        count = self._draw.randint(1, 5)
        program: Program = [["receive", self._label(), "news"] for _ in range(count)]
        program.insert(self._draw.randint(0, count), self._step())
        return self._run(program, *self._sends("news", count))

    def _patience(self) -> Plan:
        count = self._draw.randint(1, 3)
        ms = self._draw.choice((200, 700, 1500))
        return self._run(
            [["patience", self._label(), "news", ms] for _ in range(count)] + [self._step()],
            *self._sends("news", count),
        )

    def _calls(self) -> Plan:
        inner: Program = [self._step(), self._sleep(), self._step()]
        program: Program = [
            ["call", self._label(), self._draw.choice(("ok", "once", "bad"))],
            ["nested", self._label(), inner],
        ]
        self._draw.shuffle(program)
        return self._run([self._step(), *program])

    def _map(self) -> Plan:
        return self._run([self._step(), self._map_of(self._draw.randint(0, 60)), self._step()])

    def _wide(self) -> Plan:
        return self._run([self._map_of(self._draw.choice((100, 200, 300)), 0.1, 0.02), self._step()])

    def _failures(self) -> Plan:
        return self._run([self._map_of(self._draw.randint(10, 40), self._draw.choice((0, 0.2, 2)), 0.1), self._step()])

    def _gather(self) -> Plan:
        branches: list[Program] = [
            [self._step(), self._sleep(), self._step()],
            [["receive", self._label(), "left"], self._step()],
            [self._map_of(self._draw.randint(1, 15))],
            [["patience", self._label(), "right", 700], self._sleep()],
        ]
        self._draw.shuffle(branches)
        sends = self._sends("left", 1) + self._sends("right", 1)
        self._draw.shuffle(sends)
        return self._run([self._step(), ["gather", self._label(), branches], self._step()], *sends)

    def _race(self) -> Plan:
        ms = self._draw.choice((300, 800, 2000))
        return self._run([self._step(), ["race", self._label(), "go", ms], self._step()], *self._sends("go", 1))

    def _late(self) -> Plan:
        late = ["late", self._label(), self._draw.choice((300, 2000)), 3, self._draw.choice((800, 2000)), 400]
        return self._run([late, self._step(), ["sleep", self._label(), self._draw.choice((1000, 25_000))]])

    def _over(self) -> Plan:
        times = self._draw.randint(1, 4)
        program = [self._step(), ["receive", self._label(), "news"], self._sleep(), ["over", self._label(), times]]
        return self._run(program, *self._sends("news", times + 1))

    def _cancelled(self) -> Plan:
        waits: list[list[Any]] = [
            ["receive", self._label(), "never"],
            ["sleep", self._label(), 3_600_000],
            ["map", self._label(), 2000, self._draw.choice((2, 6)), 0, {}, 500],
            ["gather", self._label(), [[["map", self._label(), 2000, 3, 0, {}, 500]], [self._sleep(), self._step()]]],
        ]
        after = self._draw.choice((0.0, 0.5, 2.0, 4.0))
        return self._run([self._step(), self._draw.choice(waits)], [after, "cancel"], ends="cancelled")

    def _ruin(self) -> Plan:
        return self._run([self._step(), ["ruin", self._label(), "bad"]], ends="failed")

    def _undoable_step(self, flag: str = "ok") -> list[Any]:
        _, label, *more = self._step()
        return ["undoable", label, flag, *more, self._draw.choice((0, 0, 0, 1, 2))]

    def _undoable_steps(self) -> Program:
        """Some, of which others may be in branches."""
        program = [self._undoable_step() for _ in range(self._draw.randint(1, 4))]
        if self._draw.random() < 0.4:
            branches: list[Program] = [
                [self._undoable_step() for _ in range(2)],
                [self._sleep(), self._undoable_step()],
            ]
            program.insert(self._draw.randint(0, len(program)), ["gather", self._label(), branches])
        return program

    def _undoable(self) -> Plan:
        program = [*self._undoable_steps(), self._sleep(), ["receive", self._label(), "news"], self._undoable_step()]
        return self._run(program, *self._sends("news", 1))

    def _undone(self) -> Plan:
        ruins = [["ruin", self._label(), "bad"], self._undoable_step("bad")]
        pause = self._draw.choice(([], [self._sleep()]))
        return self._run([*self._undoable_steps(), *pause, self._draw.choice(ruins)], ends="failed")

    def _undone_cancelled(self) -> Plan:
        waits: list[list[Any]] = [
            ["receive", self._label(), "never"],
            ["sleep", self._label(), 3_600_000],
            ["map", self._label(), 2000, self._draw.choice((2, 6)), 0, {}, 500],
        ]
        after = self._draw.choice((0.0, 0.3, 1.0, 2.0, 4.0))
        return self._run([*self._undoable_steps(), self._draw.choice(waits)], [after, "cancel"], ends="cancelled")

    def _undone_nested(self) -> Plan:
        inner: Program = [*self._undoable_steps(), ["receive", self._label(), "never"]]
        after = self._draw.choice((1.0, 3.0, 6.0))
        program = [self._undoable_step(), ["nested", self._label(), inner]]
        return self._run(program, [after, "cancel"], ends="cancelled")

    def _undone_late(self) -> Plan:
        plan = self._run([*self._undoable_steps(), ["receive", self._label(), "never"]], ends="failed")
        plan.what["is_hurried"], plan.error = True, "run_timeout"
        return plan

    def _graph(self) -> Plan:
        flag = self._draw.choice(("ok", "ok", "ok", "bad"))
        return self._run(
            [self._step(), ["graph", self._label(), nodes(self._draw, self._label, self._ms, flag)], self._step()]
        )

    def _graph_mended(self) -> Plan:
        return self._run(
            [["graph", self._label(), nodes(self._draw, self._label, self._ms, "mended")], self._step()],
            *self._mends("requeue"),
        )

    def _graph_cancelled(self) -> Plan:
        nodes = [
            ["map", self._label(), [], 2000, self._draw.choice((2, 6)), 500],
            ["call", self._label(), [0], "ok", 0],
        ]
        after = self._draw.choice((0.5, 2.0, 4.0))
        return self._run([self._step(), ["graph", self._label(), nodes]], [after, "cancel"], ends="cancelled")

    def _undone_kept(self) -> Plan:
        again = [["over", self._label(), self._draw.randint(0, 2)]]
        program = [*self._undoable_steps(), ["keep", self._label()], *again, *self._undoable_steps()]
        return self._run([*program, ["ruin", self._label(), "bad"]], ends="failed")

    def _mended(self) -> Plan:
        program = [self._step(), ["ruin", self._label(), "mended"], self._sleep(), self._step()]
        return self._run(program, *self._mends("requeue"))

    def _mended_map(self) -> Plan:
        total = self._draw.randint(5, 40)
        operation = self._map_of(total, 0, 0.1, "mended")
        operation[5]["0"] = "mended"
        return self._run([operation, self._step()], *self._mends("requeue"))

    def _mends(self, again: str) -> list[list[Any]]:
        return [[0.2, "expect", "failed"], [0, "mend"], [0, again]]

    # -- batches and chains

    def _of(self, total: int, *acts: list[Any], share: float = 0.0, flag: str = "bad", **more: Any) -> Plan:
        draw, flags = self._draw, self._flags(total, share, flag)
        what: dict[str, Any] = {
            "total": total,
            "concurrency": draw.choice((2, 10, 50, None)),
            "tolerate": 0,
            "flags": flags,
        }
        what |= {"ms": self._ms(), "keep": draw.choice((_LEAST_KEEP_S, 3600))} | more
        is_followed = draw.random() < 0.5 and not any("cancel" in act for act in acts)  # it waits for the end
        follow = [[0, "follow"]] if is_followed else []
        status = "failed" if len(failing(flags, is_mended=True)) > allowed(total, what["tolerate"]) else "completed"
        return Plan(self._number, "batch", what, [[0, "start"], *follow, *acts], status)

    def _batch(self) -> Plan:
        tolerate = self._draw.choice((0, 0, 0.1))
        return self._of(self._draw.randint(10, 120), share=0.03 if tolerate else 0.0, tolerate=tolerate)

    def _large_batch(self) -> Plan:
        return self._of(self._draw.choice(_LARGEST), tolerate=0.05, share=0.01, concurrency=50, ms=0)

    def _failed_batch(self) -> Plan:
        return self._of(self._draw.randint(10, 80), share=0.2)

    def _mended_batch(self) -> Plan:
        plan = self._of(self._draw.randint(10, 80), *self._mends("retry"), share=0.2, flag="mended", keep=3600)
        plan.what["flags"]["0"] = "mended"
        return plan

    def _cancelled_batch(self) -> Plan:
        after = self._draw.choice((0.0, 1.0, 3.0))
        plan = self._of(2000, [after, "cancel"], concurrency=self._draw.choice((2, 6, 20)), ms=500, keep=3600)
        plan.ends = "cancelled"
        return plan

    def _links(self, flag: str, *acts: list[Any]) -> Plan:
        total = self._draw.randint(2, 8)
        flags = self._flags(total, 0, flag) | ({} if flag == "ok" else {str(self._draw.randrange(total)): flag})
        what = {"total": total, "flags": flags, "ms": self._long()}
        return Plan(self._number, "chain", what, [[0, "start"], *acts], "failed" if flag == "bad" else "completed")

    def _chain(self) -> Plan:
        return self._links("ok")

    def _failed_chain(self) -> Plan:
        return self._links("bad")

    def _mended_chain(self) -> Plan:
        return self._links("mended", *self._mends("retry"))
