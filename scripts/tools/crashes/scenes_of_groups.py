"""Scenes with groups: what scripts do when children end, and to the groups themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from schedq import Queue
from schedq.inspect import bulk
from schedq.inspect.bulk import purge_page
from schedq.model import outcome
from schedq.model.groups import GroupDefinition, call_line
from schedq.model.placeholder import MARKER
from schedq.model.records import Settlement
from schedq.model.runs import RunWait, beginning
from schedq.transitions import Operation, cancel, claim, groups, reclaim, requeue, settle, stand_ins
from scripts.tools.crashes.scene import Scene, Staged, claimed_job, mark_job
from tests.doors import Clock

THEN: Final = call_line((), '{"task":"sum","args":[' + MARKER + "]}")


def definition(**given: Any) -> GroupDefinition:
    """A group of calls of one task, with a call at its end."""
    return GroupDefinition("b", "g1", **{"head": '{"task":"t"', "tail": "}", "then": THEN, **given})


def links(count: int) -> list[str]:
    """The calls of a chain."""
    return [call_line((), '{"task":"t","args":[' + (MARKER if n else "0") + "]}") for n in range(count)]


def fill(queue: Queue, count: int = 4, **given: Any) -> list[str]:
    """Make a group of `count` children and close it; returns the ids of all of them."""
    made = definition(**given)
    items = links(count) if made.is_chained else [f',"args":[{n}]' for n in range(count)]
    queue._ask(groups.fill(queue.settings, made, items, 0, close=True))
    return [f"b-{n}-g1" for n in range(count)]


def claimed(queue: Queue, most: int = 2) -> list[Any]:
    """Claim some of them."""
    found: claim.Claim = queue._ask(claim.claim(queue.settings, "before", most))
    return list(found.jobs)


def _fill(count: int, **given: Any) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        made = definition(concurrency=2, **given)
        items = [f',"args":[{n}]' for n in range(count)]
        operation = groups.fill(queue.settings, made, items, 0, close=True)
        accepts = [f"b-{n}-g1" for n in range(count)] + ["b-then-g1"]
        return Staged(operation, accepts=accepts)

    return stage


def _add(queue: Queue, clock: Clock) -> Staged:
    """A second page, while children of the first one run."""
    made = definition(concurrency=2)
    queue._ask(groups.fill(queue.settings, made, [f',"args":[{n}]' for n in range(2)], 0))
    claimed(queue, 1)
    operation = groups.fill(queue.settings, made, [',"args":[2]', ',"args":[3]'], 2, close=True)
    there = ["b-0-g1", "b-1-g1"]
    return Staged(operation, there, accepts=["b-2-g1", "b-3-g1", "b-then-g1"])


def _settle(*moves: str, count: int = 4, **given: Any) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        ids = fill(queue, count, **{"concurrency": 2, **given})
        ends = [
            Settlement(move, job.id, job.claim_token, text='"x"', note="x" if move == "fail" else "")
            for move, job in zip(moves, claimed(queue, len(moves)), strict=True)
        ]
        has_call = "fail" not in moves or given.get("tolerate")
        return Staged(settle.settle(queue.settings, ends), [*ids, "b-then-g1"] if has_call else ids)

    return stage


def _chain(*moves: str) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        ids = fill(queue, 3, is_chained=True, head="", tail="")
        ends = [
            Settlement(move, job.id, job.claim_token, text='"x"')
            for move, job in zip(moves, claimed(queue), strict=True)
        ]
        return Staged(settle.settle(queue.settings, ends), [*ids, "b-then-g1"])

    return stage


def _advance(queue: Queue, clock: Clock) -> Staged:
    """A group that is marked, with a child that ended untold, one whose record is gone, and room for others."""
    ids = fill(queue, 5, concurrency=3, tolerate=2)
    for job in claimed(queue, 1):
        mark_job(queue, job.id, "group", "")
        queue.complete(job, 1)
        mark_job(queue, job.id, "group", "b 0 g1")
    queue._ask(Operation("delete", None, (), ("LREM", queue.settings.keys.pending, 0, ids[1]), int))
    queue._ask(Operation("delete", None, (), ("DEL", queue.settings.keys.job(ids[1])), int))
    queue._ask(Operation("mark", None, (), ("ZADD", queue.settings.keys.groups, 0, "b"), int))
    return Staged(groups.advance(queue.settings), [*ids[2:], "b-then-g1"], may_go=ids[:2])


def _advance_cancelled(queue: Queue, clock: Clock) -> Staged:
    ids = fill(queue, 5, concurrency=3)
    claimed(queue, 1)
    queue._ask(groups.cancel(queue.settings, "b"))
    return Staged(groups.advance(queue.settings), ids[:3])


def _advance_old(queue: Queue, clock: Clock) -> Staged:
    """A group whose time has come, and one that was never closed."""
    fill(queue, 0, kept_ms=1000)
    queue._ask(groups.fill(queue.settings, replace(definition(then=""), name="c"), [',"args":[1]'], 0))
    clock.pass_time(4000)
    return Staged(groups.advance(queue.settings), ["c-0-g1", "b-then-g1"])


def _retry(queue: Queue, clock: Clock) -> Staged:
    fill(queue, 3, options=("max_attempts", 1))
    for number, job in enumerate(claimed(queue, 3)):
        queue.complete(job, 1) if number else queue.fail(job, "no")
    sent = groups._RETRY(queue.settings, name="b", generation="g2", left=-1)
    return Staged(Operation("retry_group", *sent, list), ["b-0-g1"], accepts=["b-0-g2", "b-then-g2"])


def _call(act: Callable[[Queue, list[str]], Operation[Any]], **given: Any) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        ids = fill(queue, 3, concurrency=2, tolerate=2, **given)
        return Staged(act(queue, ids), () if given else ["b-then-g1"], may_go=ids)

    return stage


def _first(trips: Any) -> Operation[Any]:
    (operation,) = next(trips)
    return operation  # type: ignore[no-any-return] # as RoundTrips says


def _delete(queue: Queue, ids: list[str]) -> Operation[Any]:
    return bulk.delete(queue.settings, "request", ids[:1], "pending", 0)


def _purge(queue: Queue, ids: list[str]) -> Operation[Any]:
    return purge_page(queue.settings, queue.settings.keys.pending, "pending", "", 0)


def _reclaim(queue: Queue, clock: Clock) -> Staged:
    ids = fill(queue, 3, concurrency=2, tolerate=2, options=("max_attempts", 1))
    claimed(queue, 2)
    clock.pass_time(11)
    operation = _first(reclaim.sweep(queue.settings))
    return Staged(operation, [*ids, "b-then-g1"], goes_on=True)


def _requeue(queue: Queue, clock: Clock) -> Staged:
    ids = fill(queue, 3, concurrency=2, options=("max_attempts", 1))
    queue.fail(claimed(queue, 1)[0], "no")
    operation = _first(requeue.requeue(queue.settings, ids[0]))
    return Staged(operation, ids)


def _expire(queue: Queue, clock: Clock) -> Staged:
    ids = fill(queue, 3, concurrency=2, tolerate=3, options=("expires", "+1000"))
    clock.pass_time(2)
    return Staged(claim.claim(queue.settings, "request", 2), [*ids, "b-then-g1"])


def _waiting(queue: Queue) -> list[str]:
    """A suspended run, and the ids of the two jobs that it waits for."""
    job = claimed_job(queue)
    job.run = beginning(1, job.claimed_at_ms, None)
    ids = fill(queue, 2, wake=job.id, then="")
    wait = RunWait("map", "map", None, "", "b")
    queue._ask(settle.settle(queue.settings, [outcome.suspended(job, [wait])]))
    return [job.id, *ids]


def _wakes(queue: Queue, clock: Clock) -> Staged:
    ids = _waiting(queue)
    ends = [Settlement("complete", job.id, job.claim_token, text='"x"') for job in claimed(queue)]
    return Staged(settle.settle(queue.settings, ends), ids)


def _wakes_from_afar(queue: Queue, clock: Clock) -> Staged:
    job = claimed_job(queue)
    job.run = beginning(1, job.claimed_at_ms, None)
    standing = stand_ins.definition(queue.settings.of_queue("other"), "b", job.id, generation="00g1")
    queue._ask(groups.fill(queue.settings, standing, (), 0))
    wait = RunWait("map", "map", None, "", "b")
    queue._ask(settle.settle(queue.settings, [outcome.suspended(job, [wait])]))
    return Staged(groups.wake(queue.settings, ["b"]), [job.id])


def _wakes_by_deletion(queue: Queue, clock: Clock) -> Staged:
    ids = _waiting(queue)
    return Staged(next(groups.drop(queue.settings, "b"))[0], ids)


def _suspend(queue: Queue, clock: Clock) -> Staged:
    """The jobs that the run waits for have ended meanwhile."""
    job = claimed_job(queue)
    job.run = beginning(1, job.claimed_at_ms, None)
    ids = fill(queue, 2, wake=job.id, then="")
    for child in claimed(queue):
        queue.complete(child, 1)
    wait = RunWait("map", "map", None, "", "b")
    return Staged(settle.settle(queue.settings, [outcome.suspended(job, [wait])]), [job.id, *ids])


def _cancel_run(queue: Queue, clock: Clock) -> Staged:
    ids = _waiting(queue)
    return Staged(cancel.cancel(queue.settings, ids[0]), ids)


SCENES: Final = (
    Scene("settle, the last children wake a run", _wakes),
    Scene("settle, a run whose jobs have ended is suspended", _suspend),
    Scene("drop group, a run waits for it", _wakes_by_deletion),
    Scene("wake, a run whose jobs are in another queue", _wakes_from_afar),
    Scene("cancel, a run that waits for its jobs", _cancel_run),
    Scene("fill, new", _fill(3)),
    Scene("fill, empty", _fill(0)),
    Scene("fill, a page more", _add),
    Scene("settle, children", _settle("complete", "complete")),
    Scene("settle, a child that fails", _settle("complete", "fail", tolerate=1)),
    Scene("settle, the last children", _settle("complete", "complete", count=2)),
    Scene("settle, a link", _chain("complete")),
    Scene("advance, a mark", _advance),
    Scene("advance, called off", _advance_cancelled),
    Scene("advance, old", _advance_old),
    Scene("retry group", _retry),
    Scene("cancel group", _call(lambda queue, ids: groups.cancel(queue.settings, "b"), then="")),
    Scene("drop group", _call(lambda queue, ids: next(groups.drop(queue.settings, "b"))[0], then="")),
    Scene("cancel, a child", _call(lambda queue, ids: cancel.cancel(queue.settings, ids[0]))),
    Scene(
        "delete jobs, a child", _call(lambda queue, ids: bulk.delete(queue.settings, "request", ids[:1], "pending", 0))
    ),
    Scene(
        "purge, children",
        _call(lambda queue, ids: purge_page(queue.settings, queue.settings.keys.pending, "pending", "", 0)),
    ),
    Scene("reclaim, children", _reclaim),
    Scene("requeue, a child", _requeue),
    Scene("claim, children that expired", _expire),
)
