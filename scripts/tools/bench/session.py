"""The order of a run: contestants alternate within each row, rows within each run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from scripts.tools.bench import hop, limit, quiet, scale
from scripts.tools.bench.arena import Arena, TroubleError, closing
from scripts.tools.bench.entries import Contestant
from scripts.tools.bench.environments import Environments, MissingEnvironmentError
from scripts.tools.bench.report import number
from scripts.tools.bench.rows import PACES, Row


class Session:
    """Takes the measurements and records the results."""

    def __init__(
        self,
        environments: Environments,
        binary: Path,
        found: dict[str, Any],
        say: Callable[[str], None],
        *,
        is_quick: bool,
    ) -> None:
        self._environments = environments
        self._binary = binary
        self._found = found
        self._say = say
        self._is_quick = is_quick

    def measure(
        self, rows: Sequence[Row], contestants: Sequence[Contestant], runs: int, after_run: Callable[[], object]
    ) -> None:
        """Measure all rows for all contestants that take part in them; with peers, only while the machine is quiet."""
        has_peers = len(contestants) > 1
        done = len(self._found.get("quiet", ()))
        for run in range(done, done + runs):
            turn = run % len(contestants) if contestants else 0
            order = [*contestants[turn:], *contestants[:turn]]  # so that no contestant is always first
            with quiet.watched(self._found, self._say) if has_peers and not self._is_quick else nullcontext():
                for row in rows:
                    if run == done or has_peers or not row.is_once:
                        self._row(row, [entry for entry in order if row.suits(entry)])
            after_run()

    def _row(self, row: Row, contestants: Sequence[Contestant]) -> None:
        with ThreadPoolExecutor(row.at_a_time) as pool:
            try:
                list(pool.map(partial(self._one, row), contestants))
            except BaseException:  # Ctrl-C reaches this thread only
                closing.set()
                raise

    def _one(self, row: Row, contestant: Contestant) -> None:
        began = time.monotonic()
        make = partial(Arena, contestant, self._environments, self._binary)
        try:
            figures = (row.quick if self._is_quick else row.full)(make)
        except TroubleError as error:
            self._found["troubles"].append(f"{row.name}: {error}")
            self._say(f"{row.name}: {error}")
            return
        self._found["figures"].setdefault(row.name, {}).setdefault(contestant.name, []).append(figures)
        shown = ", ".join(f"{name} {number(figures[name])}" for name in row.shows if name in figures)
        self._say(f"{row.name}, {contestant.name}: {shown}  [{time.monotonic() - began:.0f} s]")

    def measure_limit(self) -> None:
        """Measure the server's limit, and how fast this machine wakes it and another process."""
        began = time.monotonic()
        self._found["limit"] = limit.measure(self._binary, jobs=20_000 if self._is_quick else 60_000)
        for name, pace in PACES.items():
            hops = pace.quick if self._is_quick else pace.full
            found = hop.measure(self._binary, hops=hops, low_s=pace.low_s, high_s=pace.high_s)
            self._found.setdefault("hop", {})[name] = found
        self._say(f"limit  [{time.monotonic() - began:.0f} s]")

    def measure_scale(self, picture: Path) -> None:
        """Measure the cost curves and draw them."""
        found = scale.measure(self._binary, self._say, is_quick=self._is_quick)
        self._found["scale"] = found
        self._found["figures"]["scale"] = {"schedq": [{"worst": found["worst"]}]}
        try:
            scale.draw(found, self._environments.make_picture(), picture)
            self._say(f"drew {picture}")
        except MissingEnvironmentError as error:
            self._found["troubles"].append(f"no picture: {error}")
            self._say(self._found["troubles"][-1])
