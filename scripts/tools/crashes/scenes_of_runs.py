"""Scenes with runs of workflows: what is recorded of them, and how they are suspended and woken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from schedq import ClaimedJob, Discard, Queue
from schedq.model import outcome
from schedq.model.runs import RunWait, beginning, undo_name
from schedq.transitions import Operation, cancel, claim, reclaim, requeue, reschedule, run, send, settle
from scripts.tools.crashes.scene import Scene, Staged, claimed_job, command, mark_job
from tests.doors import Clock

_OK: Final = '["step","ok","done",1,2,1]'
_FAILED: Final = '["step","error","no",1,2,1]'
_LARGE: Final = f'["step","ok","{"x" * 2000}",1,2,1]'
_UNDO: Final = '[{"task":"refund"},null,null,null]'
_PAID: Final = RunWait("receive", "receive", None, "paid")


def _running(queue: Queue) -> ClaimedJob:
    """A run with a step, a failed try and lost leases, to which a message was sent."""
    job = claimed_job(queue)
    job.run = beginning(1, job.claimed_at_ms, 5_000_000)
    queue._ask(run.step(queue.settings, job, "charge", _OK))
    queue._ask(run.failed_try(queue.settings, job, "ship", 1, 1000, "no"))
    queue._ask(send.send(queue.settings, job.id, "paid", "first", "m1"))
    mark_job(queue, job.id, "crashes", 1)
    return job


def _request(make: Callable[[Queue, ClaimedJob], Operation[run.Answer]]) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        job = _running(queue)
        return Staged(make(queue, job), [job.id])

    return stage


def _race(queue: Queue, clock: Clock) -> Staged:
    job = _running(queue)
    queue._ask(run.receive(queue.settings, job, "1.a/receive", "paid", None))
    queue._ask(send.send(queue.settings, job.id, "paid", "second", "m2"))
    winner = '["first","ok","b",1,2,1]'
    return Staged(run.step(queue.settings, job, "first", winner, ["1.a/receive", "ship"]), [job.id])


def _suspend(topic: str) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        job = _running(queue)
        waits = [RunWait("receive", "receive", clock.now_ms + 5000, topic)]
        return Staged(settle.settle(queue.settings, [outcome.suspended(job, waits)]), [job.id])

    return stage


def _suspended(queue: Queue) -> str:
    job = claimed_job(queue)
    job.run = beginning(1, job.claimed_at_ms, 5_000_000)
    queue._ask(settle.settle(queue.settings, [outcome.suspended(job, [_PAID])]))
    return job.id


def _send(queue: Queue, clock: Clock) -> Staged:
    job_id = _suspended(queue)
    return Staged(send.send(queue.settings, job_id, "paid", "first", "m1"), [job_id], reply=True)


def _claim(queue: Queue, clock: Clock) -> Staged:
    job_id = _suspended(queue)
    queue.run_now(job_id)
    return Staged(claim.claim(queue.settings, "request", 1, "worker"), [job_id])


def _run_now(queue: Queue, clock: Clock) -> Staged:
    job_id = _suspended(queue)
    return Staged(reschedule.reschedule(queue.settings, job_id, "in", 0), [job_id], reply=True)


def _cancel(queue: Queue, clock: Clock) -> Staged:
    job_id = _suspended(queue)
    return Staged(cancel.cancel(queue.settings, job_id), [job_id], reply="cancelled")


def _complete(queue: Queue, clock: Clock) -> Staged:
    job = _running(queue)
    queue._ask(run.step(queue.settings, job, "large", _LARGE))
    ended = outcome.succeeded(job, "done", outcome.Policy.of(queue.settings, job))
    return Staged(settle.settle(queue.settings, [ended]), [job.id])


def _requeue(queue: Queue, clock: Clock) -> Staged:
    job = _running(queue)
    queue._ask(run.step(queue.settings, job, "pay", _FAILED))
    queue.fail(job, Discard())
    (operation,) = next(requeue.requeue(queue.settings, job.id))  # type: ignore[misc] # it waits for nothing
    return Staged(operation, [job.id], reply=["yes"])


def _with_undo(queue: Queue) -> ClaimedJob:
    """A run with a step that can be undone."""
    job = _running(queue)
    job.run = queue._ask(run.add_undo(queue.settings, job, "pay", _UNDO)).rest[0]
    queue._ask(run.step(queue.settings, job, "pay", _OK))
    return job


def _begin_to_undo(queue: Queue, clock: Clock) -> Staged:
    job = _with_undo(queue)
    ended = outcome.failed(job, Discard("no"), outcome.Policy.of(queue.settings, job))
    return Staged(settle.settle(queue.settings, [ended]), [job.id])


def _undo_a_step(queue: Queue, clock: Clock) -> Staged:
    job = _with_undo(queue)
    return Staged(run.step(queue.settings, job, undo_name("pay"), _OK.replace("step", "undo")), [job.id])


def _cancel_with_undo(queue: Queue, clock: Clock) -> Staged:
    job = _with_undo(queue)
    queue._ask(settle.settle(queue.settings, [outcome.suspended(job, [_PAID])]))
    return Staged(cancel.cancel(queue.settings, job.id), [job.id], reply="asked")


def _lose_with_undo(queue: Queue, clock: Clock) -> Staged:
    job = _with_undo(queue)
    mark_job(queue, job.id, "crashes", 9)
    clock.pass_time(1000)
    (operation,) = next(reclaim.sweep(queue.settings))  # type: ignore[misc] # it waits for nothing
    return Staged(operation, [job.id])


def _left_with_undo(queue: Queue) -> ClaimedJob:
    job = _with_undo(queue)
    job.run = ""
    queue.fail(job, Discard("StepFailed: step pay: no"))
    return job


def _undo_by_hand(queue: Queue, clock: Clock) -> Staged:
    job = _left_with_undo(queue)
    (operation,) = next(requeue.undo(queue.settings, job.id))  # type: ignore[misc] # it waits for nothing
    return Staged(operation, [job.id], reply=["yes"])


def _requeue_undone(queue: Queue, clock: Clock) -> Staged:
    job = _with_undo(queue)
    ended = outcome.failed(job, Discard("no"), outcome.Policy.of(queue.settings, job))
    queue._ask(settle.settle(queue.settings, [ended]))
    again = claimed_job(queue)
    queue._ask(run.step(queue.settings, again, undo_name("pay"), _OK.replace("step", "undo")))
    queue.fail(again, Discard("no"))
    (operation,) = next(requeue.requeue(queue.settings, job.id))  # type: ignore[misc] # it waits for nothing
    return Staged(operation, [job.id], reply=["yes"])


def _start_over_cut_short(queue: Queue, clock: Clock) -> Staged:
    """The next attempt finishes it."""
    job = _running(queue)
    stored = command(queue, "HGET", queue.settings.keys.job(job.id), "run")
    mark_job(queue, job.id, "run", f"{stored.replace('steps=1', 'steps=0')} life=1 void=1", "args", "[[2],{}]")
    return Staged(run.start_over(queue.settings, job, 1, ""), [job.id])


SCENES: Final = (
    Scene("record a step", _request(lambda queue, job: run.step(queue.settings, job, "ship", _OK))),
    Scene(
        "record a failed try", _request(lambda queue, job: run.failed_try(queue.settings, job, "ship", 2, 9000, "no"))
    ),
    Scene("fix an instant", _request(lambda queue, job: run.until(queue.settings, job, "sleep", "in", 9000))),
    Scene("receive", _request(lambda queue, job: run.receive(queue.settings, job, "receive", "paid", 9000))),
    Scene("receive, too late", _request(lambda queue, job: run.receive(queue.settings, job, "other", "other", 0))),
    Scene("receive, wait", _request(lambda queue, job: run.receive(queue.settings, job, "other", "other", 9000))),
    Scene("start over", _request(lambda queue, job: run.start_over(queue.settings, job, 1, "[[2],{}]"))),
    Scene("start over, cut short before", _start_over_cut_short),
    Scene("decide a race", _race),
    Scene("suspend", _suspend("other")),
    Scene("suspend, a message is there", _suspend("paid")),
    Scene("send, to a suspended run", _send),
    Scene("claim, a suspended run", _claim),
    Scene("run now, a suspended run", _run_now),
    Scene("cancel, a suspended run", _cancel),
    Scene("complete, a run", _complete),
    Scene("requeue, a run", _requeue),
    Scene("add an undo", _request(lambda queue, job: run.add_undo(queue.settings, job, "ship", _UNDO))),
    Scene("begin to undo", _begin_to_undo),
    Scene("undo a step", _undo_a_step),
    Scene("cancel, a run with an undo", _cancel_with_undo),
    Scene("reclaim, a run with an undo", _lose_with_undo),
    Scene("undo by hand", _undo_by_hand),
    Scene("requeue, a run that was undone", _requeue_undone),
)
