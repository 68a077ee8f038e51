"""A workflow's run for people: what it waits for, what it has done, and which messages nothing has taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from schedq.model.graph import CONTROL, CONTROL_NAME, PLAN, control_of, shown_name
from schedq.model.groups import DAMAGED, BatchProgress
from schedq.model.records import whole
from schedq.model.runs import RETURNED, STEP, TRIES, UNDO, UNDOING, UNTIL, Memo, Run, RunWait, open_undos, undone
from schedq.model.times import LAST_INSTANT_MS, span

_OF_RUNS: Final = (STEP, TRIES, UNTIL, UNDO, "inbox:", "sent:")
_NAMES: Final = frozenset({"run", "waits", "args", "topics", UNDOING})
_MOST_WAITS: Final = 3
_CANCELLED: Final = 2


class Done(NamedTuple):
    """One operation of a run that is over.

    Attributes:
        name: with the path of its branch; `undo charge` for what undid the step `charge`.
        memo: its outcome.
    """

    name: str
    memo: Memo


def is_of_run(field: str) -> bool:
    """Whether a field of a job belongs to the record of its run."""
    return field in _NAMES or field.startswith(_OF_RUNS)


def done(fields: Mapping[str, str]) -> list[Done]:
    """The operations that are over, in their order."""
    found: list[Done] = []
    is_flow = Run.read(fields.get("run", "")).is_flow
    for field, text in fields.items():
        memo = Memo.read(text) if field.startswith(STEP) else None
        if memo is not None and memo.outcome != RETURNED and memo.kind != PLAN:
            name = field.removeprefix(STEP)
            found.append(Done(f"undo {step}" if (step := undone(name)) else _shown(name, memo, is_flow), memo))
    return sorted(found, key=lambda each: each.memo.number)


def _shown(name: str, memo: Memo, is_flow: bool) -> str:  # noqa: FBT001 - within this module
    if is_flow and name.startswith(CONTROL_NAME):
        return "pause" if isinstance(memo.value, list) and memo.value[:1] == [True] else "resume"
    return shown_name(name) if is_flow else name


def is_paused(fields: Mapping[str, str]) -> bool:
    """Whether a flow is paused."""
    run = Run.read(fields.get("run", ""))
    if not run.is_flow:
        return False
    controls = {name.removeprefix(STEP): Memo.read(text) for name, text in fields.items() if CONTROL_NAME in name}
    return control_of({name: memo for name, memo in controls.items() if memo is not None}, run.requeued)[0]


def open_waits(fields: Mapping[str, str]) -> list[RunWait]:
    """What a suspended run waits for, under the names that people know; not for the messages that pause a flow."""
    is_flow = Run.read(fields.get("run", "")).is_flow
    waits = [wait for wait in RunWait.read(fields.get("waits")) if wait.topic != CONTROL]
    return [wait._replace(name=shown_name(wait.name)) for wait in waits] if is_flow else waits


def to_undo(fields: Mapping[str, str]) -> list[str]:
    """The steps that a run undoes, or has not undone although it has ended, the next one first."""
    run = Run.read(fields.get("run", ""))
    return [name for name, _ in open_undos(fields)] if run.undoing or run.left else []


def undo_in_words(fields: Mapping[str, str]) -> str:
    """What a run has to undo, behind a sentence about its job; '' if that is nothing."""
    run, names = Run.read(fields.get("run", "")), to_undo(fields)
    if not names:
        return ""
    listed = ", ".join(names[:_MOST_WAITS]) + (", …" if len(names) > _MOST_WAITS else "")
    if not run.left:
        why = "was cancelled" if run.undoing == _CANCELLED else f"failed with {fields.get(UNDOING, '')}"
        return f"; it undoes its steps, because it {why}: {listed}"
    way = "requeue it to undo the rest" if run.undoing else "requeue it to continue, or undo it"
    return f"; {len(names)} of its steps {'is' if len(names) == 1 else 'are'} not undone ({listed}): {way}"


def awaited(fields: Mapping[str, str]) -> list[str]:
    """The batches that a suspended run waits for, as many as are named."""
    return [wait.group for wait in open_waits(fields)[:_MOST_WAITS] if wait.group]


def waits_in_words(fields: Mapping[str, str], now_ms: int, batches: Mapping[str, BatchProgress]) -> str:
    """What a suspended run waits for, as part of a sentence about the job."""
    waits = open_waits(fields)
    texts = [_in_words(wait, fields, now_ms, batches.get(wait.group)) for wait in waits[:_MOST_WAITS]]
    if len(waits) > _MOST_WAITS:
        texts.append(f"{len(waits) - _MOST_WAITS} more waits")
    said = "; or ".join(texts)
    if is_paused(fields):
        return f"the flow is paused: it starts no new nodes until it is resumed{'; ' if said else ''}{said}"
    return said


def _in_words(wait: RunWait, fields: Mapping[str, str], now_ms: int, batch: BatchProgress | None) -> str:
    left = span(max(0, (wait.until_ms or now_ms) - now_ms))
    if wait.kind == "sleep":
        return f"it sleeps for another {left}"
    if wait.kind == "retry":
        tries, _, _, error = (*fields.get(TRIES + wait.name, "").split(" ", 3), "", "", "", "")[:4]
        return f"step {wait.name} is tried again in {left}: try {tries} failed with {error}"
    since = since_ms(fields, wait.name)
    waits = f"has waited {span(max(0, now_ms - since))}" if since else "waits"
    if wait.kind != "receive":
        return f"it {waits} for {_jobs_of(wait, batch)}"
    limit = "" if wait.until_ms is None else f", and waits another {left} at the most"
    return f'it {waits} for a message on topic "{wait.topic}"{limit}'


def _jobs_of(wait: RunWait, batch: BatchProgress | None) -> str:
    name = f"batch {wait.group}" + (f" of queue {batch.stands_for}" if batch is not None and batch.stands_for else "")
    is_damaged = batch is not None and batch.status == DAMAGED
    name += f", which is damaged ({batch.error})" if batch is not None and is_damaged else ""
    if wait.kind == "call":
        return f"the job of {wait.name}, {name}"
    if batch is None or batch.stands_for or is_damaged:
        return f"the jobs of {wait.name}, {name}"
    failed = f", {batch.failed:,} failed" if batch.failed else ""
    return f"the jobs of {wait.name}, {name}: {batch.completed:,} of {batch.total:,} have completed{failed}"


def since_ms(fields: Mapping[str, str], name: str) -> int:
    """Since when an operation waits, ms; 0 if that is not recorded."""
    return whole(fields.get(UNTIL + name, "").partition(" ")[2])


def waits_facts(fields: Mapping[str, str], batches: Mapping[str, BatchProgress]) -> list[dict[str, Any]]:
    """What a suspended run waits for, for programs; instants in ms."""
    return [
        {
            "kind": wait.kind,
            "name": wait.name,
            "topic": wait.topic or None,
            "batch": batches[wait.group]._asdict() if wait.group in batches else None,
            "since_ms": since_ms(fields, wait.name) or None,
            "until_ms": None if wait.group or wait.until_ms in (None, LAST_INSTANT_MS) else wait.until_ms,
        }
        for wait in open_waits(fields)
    ]


def error_of(memo: Memo) -> str:
    """What went wrong in an operation; '' if nothing did."""
    if memo.outcome != "error":
        return ""
    return str(memo.value[0] if memo.kind == "map" and isinstance(memo.value, list) and memo.value else memo.value)


def arrivals(fields: Mapping[str, str]) -> list[tuple[int, str]]:
    """When messages arrived that nothing has taken, and their topics."""
    found = []
    for field, box in fields.items():
        if field.startswith("inbox:"):
            lines = [line for line in box.split("\n") if line]
            found += [(whole(line.partition(" ")[0]), field.removeprefix("inbox:")) for line in lines]
    return sorted(found)


def messages(fields: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """How many messages of each topic nothing has taken."""
    for field, box in sorted(fields.items()):
        if field.startswith("inbox:") and box:
            yield field.removeprefix("inbox:"), box.count("\n") + 1
