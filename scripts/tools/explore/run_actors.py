"""Actors of workflows: attempts that record what they do, and senders of messages."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schedq.model import outcome
from schedq.model.groups import ENDED, GroupDefinition
from schedq.model.records import ClaimedJob
from schedq.model.runs import STEP, Memo, Run, RunWait, beginning, open_undos, undo_name
from schedq.model.settings import Settings
from schedq.model.times import LAST_INSTANT_MS
from schedq.transitions import groups, run, send, unwrap
from scripts.tools.explore.actors import Plan, RequestGenerator, claims_jobs, ending
from scripts.tools.settling import settle_all


@dataclass(frozen=True)
class Does:
    """One operation of a workflow.

    Attributes:
        kind: step, undoable (a step with an undo), fails (a step that fails for good), receive, sleep, first (a race,
            decided against the operations in `losers`), map (two jobs of the group "b") or "start over".
        name: the operation.
        topic: of messages.
        ms: how long it waits; None forever.
        losers: operations of branches that lose.
    """

    kind: str
    name: str = ""
    topic: str = "paid"
    ms: int | None = None
    losers: tuple[str, ...] = ()


def runs(name: str, *program: Does, claims: int = 1, end: str = "complete", timeout_ms: int | None = None) -> Plan:
    """A worker runs a workflow: it recalls its record, does what is left, and suspends or ends the run."""

    def steps(queue: Settings) -> RequestGenerator:
        for number in range(claims):
            for job in (yield from claims_jobs(queue, f"{name}{number}", name)):
                if job.id.startswith("b-"):
                    yield from settle_all(queue, [ending("complete", job, queue)])
                    continue
                # A copy, because the search runs this again with the same replies.
                job = replace(job, run=job.run or beginning(1, job.claimed_at_ms, timeout_ms))
                if Run.read(job.run).undoing:
                    yield from _undo(queue, job)
                    yield from settle_all(queue, [ending("discard", job, queue)])
                    continue
                waits = yield from _attempt(queue, job, program)
                if waits is not None:
                    yield from settle_all(queue, [outcome.suspended(job, waits)])
                else:
                    yield from settle_all(queue, [ending(end, job, queue)])

    return steps


def _attempt(
    queue: Settings, job: ClaimedJob, program: Sequence[Does]
) -> Generator[Any, Any, Sequence[RunWait] | None]:
    """Do what is left of a program; returns what it waits for, or None at its end."""
    (reply,) = yield [run.recall(queue, job)]
    known = unwrap(reply)
    if Run.read(known.get("run", "")).is_void:
        unwrap((yield [run.start_over(queue, job, Run.read(known["run"]).life, "")])[0])
        known = {}
    for does in program:
        if STEP + does.name in known:
            continue
        if does.kind == "start over":
            if "life=1" not in known.get("run", ""):
                unwrap((yield [run.start_over(queue, job, 1, "[[2],{}]")])[0])
                return ()
            continue
        wait = yield from _do(queue, job, does)
        if wait is not None:
            return (wait,)
    return None


def _undo(queue: Settings, job: ClaimedJob) -> RequestGenerator:
    """Undo the steps of a run, the newest first."""
    (reply,) = yield [run.recall(queue, job)]
    for name, _ in open_undos(unwrap(reply)):
        unwrap((yield [run.step(queue, job, undo_name(name), written(Memo("undo", "ok", None, 1, 2, 1)))])[0])


def written(memo: Memo) -> str:
    """A memo as the library sends it: the script appends its number."""
    return json.dumps(memo[:-1], separators=(",", ":"))


def _do(queue: Settings, job: ClaimedJob, does: Does) -> Generator[Any, Any, RunWait | None]:
    if does.kind == "receive":
        (reply,) = yield [run.receive(queue, job, does.name, does.topic, does.ms)]
        answer = unwrap(reply)
        if answer.word != "WAITS":
            return None
        return RunWait("receive", does.name, int(answer.rest[0]) if answer.rest[0] else None, does.topic)
    if does.kind == "sleep":
        (reply,) = yield [run.until(queue, job, does.name, "in", does.ms or 0)]
        at, now = map(int, unwrap(reply).rest)
        if now < at:
            return RunWait("sleep", does.name, at)
    if does.kind == "map":
        wait = yield from _map(queue, job, does)
        if wait is not None:
            return wait
    if does.kind == "undoable":
        answer = unwrap((yield [run.add_undo(queue, job, does.name, '[{"task":"t"},null,null,null]')])[0])
        job.run = answer.rest[0]
    memo = Memo(does.kind, "error" if does.kind == "fails" else "ok", job.claim_token, 1, 2, 1)
    memo = memo._replace(kind="step" if does.kind in ("fails", "undoable") else does.kind)
    unwrap((yield [run.step(queue, job, does.name, written(memo), does.losers)])[0])
    return None


def _map(queue: Settings, job: ClaimedJob, does: Does) -> Generator[Any, Any, RunWait | None]:
    (reply,) = yield [run.until(queue, job, does.name, "at", LAST_INSTANT_MS)]
    unwrap(reply)
    status = groups.of_replies((yield groups.reading(queue, "b"))).get("status", "")
    if not status:
        made = GroupDefinition(
            "b",
            "".join(filter(str.isalnum, job.claim_token))[-6:],
            head='{"task":"t"',
            tail="}",
            wake=job.id,
            channel="ends",
        )
        (reply,) = yield [groups.fill(queue, made, [',"args":[0]', ',"args":[1]'], 0, close=True, holder=job)]
        status = unwrap(reply).status
    return None if status in ENDED else RunWait("map", does.name, None, "", "b")


def sends(job_id: str, topic: str = "paid", value: object = "yes", message_id: str = "m1") -> Plan:
    """Someone sends a message."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [send.send(queue, job_id, topic, value, message_id)]

    return steps
