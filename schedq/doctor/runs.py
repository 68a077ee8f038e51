"""Runs of workflows: those that nothing can wake, that have waited for a message for long, or were not undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from schedq.doctor.checks import Check, asked, known, own_id, plain
from schedq.errors import SchedqError
from schedq.inspect.display import approximate, count
from schedq.model.keys import QueueKeys
from schedq.model.lifecycle import DELAYED
from schedq.model.payload import clean_text, loaded
from schedq.model.records import score_ms, whole
from schedq.model.runs import UNTIL, Run, RunWait
from schedq.model.times import LAST_INSTANT_MS
from schedq.transitions import RoundTrips

_LONG_MS: Final = 7 * 86_400_000
_LATE_MS: Final = 1000
_MOST_LEFT: Final = 199
_BRIEF: Final = 200
_OPEN: Final = ("running", "cancelling")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A suspended run, and what it waits for.

    Attributes:
        id: its job.
        now_ms: Redis's clock.
        due_ms: when it is due.
        waits: what it waits for.
        is_readable: whether all of that can be read.
        boxes: the messages of the topics that it waits for, as they are stored.
        since: since when each operation waits, ms, where that is recorded.
        groups: the status of each batch that it waits for, and the job which that wakes.
    """

    id: str
    now_ms: int
    due_ms: int
    waits: tuple[RunWait, ...]
    is_readable: bool
    boxes: Mapping[str, str]
    since: Mapping[str, int]
    groups: Mapping[str, tuple[str, str]]

    @property
    def problem(self) -> str:
        """Why nothing wakes it in time, in words; '' if something does."""
        if self.due_ms <= self.now_ms:
            return ""  # the promoter does
        if not self.is_readable:
            return "what it waits for can't be read" if self.due_ms >= LAST_INSTANT_MS else ""
        ends_ms = min((it.until_ms or LAST_INSTANT_MS for it in self.waits), default=LAST_INSTANT_MS)
        if self.due_ms > ends_ms + _LATE_MS:
            return f"the first of its waits ends {self._ahead(ends_ms)}, and the job is due {self._ahead(self.due_ms)}"
        found = next(filter(None, map(self._missed, self.waits)), "")
        if not found and self.due_ms >= LAST_INSTANT_MS and not any(it.topic or it.group for it in self.waits):
            return "it waits for no instant, no message and no batch"
        return found

    def _missed(self, wait: RunWait) -> str:
        """Why the end of this wait did not wake it."""
        if wait.group:
            status, wakes = self.groups.get(wait.group, ("", ""))
            if status not in _OPEN:
                return f"batch {wait.group} that {wait.name} waits for is {status or 'gone'}"
            return "" if wakes == self.id else f"batch {wait.group} that {wait.name} waits for does not wake it"
        until = wait.until_ms or LAST_INSTANT_MS
        arrivals = [whole(line.partition(" ")[0]) for line in self.boxes.get(wait.topic, "").split("\n") if line]
        if wait.topic and any(at <= until for at in arrivals):
            return f"a message for topic {wait.topic} that {wait.name} waits for is there"
        return ""

    def _ahead(self, at_ms: int) -> str:
        if at_ms >= LAST_INSTANT_MS:
            return "never"
        return f"in {approximate(at_ms - self.now_ms)}" if at_ms > self.now_ms else "in the past"

    @property
    def longest(self) -> tuple[int, str]:
        """How long it has waited for a message, ms, and for which topic."""
        waits = [
            (self.now_ms - self.since[it.name], it.topic) for it in self.waits if it.topic and it.name in self.since
        ]
        return max(waits, default=(0, ""))


@dataclass(frozen=True, slots=True)
class LeftFacts:
    """A run that has ended although some of its steps are to be undone.

    Attributes:
        id: its job.
        undos: how many steps.
        error: of the job.
    """

    id: str
    undos: int
    error: str


def read_listed(keys: QueueKeys, delayed: Sequence[str]) -> RoundTrips[tuple[list[str], list[str]]]:
    """Those of these jobs that are suspended runs, and the first runs with undos; one round trip if there are none."""
    total, listed = yield [plain("HGET", keys.stats, "suspended_total"), plain("ZRANGE", keys.undos, 0, _MOST_LEFT)]
    undos = [job_id for job_id in listed if isinstance(job_id, str)] if isinstance(listed, list) else []
    if not whole(known(total, "0")):
        return [], undos
    replies = yield from asked([plain("HGET", keys.job(job_id), "waits") for job_id in delayed])
    return [job_id for job_id, waits in zip(delayed, replies, strict=True) if isinstance(waits, str)], undos


def read_left(keys: QueueKeys, ids: Sequence[str]) -> RoundTrips[list[LeftFacts]]:
    """Those of some runs that have ended although some of their steps are to be undone."""
    replies = yield from asked([plain("HMGET", keys.job(job_id), "run", "last_error") for job_id in ids])
    found = []
    for job_id, reply in zip(ids, replies, strict=True):
        run = Run.read(reply[0] or "") if isinstance(reply, list) else None
        if run is not None and run.left and run.undos:
            found.append(LeftFacts(job_id, run.undos, clean_text((reply[1] or "").partition("\n")[0], _BRIEF)))
    return found


def read_facts(keys: QueueKeys, now_ms: int, ids: Sequence[str]) -> RoundTrips[list[RunFacts]]:
    """Read some suspended runs in detail; those that have moved meanwhile are left out."""
    replies = yield from asked([plain("HMGET", keys.job(job_id), "status", "waits") for job_id in ids])
    found: dict[str, tuple[str, tuple[RunWait, ...]]] = {}
    for job_id, reply in zip(ids, replies, strict=True):
        if isinstance(reply, list) and reply[0] == DELAYED and reply[1] is not None:
            found[job_id] = (reply[1], tuple(filter(_is_sound, RunWait.read(reply[1]))))
    queries = {job_id: _queries(keys, job_id, waits) for job_id, (_, waits) in found.items()}
    answers = yield from asked([query for some in queries.values() for query in some])
    made = []
    for job_id, (text, waits) in found.items():
        mine, answers = answers[: len(queries[job_id])], answers[len(queries[job_id]) :]
        if not any(isinstance(reply, SchedqError) for reply in mine) and isinstance(mine[0], str):
            made.append(_facts(job_id, now_ms, text, waits, mine))
    return made


def _is_sound(wait: RunWait) -> bool:
    texts = (wait.kind, wait.name, wait.topic, wait.group)
    return all(isinstance(text, str) for text in texts) and isinstance(wait.until_ms, (int, type(None)))


def _queries(keys: QueueKeys, job_id: str, waits: Sequence[RunWait]) -> list[Any]:
    key, groups = keys.job(job_id), [it.group for it in waits if it.group]
    fields = [name for it in waits for name in (f"inbox:{it.topic}", UNTIL + it.name)] or ["inbox:"]
    return [
        plain("ZSCORE", keys.delayed, job_id),
        plain("HMGET", key, *fields),
        *(plain("HMGET", keys.group(name), "status", "wake") for name in groups),
    ]


def _facts(job_id: str, now_ms: int, text: str, waits: tuple[RunWait, ...], replies: list[Any]) -> RunFacts:
    score, values, *ends = replies
    boxes = {it.topic: box or "" for it, box in zip(waits, values[::2], strict=False) if it.topic}
    sinces = {it.name: whole((at or "").partition(" ")[2]) for it, at in zip(waits, values[1::2], strict=False)}
    groups = [it.group for it in waits if it.group]
    stored = loaded(text)
    return RunFacts(
        id=job_id,
        now_ms=now_ms,
        due_ms=score_ms(score),
        waits=waits,
        is_readable=isinstance(stored, list) and len(stored) == len(waits),
        boxes=boxes,
        since={name: at for name, at in sinces.items() if at},
        groups={name: (end[0] or "", end[1] or "") for name, end in zip(groups, ends, strict=True)},
    )


RUNS: Final[tuple[Check[RunFacts], ...]] = (
    Check(
        "run-not-woken",
        "error",
        lambda it: it.problem,
        "suspended run that nothing wakes in time=suspended runs that nothing wakes in time",
        lambda it: f"run {it.id} does not continue by itself: {it.problem}",
        "a write was lost, or another program changed the record: schedq reschedule ID --now --queue {queue} lets it "
        "look again, and it waits again if nothing of it is over",
        own_id,
    ),
    Check(
        "run-waits-long",
        "note",
        lambda it: it.longest[0] >= _LONG_MS,
        "run that has waited for a message for over 7 days=runs that have waited for a message for over 7 days",
        lambda it: f"run {it.id} has waited for {approximate(it.longest[0])} for a message for topic {it.longest[1]}",
        "schedq send ID TOPIC JSON --queue {queue} sends it, and schedq cancel ID ends the run; give such waits a "
        "timeout=",
        own_id,
    ),
)
"""The first row that applies to a run determines its finding."""
LEFT: Final[tuple[Check[LeftFacts], ...]] = (
    Check(
        "run-not-undone",
        "warning",
        lambda it: it.undos > 0,
        "run that ended with steps that are not undone=runs that ended with steps that are not undone",
        lambda it: f"run {it.id} did not undo {count(it.undos, 'step')}: {it.error}",
        "an undo failed for good, or the error may be a mistake in the code: mend it, then schedq requeue ID --queue "
        "{queue} continues there, and schedq undo ID undoes the rest",
        own_id,
    ),
)
