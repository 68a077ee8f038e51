"""Schedules that can't be fired, or are not, or make jobs that nobody runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schedq.doctor.checks import PAGE, Check, asked, known, own_id, plain, scan
from schedq.doctor.workers import Liveness
from schedq.errors import Conflict, SchedqError, UsageError
from schedq.inspect.display import approximate
from schedq.model.keys import QueueKeys
from schedq.model.lifecycle import FINISHED
from schedq.model.payload import UnreadablePayload, decode
from schedq.model.records import whole
from schedq.model.tasks import is_task_call
from schedq.model.times import LAST_INSTANT_MS
from schedq.schedules.definition import DEFINITION_FIELDS, Definition
from schedq.schedules.records import as_bytes_if_needed
from schedq.transitions import Operation, RoundTrips

_LONGEST_READ: Final = 10_000
"""Bytes of a payload that is read for the name of its task."""
_SLOTS: Final = ":slots"
_FIELDS: Final = (
    *(name for name in DEFINITION_FIELDS if name != "payload"),
    *("paused_at_ms", "error", "last_job_id", "runs"),
)
_ENDED: Final = frozenset((*FINISHED, ""))
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,48}")
_FIRST_MS: Final = 100_000_000_000
"""The milliseconds of March 1973, or Unix seconds of the year 5138: nobody means a slot before."""
_LATE_MS: Final = 5000
_LONG_PAUSE_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    """What is stored of one schedule.

    Attributes:
        score: its entry's, as Redis has it; None without one.
        fields: of its hash, without the payload; empty if there is none.
        kind: type of its key; 'none' if there is none, '' if that is not known.
        slots: type of the key of its last slots, likewise.
        queue: who serves its queue.
        task: name of the task that its jobs call, '' if they call none, or that is not known.
        is_running: the job of its last run has not ended.
    """

    id: str
    score: str | None
    fields: Mapping[str, str]
    kind: str
    slots: str
    queue: Liveness
    task: str = ""
    is_running: bool = False

    @property
    def problem(self) -> str:
        """Why no job can be made of it; '' if one can."""
        if parked := self.fields.get("error"):
            return parked
        try:
            Definition.from_fields(self.id, self.fields)
        except UsageError as error:
            return str(error)
        return ""

    @property
    def goes_on(self) -> bool:
        """Whether its definition, which must be valid, has slots to come."""
        definition = Definition.from_fields(self.id, self.fields)
        is_used_up = 0 < definition.max_runs <= whole(self.fields.get("runs"))
        return not is_used_up and definition.next_after(self.queue.now_ms) is not None

    @property
    def slot_ms(self) -> int | None:
        """Its next slot, which may be an invalid instant; None if it has none."""
        if self.score in (None, "inf", "-inf"):
            return -1 if self.score == "-inf" else None
        return int(float(str(self.score)))

    @property
    def is_paused(self) -> bool:
        """It fires no slots until it is resumed."""
        return "paused_at_ms" in self.fields

    @property
    def is_known(self) -> bool:
        """Something is stored of it, and could be read."""
        return bool(self.kind) and not (_is_left_over(self) and self.slots in ("", "none"))

    @property
    def late_ms(self) -> int:
        """How long its next slot has been due; below 0 before that."""
        return self.queue.now_ms - (self.slot_ms or 0)


@dataclass(slots=True)
class SchedulesFound:
    """What was read of a queue's schedules.

    Attributes:
        schedules: those that were looked at.
        listed: ids that were read of the list of schedules.
        count: entries of that list.
        scanned: keys among which others were looked for.
        is_scanned: these were all.
    """

    schedules: list[ScheduleFacts] = field(default_factory=list)
    listed: int = 0
    count: int = 0
    scanned: int = 0
    is_scanned: bool = False


def read_schedules(keys: QueueKeys, queue: Liveness, sample: int) -> RoundTrips[SchedulesFound]:
    """Look at `sample` schedules, those with the earliest slots, and at as many that are not listed."""
    found = SchedulesFound()
    (count,) = yield [plain("ZCARD", keys.schedules)]
    found.count = known(count, 0)
    ids: dict[str, None] = {}
    for first in range(0, min(found.count, sample), PAGE):
        (page,) = yield [plain("ZRANGE", keys.schedules, first, min(first + PAGE, sample) - 1)]
        ids |= dict.fromkeys(known(page, []))
    found.listed = len(ids)
    names, found.scanned, found.is_scanned = yield from scan(f"{keys.definitions}*", 10 * sample)
    others = dict.fromkeys(name.removeprefix(keys.definitions).removesuffix(_SLOTS) for name in names)
    unlisted = [name for name in others if name not in ids]
    found.is_scanned = found.is_scanned and len(unlisted) <= sample
    ids |= dict.fromkeys(unlisted[:sample])
    found.schedules = yield from read_facts(keys, queue, list(ids))
    return found


def read_facts(keys: QueueKeys, queue: Liveness, ids: Sequence[str]) -> RoundTrips[list[ScheduleFacts]]:
    """What is stored of these schedules, without those of which nothing is stored or could be read."""
    answers = yield from asked([query for name in ids for query in _queries(keys, name)])
    scores, stored, lengths, kinds, slots = (dict(zip(ids, answers[n::5], strict=True)) for n in range(5))
    fields = {name: dict(zip(_FIELDS, known(stored[name], ()), strict=False)) for name in ids}
    jobs = {
        name: it["last_job_id"] for name, it in fields.items() if it.get("overlap") == "queue_one" and it["last_job_id"]
    }
    ends = yield from asked([plain("HGET", as_bytes_if_needed(keys.job(job)), "status") for job in jobs.values()])
    running = {name for name, status in zip(jobs, ends, strict=True) if known(status, "") not in _ENDED}
    short = [name for name in ids if 0 < known(lengths[name], 0) <= _LONGEST_READ]
    texts = yield from asked([plain("HGET", as_bytes_if_needed(keys.schedule(name)), "payload") for name in short])
    tasks = {name: _task_of(known(text, "")) for name, text in zip(short, texts, strict=True)}
    found = [
        ScheduleFacts(
            name,
            known(scores[name], None),
            # That there is a payload is enough, however long it is.
            {field: value for field, value in fields[name].items() if value is not None}
            | ({"payload": "1"} if known(lengths[name], 0) else {}),
            "" if _is_refused(stored[name]) or isinstance(scores[name], SchedqError) else known(kinds[name], ""),
            known(slots[name], ""),
            queue,
            tasks.get(name, ""),
            name in running,
        )
        for name in ids
    ]
    return [it for it in found if it.is_known]


def _queries(keys: QueueKeys, schedule_id: str) -> list[Operation[Any]]:
    key = as_bytes_if_needed(keys.schedule(schedule_id))
    return [
        plain("ZSCORE", keys.schedules, as_bytes_if_needed(schedule_id)),
        plain("HMGET", key, *_FIELDS),
        plain("HSTRLEN", key, "payload"),
        plain("TYPE", key),
        plain("TYPE", as_bytes_if_needed(keys.slots(schedule_id))),
    ]


def _is_refused(answer: object) -> bool:
    return isinstance(answer, SchedqError) and not isinstance(answer, Conflict)


def _task_of(text: str) -> str:
    try:
        payload: Any = decode(text)
    except UnreadablePayload:
        return ""
    return payload["task"] if is_task_call(payload) else ""


def limits(found: SchedulesFound) -> Iterator[str]:
    """What was not looked at, in words."""
    if found.listed < found.count:
        yield f"{found.listed:,} of {found.count:,} schedules were looked at, those with the earliest slots first"
    if found.count and not found.is_scanned and found.scanned:
        yield f"schedules that are not listed were looked for among {found.scanned:,} keys"


def _is_left_over(it: ScheduleFacts) -> bool:
    return it.score is None and it.kind == "none"


def _overdue(it: ScheduleFacts) -> str:
    first = f", the first one {approximate(it.late_ms)}"
    return f"schedule was due more than 5 s ago{first}=schedules were due more than 5 s ago{first}"


_WRITE_AGAIN: Final = (
    "write it anew: restart a worker whose code has it, or schedq schedules upsert APP, or queue.schedules.upsert; "
)
_NEW_SLOT: Final = "schedq schedules pause ID --queue {queue}, and then resume, reckons its next slot from now"
SCHEDULES: Final[tuple[Check[ScheduleFacts], ...]] = (
    Check(
        "schedule-wrong-type",
        "error",
        lambda it: it.kind not in ("hash", "none"),
        "schedule whose key is no hash=schedules whose keys are no hashes",
        "they make no job: when a slot is due, a note about them goes into broken",
        "another program wrote the key: redis-cli RENAME queue:{queue}:schedule:ID aside; then " + _WRITE_AGAIN[:-2],
        own_id,
    ),
    Check(
        "slots-left",
        "warning",
        _is_left_over,
        "account of slots whose schedule is gone=accounts of slots whose schedules are gone",
        "it takes memory, and a new schedule of that id would show it as its own past",
        "redis-cli DEL queue:{queue}:schedule:ID:slots",
        own_id,
    ),
    Check(
        "schedule-bad-id",
        "error",
        lambda it: not _ID.fullmatch(it.id),
        "schedule whose id breaks the rule for ids=schedules whose ids break the rule for ids",
        "they make no job: when a slot is due, a note about them goes into broken",
        "let the program that wrote it use 1 to 48 of A-Z a-z 0-9 _ -",
        own_id,
    ),
    Check(
        "schedule-undefined",
        "error",
        lambda it: it.kind == "none",
        "schedule without a definition=schedules without definitions",
        (
            "they make no job: when a slot is due, a note about them goes into broken. Evicted keys, or a DEL or "
            "EXPIRE of another program, do that"
        ),
        _WRITE_AGAIN + "schedq schedules rm ID --queue {queue} forgets it",
        own_id,
    ),
    Check(
        "schedule-unlisted",
        "error",
        lambda it: it.score is None,
        "definition of a schedule that is not listed=definitions of schedules that are not listed",
        "it has no next slot, so nobody fires it: its entry in queue:{queue}:schedules was removed",
        _WRITE_AGAIN + "schedq schedules rm ID --queue {queue} deletes it",
        own_id,
    ),
    Check(
        "schedule-damaged",
        "error",
        lambda it: it.problem,
        "schedule that can't be fired=schedules that can't be fired",
        "their slots make no jobs, until the definition is mended",
        _WRITE_AGAIN + "or mend the field that is named and schedq schedules resume ID --queue {queue}",
        lambda it: (f"{it.id}: {it.problem}",),
    ),
    Check(
        "slots-wrong-type",
        "warning",
        lambda it: it.slots not in ("list", "none", ""),
        "account of slots whose key is no list=accounts of slots whose keys are no lists",
        "slots are fired, and what became of them is not put down",
        "another program wrote the key: redis-cli RENAME queue:{queue}:schedule:ID:slots aside",
        own_id,
    ),
    Check(
        "schedule-paused",
        "note",
        lambda it: it.is_paused and it.queue.now_ms - whole(it.fields["paused_at_ms"]) > _LONG_PAUSE_MS,
        "schedule has been paused for more than an hour=schedules have been paused for more than an hour",
        "their slots are skipped",
        "schedq schedules resume ID --queue {queue}",
        own_id,
    ),
    Check(
        "schedule-stuck",
        "error",
        lambda it: not it.is_paused and it.slot_ms is None and it.goes_on,
        ("schedule without a next slot that is not at its end=schedules without a next slot that are not at their end"),
        "nobody fires it, though its definition has slots to come: another program wrote its score",
        _NEW_SLOT,
        own_id,
    ),
    Check(
        "schedule-ended",
        "note",
        lambda it: not it.is_paused and it.slot_ms is None,
        "schedule is at its end=schedules are at their end",
        "they make no job any more: the last instant, the most runs, or the last date that there is, is past",
        "schedq schedules rm ID --queue {queue}, if nobody wants to read its account",
        own_id,
    ),
    Check(
        "slot-never",
        "error",
        lambda it: not it.is_paused and not _FIRST_MS <= (it.slot_ms or 0) <= LAST_INSTANT_MS,
        (
            "schedule whose next slot is no time that can be meant=schedules whose next slots are no times that "
            "can be meant"
        ),
        (
            "scores are milliseconds since the epoch: with seconds it is fired at once, once for each slot since "
            "1970 if catch_up is all; with microseconds never"
        ),
        "another program wrote the score: " + _NEW_SLOT,
        own_id,
    ),
    Check(
        "slot-overdue",
        lambda it: "warning" if it.queue.has_promoter else "error",
        lambda it: not it.is_paused and it.late_ms > _LATE_MS and not it.is_running,
        _overdue,
        lambda it: (
            "the promoter does not keep up, or goes through what was missed, with catch_up all"
            if it.queue.has_promoter
            else "nobody fires what is due"
        ),
        lambda it: (
            "look at the log of the process that promotes, and at the server's load"
            if it.queue.has_promoter
            else (
                "start a worker, or schedq promoter {queue}; what becomes of the slots that were missed catch_up says"
            )
        ),
        own_id,
    ),
    Check(
        "schedule-no-task",
        "warning",
        lambda it: it.queue.tasks is not None and it.task not in (*it.queue.tasks, ""),
        "schedule whose task no live worker has=schedules whose tasks no live worker has",
        "their jobs are put back, with backoff, until some worker knows the task",
        ("start workers of the release that has it; schedq schedules rm ID --queue {queue}, if none has it any more"),
        lambda it: (f"{it.id}: {it.task}",),
    ),
)
"""The first row that holds for a schedule is its kind."""
