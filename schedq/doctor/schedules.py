"""Schedules that can't fire, do not fire, or create jobs that no worker can run."""

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
"""Longest payload, in bytes, that is read to find the name of its task."""
_SLOTS: Final = ":slots"
_FIELDS: Final = (
    *(name for name in DEFINITION_FIELDS if name != "payload"),
    *("paused_at_ms", "error", "last_job_id", "runs"),
)
_ENDED: Final = frozenset((*FINISHED, ""))
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,48}")
_FIRST_MS: Final = 100_000_000_000
"""As milliseconds March 1973, as Unix seconds the year 5138: a smaller score can't be a real slot."""
_LATE_MS: Final = 5000
_LONG_PAUSE_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    """What is stored for one schedule.

    Attributes:
        score: score of its entry, as Redis returns it; None without an entry.
        fields: of its hash, without the payload; empty if there is no hash.
        kind: type of its key; 'none' if there is no key, '' if unknown.
        slots: type of the key of its slot history, likewise.
        queue: the workers and the promoter of its queue.
        task: name of the task that its jobs call; '' if they call none or it is unknown.
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
        """Why it can't create jobs; '' if it can."""
        if parked := self.fields.get("error"):
            return parked
        try:
            Definition.from_fields(self.id, self.fields)
        except UsageError as error:
            return str(error)
        return ""

    @property
    def goes_on(self) -> bool:
        """Whether its definition, which must be valid, has future slots."""
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
        return "paused_at_ms" in self.fields

    @property
    def is_known(self) -> bool:
        """Something is stored for it and could be read."""
        return bool(self.kind) and not (_is_left_over(self) and self.slots in ("", "none"))

    @property
    def late_ms(self) -> int:
        """How long ago its next slot was due; negative if it is in the future."""
        return self.queue.now_ms - (self.slot_ms or 0)


@dataclass(slots=True)
class SchedulesFound:
    """What was read about a queue's schedules.

    Attributes:
        schedules: the schedules that were read.
        listed: number of ids read from the list of schedules.
        count: number of entries of that list.
        scanned: number of keys scanned for schedules that are not listed.
        is_scanned: all keys were scanned.
    """

    schedules: list[ScheduleFacts] = field(default_factory=list)
    listed: int = 0
    count: int = 0
    scanned: int = 0
    is_scanned: bool = False


def read_schedules(keys: QueueKeys, queue: Liveness, sample: int) -> RoundTrips[SchedulesFound]:
    """Read up to `sample` schedules, those with the earliest slots, and as many that are not listed."""
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
    """What is stored for these schedules; those without readable data are left out."""
    replies = yield from asked([query for name in ids for query in _queries(keys, name)])
    scores, stored, lengths, kinds, slots = (dict(zip(ids, replies[n::5], strict=True)) for n in range(5))
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
            # Only whether there is a payload matters, and it may be long.
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


def _is_refused(reply: object) -> bool:
    return isinstance(reply, SchedqError) and not isinstance(reply, Conflict)


def _task_of(text: str) -> str:
    try:
        payload: Any = decode(text)
    except UnreadablePayload:
        return ""
    return payload["task"] if is_task_call(payload) else ""


def limits(found: SchedulesFound) -> Iterator[str]:
    """What was not examined, in words."""
    if found.listed < found.count:
        yield f"only {found.listed:,} of {found.count:,} schedules were read, those with the earliest slots"
    if found.count and not found.is_scanned and found.scanned:
        yield f"only {found.scanned:,} keys were searched for schedules that are not listed"


def _is_left_over(it: ScheduleFacts) -> bool:
    return it.score is None and it.kind == "none"


def _overdue(it: ScheduleFacts) -> str:
    first = f", the first one {approximate(it.late_ms)}"
    return f"schedule was due more than 5 s ago{first}=schedules were due more than 5 s ago{first}"


_WRITE_AGAIN: Final = (
    "store it again: restart a worker whose code has it, or use schedq schedules upsert APP or queue.schedules.upsert; "
)
_NEW_SLOT: Final = "schedq schedules pause ID --queue {queue}, then resume, computes its next slot from now"
SCHEDULES: Final[tuple[Check[ScheduleFacts], ...]] = (
    Check(
        "schedule-wrong-type",
        "error",
        lambda it: it.kind not in ("hash", "none"),
        "schedule whose key is not a hash=schedules whose keys are not hashes",
        "they create no jobs: when a slot is due, a note about them is added to broken",
        "another program wrote the key: redis-cli RENAME queue:{queue}:schedule:ID aside; then " + _WRITE_AGAIN[:-2],
        own_id,
    ),
    Check(
        "slots-left",
        "warning",
        _is_left_over,
        "slot history whose schedule is gone=slot histories whose schedules are gone",
        "it takes memory, and a new schedule with that id would show it as its own history",
        "redis-cli DEL queue:{queue}:schedule:ID:slots",
        own_id,
    ),
    Check(
        "schedule-bad-id",
        "error",
        lambda it: not _ID.fullmatch(it.id),
        "schedule with an invalid id=schedules with invalid ids",
        "they create no jobs: when a slot is due, a note about them is added to broken",
        "change the program that wrote it to use 1 to 48 of A-Z a-z 0-9 _ -",
        own_id,
    ),
    Check(
        "schedule-undefined",
        "error",
        lambda it: it.kind == "none",
        "schedule without a definition=schedules without definitions",
        (
            "they create no jobs: when a slot is due, a note about them is added to broken. The cause is eviction, or "
            "a DEL or EXPIRE by another program"
        ),
        _WRITE_AGAIN + "or delete it with schedq schedules rm ID --queue {queue}",
        own_id,
    ),
    Check(
        "schedule-unlisted",
        "error",
        lambda it: it.score is None,
        "definition of a schedule that is not listed=definitions of schedules that are not listed",
        "it has no next slot, so it never fires: its entry in queue:{queue}:schedules was removed",
        _WRITE_AGAIN + "or delete it with schedq schedules rm ID --queue {queue}",
        own_id,
    ),
    Check(
        "schedule-damaged",
        "error",
        lambda it: it.problem,
        "schedule that can't fire=schedules that can't fire",
        "their slots create no jobs until the definition is repaired",
        _WRITE_AGAIN + "or repair the named field and run schedq schedules resume ID --queue {queue}",
        lambda it: (f"{it.id}: {it.problem}",),
    ),
    Check(
        "slots-wrong-type",
        "warning",
        lambda it: it.slots not in ("list", "none", ""),
        "slot history whose key is not a list=slot histories whose keys are not lists",
        "slots fire, but their outcomes are not recorded",
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
        "schedule without a next slot that has not ended=schedules without a next slot that have not ended",
        "it never fires, although its definition has future slots: another program wrote its score",
        _NEW_SLOT,
        own_id,
    ),
    Check(
        "schedule-ended",
        "note",
        lambda it: not it.is_paused and it.slot_ms is None,
        "schedule has ended=schedules have ended",
        "they create no more jobs: the end time, the maximum number of runs or the last possible date is reached",
        "schedq schedules rm ID --queue {queue}, if its history is no longer needed",
        own_id,
    ),
    Check(
        "slot-never",
        "error",
        lambda it: not it.is_paused and not _FIRST_MS <= (it.slot_ms or 0) <= LAST_INSTANT_MS,
        "schedule with an implausible next slot=schedules with implausible next slots",
        (
            "scores are milliseconds since the epoch: with seconds it fires at once, and if catch_up is all, once for "
            "each slot since 1970; with microseconds it never fires"
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
            "the promoter does not keep up, or is catching up on missed slots (catch_up all)"
            if it.queue.has_promoter
            else "no promoter is running to fire due slots"
        ),
        lambda it: (
            "check the log of the promoter's process and the server's load"
            if it.queue.has_promoter
            else "start a worker, or schedq promoter {queue}; catch_up decides what happens to the missed slots"
        ),
        own_id,
    ),
    Check(
        "schedule-no-task",
        "warning",
        lambda it: it.queue.tasks is not None and it.task not in (*it.queue.tasks, ""),
        "schedule whose task no live worker has=schedules whose tasks no live worker has",
        "their jobs are put back, with backoff, until some worker knows the task",
        "start workers of a release that has it, or schedq schedules rm ID --queue {queue} if none has it any more",
        lambda it: (f"{it.id}: {it.task}",),
    ),
)
"""The first row that applies to a schedule determines its finding."""
