"""What each part of schedq costs a job that uses it: pairs of jobs with and without it, in this checkout."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from scripts.tools.handbook import Block
from scripts.tools.pairs.runs import run
from tests.releases import ROOT
from tests.servers import Server

BLOCK: Final = Block("speed.md", "costs")
PARTS: Final = {
    "headers": "two headers",
    "before_enqueue": "one `before_enqueue` function that adds a header",
    "expires": "`expires`",
    "completed_ttl": "`completed_ttl` of its own",
    "typed": "a `datetime` among its arguments",
    "progress": "one report of progress",
    "dependency": "one async dependency with a clean-up",
    "observer": "one observer",
    "middleware": "one middleware",
    "around": "one context manager of `queue.around`",
    "on_success": "one async `on_success`",
    "only": "a worker that is limited to its task",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a part costs: microseconds a job, the ratio to a job without it, and further commands a job."""

    part: str
    more_us: float
    ratio: float
    commands: float


def measure(server: Server, pairs: int, jobs: int) -> Iterator[Cost]:
    """Measure each part."""
    for part in PARTS:
        found = []
        for number in range(pairs):
            order = (part, "none") if number % 2 else ("none", part)
            taken: dict[str, dict[str, Any]] = {name: run("features.py", name, ROOT, server, jobs) for name in order}
            found.append((taken[part], taken["none"]))
        yield Cost(
            part,
            statistics.median((one["cpu_s"] - none["cpu_s"]) / jobs * 1e6 for one, none in found),
            statistics.median(one["cpu_s"] / none["cpu_s"] for one, none in found),
            statistics.median((one["commands"] - none["commands"]) / jobs for one, none in found),
        )


def table(costs: list[Cost], pairs: int, jobs: int) -> str:
    """The table for the handbook."""
    head = f"Medians of {pairs} pairs of {jobs:,} jobs, enqueued one by one and run on the event loop of one worker."
    rows = [f"| {PARTS[cost.part]} | {cost.more_us:+.1f} | {cost.ratio:.2f} | {cost.commands:+.2f} |" for cost in costs]
    return "\n".join(
        [
            head,
            "",
            "| a job with | extra CPU (µs) | ratio | extra commands |",
            "| --- | ---: | ---: | ---: |",
            *rows,
            "",
        ]
    )
