"""One or more requests of every kind, made as the doors and roles make them."""

from __future__ import annotations

from typing import Any, Final

from schedq.job import Options, Settlement
from schedq.operations import (
    Block,
    Operation,
    acting,
    attempts,
    audit,
    control,
    directory,
    enqueue,
    filters,
    finding,
    firing,
    preparing,
    samples,
    schedules,
    skimming,
    steering,
    timetable,
    upkeep,
    views,
    why,
)
from schedq.operations.purging import Purge
from schedq.schedule import Definition
from schedq.settings import Settings
from schedq.slots import plan
from schedq.task import TaskOptions

QUEUE: Final = Settings("mail")
NIGHTLY: Final = Definition("nightly", "1", cron="0 3 * * *")
SEEN: Final = firing.Glance("nightly", "86400000", "d", "t", "0", "", is_paused=False, error="")


def _first(flow: Any) -> list[Operation[Any]]:
    step = next(flow)
    assert not isinstance(step, Block)
    return list(step)


def _some(count: int, **options: Any) -> list[preparing.Prepared]:
    return [preparing.prepare(QUEUE, n, Options(**options)) for n in range(count)]


OPERATIONS: Final[list[Operation[Any]]] = [
    enqueue.enqueue(QUEUE, _some(1)[0]),
    enqueue.enqueue(QUEUE, _some(1, delay=5, job_id="a", max_attempts=1, timeout=1)[0]),
    *_first(enqueue.enqueue_many(QUEUE, _some(3))),
    attempts.claim(QUEUE, "request"),
    attempts.claim(QUEUE, "request", 10, "worker", suspects=False),
    attempts.claim(QUEUE, "request", 10, "worker", share=(2, 3, 1)),
    attempts.renew(QUEUE, [("a", "token"), ("b", "token")]),
    attempts.settle(QUEUE, [Settlement("complete", "a", "token"), Settlement("retry", "b", "token", 5)]),
    *_first(attempts.recover(QUEUE, "request")),
    *_first(upkeep.sweep(QUEUE)),
    upkeep.promote(QUEUE, 10),
    upkeep.promote(QUEUE, 10, "me"),
    samples.take(QUEUE, "me"),
    samples.newest(QUEUE),
    skimming.skim(QUEUE, QUEUE.keys.failed, "newest"),
    audit.log(QUEUE, None, 10),
    directory.stop(QUEUE, "worker"),
    upkeep.wake(QUEUE),
    upkeep.beat(QUEUE, "worker", {"pid": 1}),
    upkeep.leave(QUEUE, "worker", "me"),
    upkeep.announce(QUEUE, {"mail": TaskOptions(max_attempts=1), "ok": TaskOptions()}),
    upkeep.read_task_options(QUEUE, ["mail"]),
    upkeep.read_settings(QUEUE),
    control.cancel(QUEUE, "a"),
    control.reschedule(QUEUE, "a", "in", 5),
    *_first(control.requeue(QUEUE, "a")),
    *_first(control.requeue_failed(QUEUE, 5)),
    control.pause(QUEUE),
    control.resume(QUEUE),
    *_first(Purge(QUEUE).steps()),
    acting.delete(QUEUE, "request", ["a", "b"]),
    acting.ActOnThese(QUEUE, acting.Wish("delete", "in", 0, "ada@vm"), ["a"], None).note(),
    *_first(finding.find(QUEUE, "failed", filters.Filter(), 10, None)),
    *_first(finding.find(QUEUE, "delayed", filters.Filter("send", 1, 2, "x", "y"), 10, None)),
    views.stats(QUEUE),
    *_first(views.page(QUEUE, QUEUE.keys.pending, "oldest", 0, 10)),
    views.get_job(QUEUE, "a"),
    views.watch(QUEUE, "a"),
    why.see(QUEUE, "a"),
    firing.peek(QUEUE, "due", 0, 10),
    firing.peek(QUEUE, "these", 0, 0, ["nightly"]),
    firing.fire(QUEUE, [(SEEN, plan(NIGHTLY, 86_400_000, 86_400_001)), (SEEN, plan(NIGHTLY, 86_400_000, 10**9))]),
    schedules._written(QUEUE, NIGHTLY, SEEN, 0, "request"),  # type: ignore[list-item]
    steering.pause(QUEUE, "nightly"),
    steering._steer(QUEUE, "resume", SEEN, 1, "request", passed=(1, 2, 3)),
    steering.trigger(QUEUE, "nightly"),
    steering.delete(QUEUE, "nightly"),
    *_first(timetable.page(QUEUE, 0, 10)),
    *_first(timetable.get(QUEUE, "nightly")),
]
