"""One or more requests of every kind, created as clients and background roles create them."""

from __future__ import annotations

from typing import Any, Final

from schedq.inspect import audit, bulk, samples, search, snapshot, stats, summary, task_stats
from schedq.inspect.batches import open_batches
from schedq.inspect.bulk import Purge
from schedq.inspect.gates import gate_page, see_gate
from schedq.model.groups import GroupDefinition
from schedq.model.records import ClaimedJob, Options, Settlement
from schedq.model.settings import Settings
from schedq.model.tasks import TaskOptions
from schedq.schedules import control, fire, records, register
from schedq.schedules import records as records_module
from schedq.schedules.definition import Definition
from schedq.schedules.fire import plan
from schedq.transitions import (
    MarkerWait,
    Operation,
    announce,
    cancel,
    claim,
    count_tasks,
    enqueue,
    gates,
    groups,
    heartbeat,
    pause,
    promote,
    reclaim,
    renew,
    requeue,
    reschedule,
    run,
    send,
    settle,
)

QUEUE: Final = Settings("mail")
LIMITED: Final = Settings("mail", gates={"api": '{"concurrency":2}'})
NIGHTLY: Final = Definition("nightly", "1", cron="0 3 * * *")
PRINTS: Final = GroupDefinition("prints", "g1", head='{"task":"print"', tail="}")
SEEN: Final = records_module.ScheduleStatus("nightly", "86400000", "d", "t", "0", "", is_paused=False, error="")
RUN: Final = ClaimedJob("a", None, 1, "token", run="v=1 began=1")


def _first(trips: Any) -> list[Operation[Any]]:
    step = next(trips)
    assert not isinstance(step, MarkerWait)
    return list(step)


def _some(count: int, **options: Any) -> list[enqueue.EncodedJob]:
    return [enqueue.prepare(QUEUE, n, Options(**options)) for n in range(count)]


OPERATIONS: Final[list[Operation[Any]]] = [
    enqueue.enqueue(QUEUE, _some(1)[0]),
    enqueue.enqueue(QUEUE, _some(1, delay=5, job_id="a", max_attempts=1, timeout=1)[0]),
    *_first(enqueue.enqueue_many(QUEUE, _some(3))),
    enqueue.enqueue(QUEUE, _some(1, unique="mine")[0]),
    enqueue.enqueue(LIMITED, _some(1, gate="api", key="42")[0]),
    *gates.define(LIMITED),
    gates.hold(QUEUE, "api", "42", "hold", 1000),
    groups.fill(QUEUE, PRINTS, [',"args":[1]'], 0, close=True),
    groups.cancel(QUEUE, "prints"),
    *_first(groups.retry(QUEUE, "prints")),
    *_first(groups.drop(QUEUE, "prints")),
    groups.wake(QUEUE, ["prints"]),
    *_first(groups.read(QUEUE, "prints")),
    *_first(groups.results(QUEUE, "prints", 0)),
    groups.advance(QUEUE),
    claim.claim(QUEUE, "request"),
    claim.claim(QUEUE, "request", 10, "worker", suspects=False),
    claim.claim(QUEUE, "request", 10, "worker", share=(2, 3, 1)),
    renew.renew(QUEUE, [("a", "token"), ("b", "token")]),
    settle.settle(QUEUE, [Settlement("complete", "a", "token"), Settlement("retry", "b", "token", 5)]),
    run.recall(QUEUE, RUN),
    run.step(QUEUE, RUN, "charge", '["step","ok",1,1,2,1]', ["1.late/sleep"]),
    run.failed_try(QUEUE, RUN, "charge", 1, 500, "no"),
    run.add_undo(QUEUE, RUN, "charge", '[{"task":"refund"},null,null,null]'),
    run.until(QUEUE, RUN, "sleep", "in", 500),
    run.receive(QUEUE, RUN, "receive", "paid", None),
    run.start_over(QUEUE, RUN, 1, "[[],{}]"),
    send.send(QUEUE, "a", "paid", 1),
    *_first(claim.recover(QUEUE, "request")),
    *_first(reclaim.sweep(QUEUE)),
    promote.promote(QUEUE, 10),
    promote.promote(QUEUE, 10, "me"),
    samples.take(QUEUE, "me"),
    samples.newest(QUEUE),
    task_stats.counted(QUEUE),
    summary.summaries(QUEUE, QUEUE.keys.failed, "newest"),
    audit.log(QUEUE, None, 10),
    heartbeat.stop(QUEUE, "worker"),
    promote.wake(QUEUE),
    heartbeat.beat(QUEUE, "worker", {"pid": 1}),
    count_tasks.count_tasks(QUEUE, "worker", 1, {"send": "1 0 0 0 5|5 0|5:1|0:1"}),
    heartbeat.leave(QUEUE, "worker", "me"),
    announce.announce(QUEUE, {"mail": TaskOptions(max_attempts=1), "ok": TaskOptions()}),
    announce.read_task_options(QUEUE, ["mail"]),
    announce.read_settings(QUEUE),
    cancel.cancel(QUEUE, "a"),
    reschedule.reschedule(QUEUE, "a", "in", 5),
    *_first(requeue.requeue(QUEUE, "a")),
    *_first(requeue.requeue_failed(QUEUE, 5)),
    *_first(requeue.undo_these(QUEUE, ["a"])),
    pause.pause(QUEUE),
    pause.resume(QUEUE),
    pause.pause_task(QUEUE, "mail"),
    *_first(pause.resume_task(QUEUE, "mail")),
    pause.paused_tasks(QUEUE),
    *_first(Purge(QUEUE).steps()),
    bulk.delete(QUEUE, "request", ["a", "b"]),
    bulk.ActionOnIds(QUEUE, bulk.BulkRequest("delete", "in", 0, "ada@vm"), ["a"], None).note(),
    *_first(search.find(QUEUE, "failed", search.Filter(), 10, None)),
    *_first(search.find(QUEUE, "delayed", search.Filter("send", 1, 2, "x", "y"), 10, None)),
    gate_page(QUEUE),
    open_batches(QUEUE),
    see_gate(QUEUE, "api", "42"),
    stats.stats(QUEUE),
    *_first(stats.page(QUEUE, "pending", 0, 10)),
    stats.get_job(QUEUE, "a"),
    stats.watch(QUEUE, "a"),
    snapshot.see(QUEUE, "a"),
    records_module.scan_schedules(QUEUE, "due", 0, 10),
    records_module.scan_schedules(QUEUE, "these", 0, 0, ["nightly"]),
    fire.fire(QUEUE, [(SEEN, plan(NIGHTLY, 86_400_000, 86_400_001)), (SEEN, plan(NIGHTLY, 86_400_000, 10**9))]),
    register._written(QUEUE, NIGHTLY, SEEN, 0, "request"),  # type: ignore[list-item]
    control.pause(QUEUE, "nightly"),
    control._control(QUEUE, "resume", "nightly", "request", seen="d", slot=1, passed=(1, 2, 3)),
    control.trigger(QUEUE, "nightly"),
    control.delete(QUEUE, "nightly"),
    *_first(records.page(QUEUE, 0, 10)),
    *_first(records.get(QUEUE, "nightly")),
]
