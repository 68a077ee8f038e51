"""The results of the crash-point tests as a table: transition × crash point → outcome.

The results are in `found.json`. The tests compare theirs with it, and the handbook's table with what this generates.
`python -m scripts.tools.crashes --handbook` measures again and updates both.
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

_CLAIM: Final = (
    *("claim, all kinds of entries", "claim, no suspects", "claim, too large"),
    *("claim, a paused task", "claim, held jobs", "claim, one gate", "claim, two gates"),
)
_RECLAIM: Final = (
    *("reclaim, ended leases", "reclaim, with waits", "reclaim, adopt"),
    *("reclaim, expired records", "reclaim, trim", "reclaim, gates"),
)
_ROWS: Final = {
    # transition -> verb cut on the wire, scenes whose script is interrupted
    "enqueue": ("enqueue", ("enqueue, now", "enqueue, an id again")),
    "enqueue, later": ("enqueue, later", ("enqueue, later",)),
    "enqueue, unique": ("enqueue, unique", ("enqueue, unique", "enqueue, unique and there")),
    "enqueue many": ("enqueue many", ("enqueue, many", "enqueue, gates")),
    "claim": ("claim", _CLAIM),
    "renew": ("renew", ("renew",)),
    "complete": ("complete", ("complete", "complete, with ttls", "complete, with trim")),
    "fail, attempts left": ("fail, attempts left", ("fail, attempts left",)),
    "fail, none left": ("fail, none left", ("fail, none left",)),
    "snooze": ("snooze", ("snooze",)),
    "release": ("release", ("release",)),
    "promote": ("promote", ("promote, by hand", "promote, by a promoter", "promote, gates")),
    "reclaim, adopt": ("reclaim", _RECLAIM),
    "cancel": ("cancel, pending", ("cancel, pending", "cancel, delayed", "cancel, running", "cancel, held")),
    "reschedule": ("reschedule", ("reschedule, later", "reschedule, sooner")),
    "run now": ("run now", ("run now",)),
    "requeue": ("requeue", ("requeue",)),
    "suspend": ("suspend", ("suspend", "suspend, a message is there")),
    "send": ("send", ("send, to a suspended run",)),
    "record a step": ("record a step", ("record a step", "decide a race")),
    "receive": ("receive", ("receive", "receive, too late", "receive, wait")),
    "start over": ("start over", ("start over", "start over, cut short before")),
    "pause": ("pause", ("pause",)),
    "resume": ("resume", ("resume",)),
    "pause task": ("pause task", ("pause task",)),
    "resume task": ("resume task", ("resume task", "resume task, some jobs")),
    "cancel task": ("cancel task", ("cancel, pending", "cancel, delayed")),
    "purge": (
        "purge",
        ("purge, pending", "purge, delayed", "purge, processing", "purge, failed", "purge, held"),
    ),
    "delete jobs": (
        "delete jobs",
        ("delete jobs, pending", "delete jobs, delayed", "delete jobs, failed", "delete jobs, held"),
    ),
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
    "transitions",
    "request lost",
    "reply lost",
    "error inside the script, at any call",
    "a key of the wrong type",
    "memory full",
)


def known() -> Found:
    """The recorded results."""
    found: Found = json.loads(FOUND.read_text())
    return found


def of_cuts(cuts: Iterable[Cut]) -> dict[str, list[str]]:
    """The outcomes of one verb, with retries and without."""
    found: dict[str, set[str]] = {}
    for cut in cuts:
        kind = "reply lost" if cut.how == UNANSWERED else "request lost"
        found.setdefault(f"{kind}, {'sent again' if cut.patient else 'not sent again'}", set()).add(cut.outcome)
    return {kind: sorted(outcomes) for kind, outcomes in sorted(found.items())}


def of_points(points: Sequence[Point]) -> str:
    """The outcome of one scene, over all calls."""
    if any(point.wrong for point in points):
        return "not repaired"
    if all(point.is_untouched for point in points):
        return "nothing to repair"
    *cut, whole = [point for point in points if point.then == AGAIN]
    costs = [point for point in cut if point.ran != whole.ran]
    if any(set(whole.ran) - set(point.ran) - set(point.places.get("failed", ())) for point in costs):
        return "repaired; sent again: another effect"
    outcome = "repaired; counts as an attempt" if costs else "repaired; sent again: normal effect"
    if any(len(point.places.get("broken", ())) > len(whole.places.get("broken", ())) for point in cut):
        outcome += "; an id without data may be recorded twice"
    return outcome


def of_types(replies: dict[str, str]) -> str:
    """The outcome of one scene with keys of another type."""
    outcomes = set(replies.values())
    if outcomes == {"done"}:
        return "done"
    return "rejected, key named" if outcomes <= {"done", "Conflict"} else "partly done"


def of_memory(reply: str) -> str:
    """The outcome of one scene with full memory."""
    return {"done": "done", "QueueFull": "rejected: QueueFull"}.get(reply, reply)


def table(found: Found) -> str:
    """The Markdown table: a row for all transitions with the same outcomes."""
    moves: dict[tuple[str, ...], list[str]] = {}
    for move, (verb, scenes) in _ROWS.items():
        wire = found["between"][verb]
        cells = [_wire(wire, kind) for kind in ("request lost", "reply lost")]
        cells += [_worst(found[column][scene] for scene in scenes) for column in ("inside", "types", "memory")]
        moves.setdefault(tuple(cells), []).append(move)
    lines = [f"| {' | '.join(_HEADS)} |", f"|{'---|' * len(_HEADS)}"]
    lines += [f"| {' | '.join(('; '.join(same), *cells))} |" for cells, same in moves.items()]
    return "\n".join(lines) + "\n"


def write(found: Found) -> None:
    """Write the results, and the handbook's table."""
    FOUND.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    BLOCK.write(table(found))


def _wire(wire: dict[str, list[str]], kind: str) -> str:
    again, not_again = wire[f"{kind}, sent again"], wire[f"{kind}, not sent again"]
    if again == not_again:
        return _joined(again)
    return f"sent again: {_joined(again)}; else {_joined(not_again)}"


def _worst(outcomes: Iterable[str]) -> str:
    """The most severe of several scenes' outcomes."""
    return max(outcomes, key=len)


def _joined(outcomes: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(outcomes))
