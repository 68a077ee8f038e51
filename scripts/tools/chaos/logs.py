"""What the processes of a run logged: nothing over and over for one cause, and no traceback."""

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
"""Lines of one kind that a process may write in a minute for one cause, and so for each fault that it had."""
_VARIES: Final = re.compile(r"[0-9a-f]{8,}|\d+(\.\d+)?|(first|second)")
_OF_A_HANDLER: Final = re.compile(r"^job \S+: \S+ failed(?: for good)?, attempt \d+[:,] ")
_ABOUT_A_JOB: Final = re.compile(r"^job \S+: ")
_A_SUMMARY: Final = re.compile(r"^worker \S+: [\d,]+ jobs .* in the last \d+ s$")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log, `at` in seconds of that process's wall clock."""

    at: float
    pid: int
    text: str
    traceback: str = ""


def lines(path: Path) -> Iterator[Line]:
    """What one log says; what is not of the logger is a line as well, of no time."""
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
    """Whether the line shows an error of schedq itself; that of a handler belongs to the job that failed by it."""
    return bool(line.traceback) and not _OF_A_HANDLER.match(line.text)


def repeated(found: Iterable[Line], causes: int) -> dict[str, int]:
    """Kinds of lines of which one process wrote more than a few in a minute, with how many there were at most.

    Args:
        causes: faults that the busiest minute of one process had; each may be spoken of.
    """
    instants: dict[tuple[int, str], list[float]] = defaultdict(list)
    for line in found:
        # Each job is a cause of its own, and what became of the many is said every 10 s.
        if not (_ABOUT_A_JOB.match(line.text) or _A_SUMMARY.match(line.text)):
            instants[line.pid, _VARIES.sub("#", line.text)].append(line.at)
    worst: Counter[str] = Counter()
    for (_, kind), moments in instants.items():
        worst[kind] = max(worst[kind], _most_in_a_minute(moments))
    return {kind: count for kind, count in worst.items() if count > A_FEW + 2 * causes}


def most_jumps(found: Iterable[Line]) -> int:
    """How often one process said of one queue's server that its clock had jumped: once for each step, it should be."""
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
