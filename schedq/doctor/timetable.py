"""What is wrong with schedules: those that can't be fired, or are not, or make jobs that nobody runs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from schedq.doctor.finding import Finding, Level, few, many, span
from schedq.doctor.schedules import Standing
from schedq.instants import LAST_INSTANT_MS

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,48}")
_FIRST_MS: Final = 100_000_000_000
"""The milliseconds of March 1973, or Unix seconds of the year 5138: nobody means a slot before."""
_LATE_MS: Final = 5000
_LONG_PAUSE_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is said of schedules that are odd in one way; `{queue}` stands for the queue's name."""

    level: Level
    noun: str
    means: str
    remedy: str


_WRITTEN_ANEW: Final = (
    "write it anew: restart a worker whose code has it, or schedq schedules upsert APP, or queue.schedules.upsert; "
)
_RECKONED_ANEW: Final = "schedq schedules pause ID --queue {queue}, and then resume, reckons its next slot from now"
_KINDS: Final = {
    "schedule-damaged": _Kind(
        "error",
        "schedule that can't be fired=schedules that can't be fired",
        "their slots make no jobs, until the definition is mended",
        _WRITTEN_ANEW + "or mend the field that is named and schedq schedules resume ID --queue {queue}",
    ),
    "schedule-wrong-type": _Kind(
        "error",
        "schedule whose key is no hash=schedules whose keys are no hashes",
        "they make no job: when a slot is due, a note about them goes into broken",
        "another program wrote the key: redis-cli RENAME queue:{queue}:schedule:ID aside; then " + _WRITTEN_ANEW[:-2],
    ),
    "schedule-bad-id": _Kind(
        "error",
        "schedule whose id breaks the rule for ids=schedules whose ids break the rule for ids",
        "they make no job: when a slot is due, a note about them goes into broken",
        "let the program that wrote it use 1 to 48 of A-Z a-z 0-9 _ -",
    ),
    "schedule-undefined": _Kind(
        "error",
        "schedule without a definition=schedules without definitions",
        "they make no job: when a slot is due, a note about them goes into broken. Evicted keys, or a DEL or EXPIRE "
        "of another program, do that",
        _WRITTEN_ANEW + "schedq schedules rm ID --queue {queue} forgets it",
    ),
    "schedule-unlisted": _Kind(
        "error",
        "definition of a schedule that is not listed=definitions of schedules that are not listed",
        "it has no next slot, so nobody fires it: its entry in queue:{queue}:schedules was removed",
        _WRITTEN_ANEW + "schedq schedules rm ID --queue {queue} deletes it",
    ),
    "schedule-stuck": _Kind(
        "error",
        "schedule without a next slot that is not at its end=schedules without a next slot that are not at their end",
        "nobody fires it, though its definition has slots to come: another program wrote its score",
        _RECKONED_ANEW,
    ),
    "slot-never": _Kind(
        "error",
        "schedule whose next slot is no time that can be meant=schedules whose next slots are no times that can be "
        "meant",
        "scores are milliseconds since the epoch: with seconds it is fired at once, once for each slot since 1970 if "
        "catch_up is all; with microseconds never",
        "another program wrote the score: " + _RECKONED_ANEW,
    ),
    "slot-overdue": _Kind(
        "error",
        "schedule was due more than 5 s ago=schedules were due more than 5 s ago",
        "nobody fires what is due",
        "start a worker, or schedq promoter {queue}; what becomes of the slots that were missed catch_up says",
    ),
    "slots-left": _Kind(
        "warning",
        "account of slots whose schedule is gone=accounts of slots whose schedules are gone",
        "it takes memory, and a new schedule of that id would show it as its own past",
        "redis-cli DEL queue:{queue}:schedule:ID:slots",
    ),
    "slots-wrong-type": _Kind(
        "warning",
        "account of slots whose key is no list=accounts of slots whose keys are no lists",
        "slots are fired, and what became of them is not put down",
        "another program wrote the key: redis-cli RENAME queue:{queue}:schedule:ID:slots aside",
    ),
    "schedule-no-task": _Kind(
        "warning",
        "schedule whose task no live worker has=schedules whose tasks no live worker has",
        "their jobs are put back, with backoff, until some worker knows the task",
        "start workers of the release that has it; schedq schedules rm ID --queue {queue}, if none has it any more",
    ),
    "schedule-paused": _Kind(
        "note",
        "schedule has been paused for more than an hour=schedules have been paused for more than an hour",
        "their slots are skipped",
        "schedq schedules resume ID --queue {queue}",
    ),
    "schedule-ended": _Kind(
        "note",
        "schedule is at its end=schedules are at their end",
        "they make no job any more: the last instant, the most runs, or the last date that there is, is past",
        "schedq schedules rm ID --queue {queue}, if nobody wants to read its account",
    ),
}
_BY_THE_PROMOTER: Final = (
    "the promoter does not keep up, or goes through what was missed, with catch_up all",
    "look at the log of the process that promotes, and at the server's load",
)


def kind_of(it: Standing, now_ms: int, tasks: frozenset[str] | None) -> str:
    """In which way it is odd, the worst first; '' if it is not, or that is not known."""
    if not it.kind or (it.score is None and it.kind == "none" and it.slots in ("", "none")):
        return ""
    if it.kind not in ("hash", "none"):
        return "schedule-wrong-type"
    if it.score is None and it.kind == "none":
        return "slots-left"
    if not _ID.fullmatch(it.id):
        return "schedule-bad-id"
    if it.kind == "none" or it.score is None:
        return "schedule-undefined" if it.kind == "none" else "schedule-unlisted"
    if it.problem:
        return "schedule-damaged"
    if it.slots not in ("list", "none", ""):
        return "slots-wrong-type"
    return _of_time(it, now_ms) or ("schedule-no-task" if tasks is not None and it.task not in (*tasks, "") else "")


def _of_time(it: Standing, now_ms: int) -> str:
    if it.paused_at_ms is not None:
        return "schedule-paused" if now_ms - it.paused_at_ms > _LONG_PAUSE_MS else ""
    if it.slot_ms is None:
        return "schedule-stuck" if it.goes_on(now_ms) else "schedule-ended"
    if not _FIRST_MS <= it.slot_ms <= LAST_INSTANT_MS:
        return "slot-never"
    return "slot-overdue" if it.slot_ms < now_ms - _LATE_MS and not it.is_running else ""


def judge(
    queue: str, found: Sequence[Standing], now_ms: int, tasks: frozenset[str] | None, *, is_tended: bool
) -> Iterator[Finding]:
    """The findings about schedules that were odd each time they were looked at; `is_tended`: somebody fires."""
    kinds: dict[str, list[Standing]] = defaultdict(list)
    for it in found:
        kinds[kind_of(it, now_ms, tasks)].append(it)
    for code, odd in kinds.items():
        if not code:
            continue
        kind = _KINDS[code]
        level, means, remedy = kind.level, kind.means, kind.remedy
        says = many(len(odd), kind.noun)
        if code == "slot-overdue":
            says += f", the first one {span(now_ms - min(it.slot_ms or 0 for it in odd))}"
            if is_tended:
                level, (means, remedy) = "warning", _BY_THE_PROMOTER
        yield Finding(
            code,
            level,
            says,
            means.format(queue=queue),
            remedy.format(queue=queue),
            queue=queue,
            examples=few(_example(code, it) for it in odd),
        )


def _example(code: str, it: Standing) -> str:
    return {
        "schedule-damaged": f"{it.id}: {it.problem}",
        "schedule-no-task": f"{it.id}: {it.task}",
    }.get(code, it.id)
