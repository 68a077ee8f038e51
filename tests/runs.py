"""The laws of runs: what is recorded of a workflow agrees with itself, and no suspended run is forgotten."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from schedq.model.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, PENDING
from schedq.model.runs import STEP, UNDO, UNDOING, Memo, Run, RunWait, open_undos
from schedq.model.times import LAST_INSTANT_MS

_INBOX: Final = "inbox:"
_SENT: Final = "sent:"
_RING: Final = 100


def broken(job_id: str, fields: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the record of one run."""
    memos = _memos(fields)
    if "run" not in fields and (memos or "waits" in fields):
        yield f"{job_id} has a record, but no `run`"
    yield from (f"{job_id}: the memo of {name} is damaged" for name, text in memos.items() if Memo.read(text) is None)
    if "waits" in fields and fields.get("status") not in (DELAYED, PENDING, CANCELLED):
        yield f"{job_id} waits although it is {fields.get('status')}"
    if fields.get("status") == DELAYED:
        yield from (f"{job_id}: {complaint}" for complaint in _stands_still(fields))
    yield from (f"{job_id}: {complaint}" for complaint in _messages(fields, memos.values()))


def miscounted(job_id: str, fields: Mapping[str, str]) -> Iterator[str]:
    """What `run` says of the memos must be so."""
    memos, run = _memos(fields), Run.read(fields.get("run", ""))
    if run.is_void:
        return
    if run.steps != len(memos):
        yield f"{job_id}: {run.steps} memos are counted, and {len(memos)} there"
    numbers = [memo.number for text in memos.values() if (memo := Memo.read(text)) is not None]
    if len(numbers) != len(set(numbers)):
        yield f"{job_id}: nothing says which memo came first, as their numbers are {sorted(numbers)}"
    calls = [text for name, text in fields.items() if name.startswith(UNDO)]
    size = sum(len(text.encode()) for text in (*memos.values(), *calls))
    if run.bytes != size and fields.get("status") != COMPLETED:
        yield f"{job_id}: {run.bytes} bytes of memos are counted, and {size} there"
    if run.undos != (count := len(open_undos({**fields, "run": "v=1 undos=1"}))) and fields.get("status") != COMPLETED:
        yield f"{job_id}: {run.undos} undos are counted, and {count} are open"


def unfinished(job_id: str, fields: Mapping[str, str], listed: Collection[str]) -> Iterator[str]:
    """A run with steps to undo is known to those who look after it, and does not end without undoing them."""
    run, status = Run.read(fields.get("run", "")), fields.get("status")
    if run.undos and job_id not in listed:
        yield f"{job_id} has steps to undo, and is not listed"
    if run.undos and status in (COMPLETED, FAILED, CANCELLED) and not run.left:
        yield f"{job_id} is {status}, and {run.undos} of its steps are still to be undone"
    if run.left and status not in (FAILED, CANCELLED):
        yield f"{job_id} is {status}, and said to have ended without undoing its steps"
    if run.undoing and run.deadline_ms is not None:
        yield f"{job_id} undoes its steps, and has a deadline"
    if run.undoing and UNDOING not in fields:
        yield f"{job_id} undoes its steps, and nothing says why"


def _memos(fields: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(STEP): text for name, text in fields.items() if name.startswith(STEP)}


def _stands_still(fields: Mapping[str, str]) -> Iterator[str]:
    due = int(fields.get("run_at_ms", 0))
    for wait in RunWait.read(fields.get("waits")):
        until = wait.until_ms or LAST_INSTANT_MS
        if due > until:
            yield f"{wait.name} is over at {until}, but the job is due at {due}"
        arrivals = [arrival for arrival, _ in lines(fields, wait.topic) if arrival <= until] if wait.topic else []
        if arrivals:
            yield f"{wait.name} waits for {wait.topic}, and a message came at {arrivals[0]}"
    deadline = Run.read(fields.get("run", "")).deadline_ms
    if deadline is not None and due > deadline:
        yield f"it is due at {due}, after its deadline {deadline}"


def lines(fields: Mapping[str, str], topic: str) -> list[tuple[int, str]]:
    """The messages in a box: arrival in ms, and JSON."""
    found = [line.partition(" ") for line in fields.get(_INBOX + topic, "").split("\n") if line]
    return [(int(arrival), text) for arrival, _, text in found]


def _messages(fields: Mapping[str, str], memos: Iterable[str]) -> Iterator[str]:
    """Each message that was accepted is in its box, or in one memo."""
    if Run.read(fields.get("run", "")).life:
        return
    taken = [json.loads(text) for text in memos]
    for name, ids in fields.items():
        topic = name.removeprefix(_SENT)
        if not name.startswith(_SENT) or len(ids.split("\n")) == _RING:
            continue
        accepted = len(ids.split("\n"))
        count = sum(memo[:2] == ["receive", "ok"] and memo[-1] == topic for memo in taken) + len(lines(fields, topic))
        if count != accepted:
            yield f"{accepted} messages of topic {topic} were accepted, and {count} are there"
