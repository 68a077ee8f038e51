"""Schedules: what is read of each, by pages; what is odd in it is for `timetable` to tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from schedq.doctor.asking import asked, known, plain
from schedq.errors import Conflict, SchedqError, UsageError
from schedq.job import whole
from schedq.keys import QueueKeys
from schedq.lifecycle import FINISHED
from schedq.operations import Flow
from schedq.operations.directory import WorkerRecord
from schedq.operations.firing import sendable
from schedq.payload import UnreadablePayload, decode
from schedq.schedule import DEFINITION_FIELDS, Definition

_PAGE: Final = 500
_SCANNED: Final = 500
_MOST_WORKERS: Final = 200
_LONGEST_READ: Final = 10_000
"""Bytes of a payload that is read for the name of its task."""
_SLOTS: Final = ":slots"
_FIELDS: Final = (
    *(name for name in DEFINITION_FIELDS if name != "payload"),
    *("paused_at_ms", "error", "last_job_id", "runs"),
)
_ENDED: Final = frozenset((*FINISHED, ""))


@dataclass(frozen=True, slots=True)
class Standing:
    """How one schedule stands.

    Attributes:
        score: its entry's, as Redis has it; None without one.
        fields: of its hash, without the payload; empty if there is none.
        kind: type of its key; 'none' if there is none, '' if that is not known.
        slots: type of the key of its last slots, likewise.
        task: name of the task that its jobs call, '' if they call none, or that is not known.
        is_running: the job of its last run has not ended.
    """

    id: str
    score: str | None
    fields: Mapping[str, str]
    kind: str
    slots: str
    task: str = ""
    is_running: bool = False

    def definition(self) -> Definition:
        """What it says.

        Raises:
            UsageError: it can't be meant.
        """
        return Definition.from_fields(self.id, self.fields)

    @property
    def problem(self) -> str:
        """Why no job can be made of it; '' if one can."""
        if parked := self.fields.get("error"):
            return parked
        try:
            self.definition()
        except UsageError as error:
            return str(error)
        return ""

    def goes_on(self, now_ms: int) -> bool:
        """Whether its definition, which must be one, has slots to come."""
        definition = self.definition()
        is_used_up = 0 < definition.max_runs <= whole(self.fields.get("runs"))
        return not is_used_up and definition.next_after(now_ms) is not None

    @property
    def slot_ms(self) -> int | None:
        """Its next slot, which may be no instant that can be meant; None if it has none."""
        if self.score in (None, "inf", "-inf"):
            return -1 if self.score == "-inf" else None
        return int(float(str(self.score)))

    @property
    def paused_at_ms(self) -> int | None:
        """Since when it is paused, None if it is not."""
        return whole(self.fields["paused_at_ms"]) if "paused_at_ms" in self.fields else None


@dataclass(slots=True)
class Timetable:
    """What was read of a queue's schedules.

    Attributes:
        standing: how each stands that was looked at.
        count: entries of `schedules`.
        scanned: keys among which others were looked for.
        is_scanned: these were all.
        tasks: names of the tasks that live workers have; None if there is no worker, or not all could be asked.
    """

    standing: list[Standing] = field(default_factory=list)
    count: int = 0
    scanned: int = 0
    is_scanned: bool = False
    tasks: frozenset[str] | None = None


def look(keys: QueueKeys, sample: int) -> Flow[Timetable]:
    """Look at `sample` schedules, those with the earliest slots, and as for jobs at keys of others."""
    found = Timetable()
    (count,) = yield [plain("ZCARD", keys.schedules)]
    found.count = known(count, 0)
    ids: dict[str, None] = {}
    for first in range(0, min(found.count, sample), _PAGE):
        (page,) = yield [plain("ZRANGE", keys.schedules, first, min(first + _PAGE, sample) - 1)]
        ids |= dict.fromkeys(known(page, []))
    yield from _scan(found, keys, ids, sample)
    found.standing = yield from stand(keys, list(ids))
    if found.standing:
        found.tasks = yield from _tasks(keys)
    return found


def _scan(found: Timetable, keys: QueueKeys, ids: dict[str, None], sample: int) -> Flow[None]:
    """Look for keys of schedules among ten times as many keys; of those that were not listed `sample` are enough."""
    cursor, most = "0", len(ids) + sample
    while found.scanned < 10 * sample and len(ids) < most:
        (answer,) = yield [plain("SCAN", cursor, "MATCH", f"{keys.definitions}*", "COUNT", _SCANNED)]
        if isinstance(answer, SchedqError):
            return
        cursor, page = answer
        found.scanned += _SCANNED
        for key in page[: most - len(ids)]:
            ids[key.removeprefix(keys.definitions).removesuffix(_SLOTS)] = None
        if cursor == "0":
            found.is_scanned = True
            return


def stand(keys: QueueKeys, ids: Sequence[str]) -> Flow[list[Standing]]:
    """How these stand."""
    scores = yield from asked([plain("ZSCORE", keys.schedules, sendable(name)) for name in ids])
    hashes = [sendable(keys.schedule(name)) for name in ids]
    stored = yield from asked([plain("HMGET", key, *_FIELDS) for key in hashes])
    payloads = yield from asked([plain("HSTRLEN", key, "payload") for key in hashes])
    kinds = yield from asked([plain("TYPE", key) for key in hashes])
    slots = yield from asked([plain("TYPE", sendable(keys.slots(name))) for name in ids])
    found = []
    for name, score, values, payload, kind, of_slots in zip(ids, scores, stored, payloads, kinds, slots, strict=True):
        fields = {field: value for field, value in zip(_FIELDS, known(values, ()), strict=False) if value is not None}
        if known(payload, 0):
            fields["payload"] = "1"  # that there is one is enough here, however long it is
        is_known = not isinstance(values, SchedqError) or isinstance(values, Conflict)
        kind = known(kind, "") if is_known and not isinstance(score, SchedqError) else ""
        found.append(Standing(name, known(score, None), fields, kind, known(of_slots, "")))
    lengths = [known(payload, 0) for payload in payloads]
    return (yield from _with_tasks(keys, (yield from _with_runs(keys, found)), lengths))


def _with_runs(keys: QueueKeys, found: Sequence[Standing]) -> Flow[list[Standing]]:
    """The same with whether the last run goes on, where slots wait for that."""
    jobs = [it.fields.get("last_job_id", "") if it.fields.get("overlap") == "queue_one" else "" for it in found]
    ends = yield from asked([plain("HGET", sendable(keys.job(job)), "status") for job in jobs if job])
    status = dict(zip(filter(None, jobs), ends, strict=True))
    return [
        replace(it, is_running=known(status.get(job), "") not in _ENDED) for it, job in zip(found, jobs, strict=True)
    ]


def _with_tasks(keys: QueueKeys, found: Sequence[Standing], lengths: Sequence[int]) -> Flow[list[Standing]]:
    """The same with the tasks that their payloads name, those that are not too long to be read."""
    short = [it.id for it, length in zip(found, lengths, strict=True) if 0 < length <= _LONGEST_READ]
    texts = yield from asked([plain("HGET", sendable(keys.schedule(name)), "payload") for name in short])
    tasks = {name: _task(known(text, "")) for name, text in zip(short, texts, strict=True)}
    return [replace(it, task=tasks.get(it.id, "")) for it in found]


def _task(text: str) -> str:
    try:
        payload: Any = decode(text)
    except UnreadablePayload:
        return ""
    is_call = isinstance(payload, dict) and "task" in payload and payload.keys() <= {"task", "args", "kwargs"}
    return payload["task"] if is_call and isinstance(payload["task"], str) else ""


def _tasks(keys: QueueKeys) -> Flow[frozenset[str] | None]:
    """The tasks that live workers have; None if there is no worker, or not all said so."""
    (ids,) = yield [plain("ZREVRANGE", keys.workers, 0, _MOST_WORKERS)]
    names: list[str] = known(ids, [])
    answers = yield from asked([plain("HGET", keys.worker(name), "tasks") for name in names])
    if not names or len(names) > _MOST_WORKERS or any(isinstance(answer, SchedqError) for answer in answers):
        return None
    said = [
        WorkerRecord.from_fields(name, {"tasks": answer})
        for name, answer in zip(names, answers, strict=True)
        if answer is not None  # a dead one's hash has expired
    ]
    return frozenset(task for worker in said for task in worker.tasks) if said else None


def limits(found: Timetable) -> Iterator[str]:
    """What was not looked at, in words."""
    listed = sum(it.score is not None for it in found.standing)
    if listed < found.count:
        yield f"{listed:,} of {found.count:,} schedules were looked at, those with the earliest slots first"
    if found.count and not found.is_scanned and found.scanned:
        yield f"schedules that are not listed were looked for among {found.scanned:,} keys"
