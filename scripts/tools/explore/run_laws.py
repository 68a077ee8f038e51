"""What a step says of runs of workflows, beyond the laws of states."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from schedq.model.lifecycle import CANCELLED, DELAYED, PENDING, PROCESSING
from schedq.model.runs import STEP, TRIES, UNTIL, Memo, Run, RunWait
from schedq.model.times import LAST_INSTANT_MS
from tests.runs import lines
from tests.state import State

_CANCELLED = 2
_FORGETS = ("requeue", "start_over", "complete", "fail_over")


def kept(name: str, losers: tuple[str, ...], before: State, after: State) -> Iterator[str]:
    """Memos and instants never change; they are forgotten only by what says so."""
    if name in _FORGETS:
        return
    for job_id in before.jobs().keys() & after.jobs().keys():
        was, now = before.job(job_id), after.job(job_id)
        for field, text in was.items():
            is_lost = field.removeprefix(STEP) in losers
            if field.startswith(STEP) and not is_lost and now.get(field) != text:
                yield f"{job_id}: {field} was {text}, and is {now.get(field)} after {name}"
            if field.startswith(UNTIL) and now.get(field, text) != text:
                yield f"{job_id}: {field} was {text}, and is {now[field]} after {name}"


def received(name: str, topic: str, timeout: object, answer: Any, now_ms: int, was: Mapping[str, str]) -> Iterator[str]:
    """The first message that arrived in time is taken; a wait has ended only if its instant has passed."""
    if (answer.word == "EXISTS") != (STEP + name in was):
        yield f"{name} gets {answer.word}, and has the memo {was.get(STEP + name)}"
    if answer.word == "EXISTS":
        return
    limit = LAST_INSTANT_MS if timeout == "" else now_ms + int(str(timeout))
    until = int(was.get(UNTIL + name, str(limit)).split(" ")[0])
    in_time = [(at, text) for at, text in lines(was, topic) if at <= until]
    if answer.word == "WAITS":
        if in_time or now_ms >= until:
            yield f"{name} waits until {until} although {in_time or 'its time has come'}"
        if int(answer.rest[0] or LAST_INSTANT_MS) != until:
            yield f"{name} waited until {until}, and waits until {answer.rest[0]} now"
        return
    memo, first = Memo.read(answer.rest[0]), in_time[0] if in_time else (0, "null")
    if memo is None:
        yield f"{name} has a damaged memo: {answer.rest[0]}"
    elif memo.outcome == "ok" and (memo.ended_ms, memo.value) != (first[0], json.loads(first[1])):
        yield f"{name} took {memo.value} of {memo.ended_ms}, and {in_time} are in time until {until}"
    elif memo.outcome == "timeout" and (in_time or now_ms < until):
        yield f"{name} has timed out {until - now_ms} ms early, or although {in_time} came in time"


def given_back(losers: Sequence[str], was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """What losing branches had taken is in its box again, before what came later."""
    memos = [json.loads(was[STEP + name]) for name in losers if STEP + name in was]
    for topic in {memo[-1] for memo in memos if memo[:2] == ["receive", "ok"]}:
        taken = [memo[2] for memo in memos if memo[-1] == topic]
        left = [json.loads(text) for _, text in lines(was, topic)]
        found = [json.loads(text) for _, text in lines(now, topic)]
        if found != taken + left:
            yield f"{taken} went back before {left}, and the box has {found}"


def suspended(
    text: str, now_ms: int, was: Mapping[str, str], now: Mapping[str, str], running: Collection[str]
) -> tuple[int, list[str]]:
    """When a suspended run may start again, by its waits alone; and what is wrong with it.

    `running` are the groups that have not ended.
    """
    due, is_over = LAST_INSTANT_MS, False
    waits = RunWait.read(text)
    for wait in waits:
        until = wait.until_ms or LAST_INSTANT_MS
        due = min(due, until)
        is_over = is_over or until <= now_ms or any(at <= until for at, _ in lines(was, wait.topic))
        is_over = is_over or bool(wait.group and wait.group not in running)
    deadline = Run.read(now.get("run", "")).deadline_ms
    due = min(due, deadline or LAST_INSTANT_MS)
    complaints = []
    if is_over or not waits or due <= now_ms:
        due = now_ms
    if now.get("status") != (DELAYED if due > now_ms else PENDING):
        complaints.append(f"a run that waits until {due} is {now.get('status')}")
    if now.get("waits") != text or "run" not in now:
        complaints.append(f"a run that waits for {text} has {now.get('waits')} and {now.get('run')}")
    return due, complaints


def woken(before: State, after: State) -> Iterator[str]:
    """The suspended runs that a group has woken."""
    for job_id in before.jobs().keys() & after.jobs().keys() if "groups" in before.keys else ():
        was, now = before.job(job_id), after.job(job_id)
        waits = any(wait.group for wait in RunWait.read(was.get("waits")))
        if waits and was.get("status") == DELAYED and now.get("status") == PENDING:
            yield job_id


def sent(
    message: str, topic: str, value: str, *, is_accepted: bool, before: State, after: State, job_id: str
) -> Iterator[str]:
    """A message is put into its box once, and wakes a run that waits for it."""
    was, now = before.job(job_id), after.job(job_id)
    if message in was.get(f"sent:{topic}", "").split("\n"):
        if before != after:
            yield f"message {message} was sent again, which changed something"
        return
    if not is_accepted:
        if before != after:
            yield f"message {message} was refused, but changed something"
        if was.get("status") in (PENDING, DELAYED, PROCESSING):
            yield f"message {message} was refused although {job_id} is {was.get('status')}"
        return
    if was.get("status") not in (PENDING, DELAYED, PROCESSING):
        yield f"message {message} was accepted although {job_id} is {was.get('status')}"
    if [text for _, text in lines(now, topic)] != [*(text for _, text in lines(was, topic)), value]:
        yield f"message {message} was accepted, and the box is {now.get(f'inbox:{topic}')}"
    waits = any(wait.topic == topic for wait in RunWait.read(was.get("waits")))
    if waits and was.get("status") == DELAYED and now.get("status") != PENDING:
        yield f"message {message} woke nothing although {job_id} waits for it"


def started_over(args: str, was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """A run that started over has new arguments, no record, and its messages."""
    left = [field for field in now if field.startswith((STEP, UNTIL, TRIES))]
    if left:
        yield f"a run started over with {left}"
    if (args and now.get("args") != args) or now.get("payload") != was.get("payload"):
        yield f"a run started over with the arguments {now.get('args')}"
    boxes = [{field: text for field, text in fields.items() if field.startswith("inbox:")} for fields in (was, now)]
    if boxes[0] != boxes[1]:
        yield f"a run that started over had the messages {boxes[0]}, and has {boxes[1]}"


def begins_to_undo(was: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether a run undoes its steps now, and did not before."""
    return bool(Run.read(now.get("run", "")).undoing and not Run.read(was.get("run", "")).undoing)


def goes_back(name: str, was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """A run with steps to undo does not end: it goes back to undo them."""
    run = Run.read(was.get("run", ""))
    if run.undos and not run.undoing and not (begins_to_undo(was, now) and now.get("status") == PENDING):
        yield f"{name} ended a run with {run.undos} steps to undo: it is {now.get('status', 'gone')}"


def deleted(name: str, was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """A run that has not ended is deleted only if it has nothing to undo."""
    if was.get("status") in (PENDING, DELAYED, PROCESSING) and not now:
        yield from goes_back(name, was, now)


def cancelled(move: str, was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """A cancelled run that has undone its steps ends as cancelled."""
    run = Run.read(was.get("run", ""))
    if move == "fail" and run.undoing == _CANCELLED and not run.undos and now.get("status") != CANCELLED:
        yield f"a cancelled run has undone its steps, and is {now.get('status')}"


def requeued(was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """A run that is requeued forgets failures, and at least the last memo if it is one."""
    run, after = Run.read(was.get("run", "")), Run.read(now.get("run", ""))
    if run.undoing and not run.undos and (after.undoing or not after.is_void):
        yield "a run that had undone its steps was requeued, and keeps its record"
    if run.undoing and run.undos and not after.undoing:
        yield f"a run with {run.undos} steps still to undo was requeued, and does not undo them"
    memos = {field: json.loads(text) for field, text in was.items() if field.startswith(STEP)}
    for field, memo in memos.items():
        if field not in now and memo[1] != "error":
            yield f"a requeued run forgot {field}, which did not fail"
    if memos:
        last = max(memos, key=lambda field: int(memos[field][6]))
        if memos[last][1] == "error" and last in now:
            yield f"a requeued run kept the failure of {last}, which ended it"
