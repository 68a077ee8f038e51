"""What is never so, and what must be so at the end, when runs of queue "a" wait for groups of queue "b"."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from schedq.model.groups import ENDED
from schedq.model.lifecycle import CANCELLED, COMPLETED, FAILED, FINISHED
from schedq.model.runs import STEP, RunWait
from scripts.tools.explore.world import BEGIN_S
from tests.groups import Groups
from tests.state import State

_FAR_MS = (BEGIN_S + 10_000_000) * 1000
RESULT = "done"
"""What each child returns."""


def of_step(found: Sequence[State], allowed: Sequence[str]) -> Iterator[str]:
    """A group that can still make jobs has a run that is not over, or something that will call it off.

    If it is allowed that one is "unclosed", such a group may stay as it is.
    """
    if not _uses_both(found):
        return
    there, here = _groups_of_runs(found[1]), _stand_ins(found[0])
    marks = found[1].holds("groups", "zset")
    for name, fields in there.items():
        if name not in here and _is_over(found[0]) and float(marks.get(name, 0)) > _FAR_MS:
            yield f"group {name} is kept for a run that is over, and nothing stands for it"
        if _is_open(fields, allowed) and name not in here and _is_over(found[0]):
            yield f"group {name} is {fields['status']}, its run is over, and nothing stands for it"


def at_the_end(found: Sequence[State], allowed: Sequence[str]) -> Iterator[str]:
    """Every run has ended, with what its jobs returned; nothing of it is left open in either queue."""
    if not _uses_both(found):
        return
    for job_id, job in found[0].jobs().items():
        yield from (f"{job_id}: {complaint}" for complaint in _outcome(job.holds))
    yield from _left_open(found, allowed)


def _left_open(found: Sequence[State], allowed: Sequence[str]) -> Iterator[str]:
    home, there = found[:2]
    for name, fields in _stand_ins(home).items():
        if _status_of_run(home, fields) in (COMPLETED, CANCELLED):
            yield f"{name} stands for a group of {fields['stands_for']} although its run is over"
    for name, fields in _groups_of_runs(there).items():
        if _is_open(fields, allowed):
            yield f"group {name} is {fields['status']} for good"


def is_unfinished(found: Sequence[State], allowed: Sequence[str]) -> bool:
    """Whether something is left to do besides jobs."""
    return next(_left_open(found, allowed), None) is not None


def _outcome(fields: dict[str, str]) -> Iterator[str]:
    """What the record of a run says at its end."""
    memos = [json.loads(text) for field, text in fields.items() if field.startswith(STEP)]
    status = fields.get("status")
    if status not in FINISHED:
        yield f"it is {status} for good, and waits for {[wait.group for wait in RunWait.read(fields.get('waits'))]}"
    if status == COMPLETED and [memo[1:3] for memo in memos] != [["ok", RESULT]]:
        yield f"it completed with {memos}"
    for memo in memos:
        if memo[1] != "ok" and "cancelled" in str(memo[2]):
            yield f"it got {memo[2]!r}, although no person called its jobs off"
    if status == FAILED and not any(memo[1] == "error" for memo in memos):
        yield f"it failed with {memos}: {fields.get('last_error')}"


def _uses_both(found: Sequence[State]) -> bool:
    return len(found) > 1 and any("groups" in state.keys for state in found)


def _is_over(home: State) -> bool:
    jobs = home.jobs()
    return bool(jobs) and all(job.holds.get("status") in (COMPLETED, CANCELLED) for job in jobs.values())


def _is_open(fields: dict[str, str], allowed: Sequence[str]) -> bool:
    if "unclosed" in allowed and fields.get("closed") != "1":
        return False
    return fields.get("status") not in (*ENDED, "deleted", None)


def _groups_of_runs(there: State) -> dict[str, dict[str, str]]:
    return {name: fields for name, fields in Groups(there).fields.items() if "tells" in fields}


def _stand_ins(home: State) -> dict[str, dict[str, str]]:
    return {name: fields for name, fields in Groups(home).fields.items() if "stands_for" in fields}


def _status_of_run(home: State, fields: dict[str, str]) -> str:
    return home.job(fields.get("wake", "")).get("status", "")
