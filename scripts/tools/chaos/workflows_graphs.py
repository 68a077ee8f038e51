"""Draws the flows that `scripts/chaos --workflows` starts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any


def nodes(draw: random.Random, label: Callable[[], str], ms: Callable[[], int], flag: str = "ok") -> list[list[Any]]:
    """A flow: calls of earlier calls, a map, a race, what follows in any case, and a last node that joins all."""
    found: list[list[Any]] = []
    whole: list[int] = []
    for _ in range(draw.randint(1, 8)):
        before = draw.sample(whole, draw.randint(0, min(3, len(whole))))
        found.append(["call", label(), before, draw.choice(("ok", "ok", "ok", "once")), ms()])
        whole.append(len(found) - 1)
    if draw.random() < 0.5:
        found.append(["map", label(), [whole[-1]], draw.randint(0, 30), draw.choice((1, 4, 20)), ms()])
        whole.append(len(found) - 1)
    if draw.random() < 0.5:
        name, at = label(), len(found)
        flags = draw.choice((("ok", "ok"), ("bad", "ok"), ("ok", "once")))
        found += [["call", f"{name}|{n}", [], flags[n], draw.choice((0, 20, 400))] for n in range(2)]
        found.append(["first", name, [at, at + 1]])
        whole.append(len(found) - 1)
    found.append(["ended", label(), draw.sample(whole, 1), ms()])
    if flag != "ok":
        found.append(["call", label(), [], flag, ms()])
        whole.append(len(found) - 1)
        found += [[kind, label(), [whole[-1]], ms()] for kind in ("failure", "ended")]
    return [*found, ["call", label(), whole, "ok", ms()]]
