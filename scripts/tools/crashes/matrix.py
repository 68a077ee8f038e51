"""What the tests of crash points have found, as a table: move × crash point → outcome.

The findings stand in `found.json`; the tests compare theirs with it, and the handbook's table with what it makes.
`python -m scripts.tools.crashes --handbook` finds them again and writes both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from scripts.tools.crashes.inside import AGAIN, Point
from scripts.tools.crashes.wire import UNANSWERED, Cut
from scripts.tools.handbook import Block

FOUND: Final = Path(__file__).with_name("found.json")
BLOCK: Final = Block("crash-matrix.md", "crashes")
Found = dict[str, dict[str, Any]]

_ROWS: Final = {
    # move -> verb that is cut off on the wire, scenes whose script is cut
    "enqueue": ("enqueue", ("enqueue, now", "enqueue, an id again")),
    "enqueue, later": ("enqueue, later", ("enqueue, later",)),
    "enqueue many": ("enqueue many", ("enqueue, many",)),
    "claim": ("claim", ("claim, all kinds of entries", "claim, no suspects", "claim, too large")),
    "renew": ("renew", ("renew",)),
    "complete": ("complete", ("complete", "complete, with trim")),
    "fail, attempts left": ("fail, attempts left", ("fail, attempts left",)),
    "fail, none left": ("fail, none left", ("fail, none left",)),
    "snooze": ("snooze", ("snooze",)),
    "release": ("release", ("release",)),
    "promote": ("promote", ("promote, by hand", "promote, by a promoter")),
    "reclaim, adopt": ("reclaim", ("reclaim, ended leases", "reclaim, with waits", "reclaim, adopt", "reclaim, trim")),
    "cancel": ("cancel, pending", ("cancel, pending", "cancel, delayed", "cancel, running")),
    "reschedule": ("reschedule", ("reschedule, later", "reschedule, sooner")),
    "run now": ("run now", ("run now",)),
    "requeue": ("requeue", ("requeue",)),
    "pause": ("pause", ("pause",)),
    "resume": ("resume", ("resume",)),
    "purge": ("purge", ("purge, pending", "purge, delayed", "purge, processing", "purge, failed")),
    "delete jobs": ("delete jobs", ("delete jobs, pending", "delete jobs, delayed", "delete jobs, failed")),
    "act on many": ("act on many", ("requeue", "note")),
    "fire": ("fire", ("fire",)),
    "schedule: upsert": ("schedule upsert", ("upsert, new", "upsert, changed")),
    "schedule: pause": ("schedule pause", ("pause schedule",)),
    "schedule: resume": ("schedule resume", ("resume schedule",)),
    "schedule: trigger": ("schedule trigger", ("trigger",)),
    "schedule: backfill": ("schedule backfill", ("enqueue, many",)),
    "schedule: delete": ("schedule delete", ("delete",)),
    "stats, lists, results": ("stats", ("stats", "list", "find", "watch", "why")),
}
_HEADS: Final = (
    "move",
    "request lost",
    "reply lost",
    "error inside the script, at any call",
    "a key of the wrong type",
    "memory full",
)


def known() -> Found:
    """The findings."""
    found: Found = json.loads(FOUND.read_text())
    return found


def of_cuts(cuts: Iterable[Cut]) -> dict[str, list[str]]:
    """What became of one verb: with patience, and without."""
    found: dict[str, set[str]] = {}
    for cut in cuts:
        kind = "reply lost" if cut.how == UNANSWERED else "request lost"
        found.setdefault(f"{kind}, {'sent again' if cut.patient else 'not sent again'}", set()).add(cut.outcome)
    return {kind: sorted(outcomes) for kind, outcomes in sorted(found.items())}


def of_points(points: Sequence[Point]) -> str:
    """What became of one scene, whatever the call."""
    if any(point.wrong for point in points):
        return "not put right"
    if all(point.is_untouched for point in points):
        return "nothing to put right"
    *cut, whole = [point for point in points if point.then == AGAIN]
    costs = [point for point in cut if point.ran != whole.ran]
    if any(set(whole.ran) - set(point.ran) - set(point.places["failed"]) for point in costs):
        return "put right; sent again, something else"
    outcome = "put right; counts as an attempt" if costs else "put right; sent again: as if not cut"
    if any(len(point.places.get("broken", ())) > len(whole.places.get("broken", ())) for point in cut):
        outcome += "; an id without data may be noted twice"
    return outcome


def of_types(answers: dict[str, str]) -> str:
    """What keys of another type do to one scene."""
    outcomes = set(answers.values())
    if outcomes == {"done"}:
        return "done"
    return "failed whole, key named" if outcomes <= {"done", "Conflict"} else "partly done"


def of_memory(answer: str) -> str:
    """What a full memory does to one scene."""
    return {"done": "done", "QueueFull": "failed whole: QueueFull"}.get(answer, answer)


def table(found: Found) -> str:
    """The Markdown table."""
    lines = [f"| {' | '.join(_HEADS)} |", f"|{'---|' * len(_HEADS)}"]
    for move, (verb, scenes) in _ROWS.items():
        wire = found["between"][verb]
        cells = [move, *(_wire(wire, kind) for kind in ("request lost", "reply lost"))]
        cells += [_worst(found[column][scene] for scene in scenes) for column in ("inside", "types", "memory")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write(found: Found) -> None:
    """Write the findings, and the handbook's table."""
    FOUND.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    BLOCK.write(table(found))


def _wire(wire: dict[str, list[str]], kind: str) -> str:
    again, not_again = wire[f"{kind}, sent again"], wire[f"{kind}, not sent again"]
    if again == not_again:
        return _joined(again)
    return f"sent again: {_joined(again)}; else {_joined(not_again)}"


def _worst(outcomes: Iterable[str]) -> str:
    """Of several scenes' outcomes the one that says most."""
    return max(outcomes, key=len)


def _joined(outcomes: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(outcomes))
