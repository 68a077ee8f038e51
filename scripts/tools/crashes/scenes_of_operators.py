"""Scenes of operators' requests, and of what workers and promoters report about themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from schedq import Queue
from schedq.inspect import bulk, samples, search, snapshot, stats, summary
from schedq.inspect.bulk import purge_page
from schedq.model.tasks import NO_OPTIONS, TaskOptions
from schedq.transitions import announce, cancel, count_tasks, heartbeat, pause, promote, requeue, reschedule
from scripts.tools.crashes.scene import Scene, Staged, claimed_job, command, failed_job, held_jobs
from tests.doors import Clock


def _cancel(place: str) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        if place == "processing":
            job_id = claimed_job(queue).id
        elif place == "held":
            job_id = held_jobs(queue)[1]
        else:
            job_id = queue.enqueue(1, delay=60 if place == "delayed" else None)
        reply = "asked" if place == "processing" else "cancelled"
        return Staged(cancel.cancel(queue.settings, job_id), [job_id], reply=reply)

    return stage


def _reschedule(mode: str, ms: int) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        first, second = queue.enqueue(1, delay=60), queue.enqueue(2, delay=90)
        return Staged(reschedule.reschedule(queue.settings, second, mode, ms), [first, second], reply=True)

    return stage


def _requeue(queue: Queue, clock: Clock) -> Staged:
    failed, other, cancelled = failed_job(queue), failed_job(queue), queue.enqueue(1)
    queue.cancel(cancelled)
    requests: Any = next(requeue.requeue_these(queue.settings, [failed, cancelled]))
    return Staged(requests[0], [failed, other, cancelled], reply=["yes", "yes"])


def _pause(queue: Queue, clock: Clock) -> Staged:
    return Staged(pause.pause(queue.settings), [queue.enqueue(1)])


def _resume(queue: Queue, clock: Clock) -> Staged:
    job_id = queue.enqueue(1)
    queue.pause()
    return Staged(pause.resume(queue.settings), [job_id])


def _pause_task(queue: Queue, clock: Clock) -> Staged:
    return Staged(pause.pause_task(queue.settings, "send"), [queue.enqueue({"task": "send"})])


def _resume_task(limit: int) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        ids = [*held_jobs(queue), queue.enqueue("other")]
        (operation,) = next(pause.resume_task(queue.settings, "send"))  # type: ignore[misc]
        args = (*operation.args[:-1], limit)
        return Staged(operation._replace(args=args), ids)

    return stage


def _purge(place: str, kind: str) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        ids = {
            "pending": lambda: queue.enqueue_many(range(3)),
            "delayed": lambda: queue.enqueue_many(range(3), delay=5),
            "processing": lambda: [claimed_job(queue).id for _ in range(3)],
            "failed": lambda: [failed_job(queue) for _ in range(3)],
            "held": lambda: held_jobs(queue),
        }[place]()
        clock.pass_time(1)
        later = queue.enqueue("later")
        key = getattr(queue.settings.keys, place)
        operation = purge_page(queue.settings, key, kind, "", 0)
        return Staged(operation, [later], may_go=[*ids, later] if place == "pending" else ids)

    return stage


def _delete_some(place: str) -> Callable[[Queue, Clock], Staged]:
    """Two of four jobs; their entries are searched near a position, or in the whole list."""

    def stage(queue: Queue, clock: Clock) -> Staged:
        ids = {
            "pending": lambda: queue.enqueue_many(range(4)),
            "delayed": lambda: queue.enqueue_many(range(4), delay=5),
            "failed": lambda: [failed_job(queue) for _ in range(4)],
            "held": lambda: held_jobs(queue, 4),
        }[place]()
        chosen, state = [ids[1], ids[2]], "pending" if place == "held" else place
        operation = bulk.delete(queue.settings, "request", chosen, state, None if place == "failed" else 0)
        return Staged(operation, [ids[0], ids[3]], may_go=chosen)

    return stage


def _find(queue: Queue, clock: Clock) -> Staged:
    ids = queue.enqueue_many(range(2))
    _, operation = next(search.find(queue.settings, "pending", search.Filter(text="1"), 10, None))  # type: ignore[misc]
    return Staged(operation, ids)


def _note(queue: Queue, clock: Clock) -> Staged:
    job_id = queue.enqueue(1)
    request = bulk.BulkRequest("delete", "in", 0, "ada@vm")
    return Staged(bulk.ActionOnIds(queue.settings, request, [job_id], None).note(), [job_id], reply=1)


def _wake(queue: Queue, clock: Clock) -> Staged:
    return Staged(promote.wake(queue.settings), [queue.enqueue(1)], reply=True)


def _beat(queue: Queue, clock: Clock) -> Staged:
    # Its reply about the previous heartbeat depends on how far this one got before it was interrupted.
    return Staged(heartbeat.beat(queue.settings, "w-1", {"pid": 7}), [queue.enqueue(1)], goes_on=True)


def _count_tasks(queue: Queue, clock: Clock) -> Staged:
    queue._ask(heartbeat.beat(queue.settings, "w-1", {"pid": 7}))
    counted = {"send": "1 0 0 0 5|5 0|5:1|0:1", "report": "0 1 2 0 90|70 3|9:3|4:3"}
    return Staged(count_tasks.count_tasks(queue.settings, "w-1", 1, counted), [queue.enqueue(1)])


def _sample(queue: Queue, clock: Clock) -> Staged:
    """The third sample of an unchanged period, and before it one that claims to come from the future."""
    job_id = queue.enqueue(1, delay=300)
    queue.complete(claimed_job(queue))
    for _ in range(3):
        command(queue, "SET", queue.settings.keys.promoter, "me", "PX", 600_000)
        queue._ask(samples.take(queue.settings, "me"))
        clock.pass_time(30)
    command(queue, "LPUSH", queue.settings.keys.samples, f'{{"at_ms":{clock.now_ms + 60_000},"enqueued_total":1}}')
    return Staged(samples.take(queue.settings, "me"), [job_id], goes_on=True)


def _skim(queue: Queue, clock: Clock) -> Staged:
    return Staged(summary.summaries(queue.settings, queue.settings.keys.failed, "newest"), [failed_job(queue)])


def _stop(queue: Queue, clock: Clock) -> Staged:
    queue._ask(heartbeat.beat(queue.settings, "w-1", {"pid": 7}))
    return Staged(heartbeat.stop(queue.settings, "w-1"), [queue.enqueue(1)], reply=True)


def _leave(queue: Queue, clock: Clock) -> Staged:
    queue._ask(heartbeat.beat(queue.settings, "w-1", {"pid": 7}))
    queue._ask(promote.promote(queue.settings, 10, "me"))
    return Staged(heartbeat.leave(queue.settings, "w-1", "me"), [queue.enqueue(1)], reply=True)


def _announce(queue: Queue, clock: Clock) -> Staged:
    tasks = {"charge": TaskOptions(max_attempts=1), "plain": NO_OPTIONS}
    return Staged(announce.announce(queue.settings, tasks), [queue.enqueue(1)], reply=True)


def _watch(queue: Queue, clock: Clock) -> Staged:
    job_id = queue.enqueue(1)
    return Staged(stats.watch(queue.settings, job_id), [job_id])


def _why(queue: Queue, clock: Clock) -> Staged:
    queue.complete(claimed_job(queue))
    job_id = queue.enqueue(1)
    return Staged(snapshot.see(queue.settings, job_id), [job_id])


def _stats(queue: Queue, clock: Clock) -> Staged:
    return Staged(stats.stats(queue.settings), [queue.enqueue(1)])


def _page(queue: Queue, clock: Clock) -> Staged:
    ids = queue.enqueue_many(range(2))
    return Staged(stats._part(queue.settings, "pending", 0, 10), ids)


SCENES: Final = (
    Scene("cancel, pending", _cancel("pending")),
    Scene("cancel, delayed", _cancel("delayed")),
    Scene("cancel, running", _cancel("processing")),
    Scene("cancel, held", _cancel("held")),
    Scene("reschedule, later", _reschedule("in", 120_000)),
    Scene("reschedule, sooner", _reschedule("in", 30_000)),
    Scene("run now", _reschedule("in", 0)),
    Scene("requeue", _requeue),
    Scene("pause", _pause),
    Scene("resume", _resume),
    Scene("pause task", _pause_task),
    Scene("resume task", _resume_task(1000)),
    Scene("resume task, some jobs", _resume_task(2)),
    Scene("purge, held", _purge("held", "zset")),
    Scene("purge, pending", _purge("pending", "list")),
    Scene("purge, delayed", _purge("delayed", "zset")),
    Scene("purge, processing", _purge("processing", "list")),
    Scene("purge, failed", _purge("failed", "list")),
    Scene("delete jobs, pending", _delete_some("pending")),
    Scene("delete jobs, delayed", _delete_some("delayed")),
    Scene("delete jobs, failed", _delete_some("failed")),
    Scene("delete jobs, held", _delete_some("held")),
    Scene("find", _find),
    Scene("note", _note),
    Scene("wake", _wake),
    Scene("beat", _beat),
    Scene("count tasks", _count_tasks),
    Scene("sample", _sample),
    Scene("look over", _skim),
    Scene("stop worker", _stop),
    Scene("leave", _leave),
    Scene("announce", _announce),
    Scene("watch", _watch),
    Scene("stats", _stats),
    Scene("why", _why),
    Scene("list", _page),
)
