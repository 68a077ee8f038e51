"""The logs of a run's processes: no repeated lines for one cause, and no tracebacks."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

MINUTE_S: Final = 60.0
A_FEW: Final = 6
"""Lines of one kind that a process may log per minute for one cause, and so for each of its faults."""
_VARIES: Final = re.compile(r"[0-9a-f]{8,}|\d+(\.\d+)?|(first|second)")
_OF_A_HANDLER: Final = re.compile(r"^job \S+: \S+ failed(?: for good)?, attempt \d+[:,] ")
_ABOUT_A_JOB: Final = re.compile(r"^job \S+: ")
_A_SUMMARY: Final = re.compile(r"^worker \S+: [\d,]+ jobs .* in the last \d+ s$")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log; `at` is in seconds of that process's wall clock."""

    at: float
    pid: int
    text: str
    traceback: str = ""


def lines(path: Path) -> Iterator[Line]:
    """The lines of one log; output that did not come from the logger counts as a line without a time."""
    at, pid = 0.0, 0
    for text in path.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(text)
            at, pid = datetime.fromisoformat(entry["time"]).timestamp(), entry["pid"]
        except (ValueError, TypeError, KeyError):
            if text.startswith("Traceback"):
                yield Line(at, pid, "", text)
            continue
        yield Line(at, pid, entry["message"], entry.get("traceback", ""))


def is_schedqs_own(line: Line) -> bool:
    """Whether the line shows an error in schedq itself; a handler's error belongs to the job that it failed."""
    return bool(line.traceback) and not _OF_A_HANDLER.match(line.text)


def repeated(found: Iterable[Line], causes: int) -> dict[str, int]:
    """Kinds of lines that one process logged too often within a minute, with the highest count.

    Args:
        causes: the number of faults in the busiest minute of one process; each may be logged.
    """
    instants: dict[tuple[int, str], list[float]] = defaultdict(list)
    for line in found:
        # Each job is a cause of its own, and a summary of many is logged every 10 s.
        if not (_ABOUT_A_JOB.match(line.text) or _A_SUMMARY.match(line.text)):
            instants[line.pid, _VARIES.sub("#", line.text)].append(line.at)
    worst: Counter[str] = Counter()
    for (_, kind), moments in instants.items():
        worst[kind] = max(worst[kind], _most_in_a_minute(moments))
    return {kind: count for kind, count in worst.items() if count > A_FEW + 2 * causes}


def most_jumps(found: Iterable[Line]) -> int:
    """How often one process reported a clock jump of one queue's server; at most once per step is expected."""
    jumps = Counter((line.pid, line.text.partition(":")[0]) for line in found if "clock jumped by" in line.text)
    return max(jumps.values(), default=0)


def _most_in_a_minute(moments: Sequence[float]) -> int:
    ordered = sorted(moments)
    most = begin = 0
    for end, moment in enumerate(ordered):
        while moment - ordered[begin] > MINUTE_S:
            begin += 1
        most = max(most, end - begin + 1)
    return most
