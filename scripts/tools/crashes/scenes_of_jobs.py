"""Scenes of the life of a job: it is stored, claimed, settled, promoted or reclaimed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from schedq import Debounce, Discard, Queue
from schedq.inspect import stats
from schedq.model.progress import ProgressReport
from schedq.model.records import Options, Settlement
from schedq.transitions import claim, enqueue, pause, promote, reclaim, renew, settle
from schedq.transitions.scripts import header
from scripts.tools.crashes.scene import Scene, Staged, claimed_job, command, failed_job, held_jobs, mark_job, wipe_job
from tests.doors import Clock

_FORGETFUL: Final = {"completed_history": 0, "failed_history": 0, "min_keep": 0}


def _enqueue(*options: Options) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        old = queue.enqueue("old")
        new = [enqueue.prepare(queue.settings, n, given) for n, given in enumerate(options)]
        operation: Any = enqueue._store_some(queue.settings, new, ())
        operation = operation._replace(read=lambda reply: len(reply) == len(new))
        return Staged(operation, [old], [job.job_id for job in new], reply=True)

    return stage


def _enqueue_once_more(queue: Queue, clock: Clock) -> Staged:
    """The id of a completed job whose record has expired."""
    queue.complete(claimed_job(queue, job_id="mine"))
    wipe_job(queue, "mine")
    new = enqueue.prepare(queue.settings, "again", Options(job_id="mine"))
    return Staged(enqueue.enqueue(queue.settings, new), accepts=["mine"], reply="mine")


def _enqueue_what_is_there(queue: Queue, clock: Clock) -> Staged:
    """A job that is sent again: it is rewritten for callers that wait for replicas or the disk."""
    there = queue.enqueue("same", job_id="mine")
    new = enqueue.prepare(queue.settings, "same", Options(job_id="mine"))
    return Staged(enqueue.enqueue(queue.settings, new), accepted=[there], reply="mine")


def _enqueue_unique_and_there(queue: Queue, clock: Clock) -> Staged:
    """Another job holds the unique key, and is debounced."""
    rule = Debounce(key="mine", wait=5)
    there = queue.enqueue("old", unique=rule, headers={"user": "ada"})
    new = enqueue.prepare(queue.settings, "new", Options(unique=rule, timeout=5))
    return Staged(enqueue.enqueue(queue.settings, new), accepted=[there], reply=there)


def _claim(*, suspects: bool = True, **changes: Any) -> Callable[[Queue, Clock], Staged]:
    """Jobs that can be run, and every kind of entry that can't."""

    def stage(queue: Queue, clock: Clock) -> Staged:
        due, gone_due = queue.enqueue_many(["due", "due and gone"], delay=1)
        first, suspect, gone, unreadable, runs, twice, other, last = (queue.enqueue(n) for n in range(8))
        mark_job(queue, suspect, "crashes", 2)
        mark_job(queue, other, "crashes", 3)
        wipe_job(queue, gone)
        wipe_job(queue, gone_due)
        expired = queue.enqueue("expired", expires=1)
        command(queue, "HDEL", queue.settings.keys.job(unreadable), "payload")
        command(queue, "LPUSH", queue.settings.keys.pending, twice)
        # A running job with a second entry in `pending`.
        mark_job(
            queue, runs, "status", "processing", "attempts", 1, "claim_token", "theirs", "started_at_ms", clock.now_ms
        )
        command(queue, "LPUSH", queue.settings.keys.processing, runs)
        command(queue, "ZADD", queue.settings.keys.leases, clock.now_ms + 10_000, runs)
        clock.pass_time(2)
        operation = claim.claim(queue.settings, "request", 20, "worker", suspects=suspects)
        accepted = [due, first, suspect, unreadable, runs, twice, other, last, expired]
        return Staged(operation, accepted, may_go=[gone, gone_due])

    return stage


def _claim_large(queue: Queue, clock: Clock) -> Staged:
    """The second job does not fit into one reply."""
    ids = queue.enqueue_many(["x" * 100, "y" * 100])
    operation = claim.claim(queue.settings, "request", 20)
    at = [each.name for each in header("claim").args].index("bytes")
    args = (*operation.args[:at], 150, *operation.args[at + 1 :])
    return Staged(operation._replace(args=args), ids)


def _claim_paused(queue: Queue, clock: Clock) -> Staged:
    job_id = queue.enqueue(1)
    queue.pause()
    return Staged(claim.claim(queue.settings, "request"), [job_id])


def _claim_and_hold(queue: Queue, clock: Clock) -> Staged:
    """Jobs of a paused task: some are held already, and one was released, so that it is the next of them."""
    returned, *others = (queue.enqueue({"task": "send"}) for _ in range(3))
    job = queue.claim(0)
    assert job is not None
    queue.pause(task="send")
    assert queue.claim(0) is None
    queue.release(job)
    later, other = queue.enqueue({"task": "send"}), queue.enqueue({"task": "report"})
    operation = claim.claim(queue.settings, "request", 20, "worker")
    return Staged(operation, [returned, *others, later, other])


def _claim_held(queue: Queue, clock: Clock) -> Staged:
    """A resume was interrupted, so that jobs that are not paused are held; one of them has no data any more."""
    first, gone, *others = held_jobs(queue, 5)
    (operation,) = next(pause.resume_task(queue.settings, "send"))  # type: ignore[misc]
    queue._ask(operation._replace(args=(*operation.args[:-1], 1)))
    wipe_job(queue, gone)
    operation = claim.claim(queue.settings, "request", 20, "worker")
    return Staged(operation, [first, *others], may_go=[gone])


def _settle(*moves: str, asked: bool = False, **options: Any) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        held = [claimed_job(queue) for _ in moves]
        ends = [
            Settlement(move, job.id, job.claim_token, 5000, text='"done"', note="no use", traceback="line 1")
            for move, job in zip(moves, held, strict=True)
        ]
        if asked:
            for job in held:
                queue.cancel(job.id)
        for job in held:
            views_of = stats.watch(queue.settings, job.id)
            queue._ask(views_of)
        return Staged(settle.settle(queue.settings, ends), [job.id for job in held])

    return stage


def _settle_with_ttls(queue: Queue, clock: Clock) -> Staged:
    """Jobs with ttls of their own, one of which leaves nothing behind."""
    gone, failed = claimed_job(queue, completed_ttl=0), claimed_job(queue, failed_ttl=60)
    ends = [
        Settlement("complete", gone.id, gone.claim_token, text='"done"'),
        Settlement("fail", failed.id, failed.claim_token, text="no use", note="no use"),
    ]
    return Staged(settle.settle(queue.settings, ends), [failed.id], may_go=[gone.id])


def _settle_with_trim(queue: Queue, clock: Clock) -> Staged:
    old = claimed_job(queue)
    queue.complete(old)
    clock.pass_time(100)
    job = claimed_job(queue)
    end = Settlement("complete", job.id, job.claim_token, text='"done"')
    return Staged(settle.settle(queue.settings, [end]), [job.id], may_go=[old.id, job.id])


def _renew(queue: Queue, clock: Clock) -> Staged:
    held = [claimed_job(queue) for _ in range(3)]
    queue.cancel(held[1].id)
    reports = [
        ProgressReport.of(job.id, job.claim_token, (n, 10, ""), '{"page":1}', number=1)
        for n, job in enumerate(held[:2])
    ]
    clock.pass_time(1)
    operation = renew.renew(queue.settings, [(held[2].id, held[2].claim_token)], reports)
    return Staged(operation, [job.id for job in held], reply=["OK", "STOP", "OK"])


def _recover(queue: Queue, clock: Clock) -> Staged:
    ids = queue.enqueue_many(range(3))
    queue._ask(claim.claim(queue.settings, "request", 2))
    (operation,) = next(claim.recover(queue.settings, "request"))  # type: ignore[misc]
    return Staged(operation, ids)


def _promote(holder: str) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        done = claimed_job(queue)
        queue.complete(done)
        first, gone, second, third = queue.enqueue_many(range(4), delay=1)
        wipe_job(queue, gone)
        command(queue, "ZADD", queue.settings.keys.delayed, clock.now_ms + 1000, done.id)
        clock.pass_time(2)
        return Staged(promote.promote(queue.settings, 100, holder), [first, second, third, done.id], may_go=[gone])

    return stage


def _reclaim(queue: Queue, clock: Clock) -> Staged:
    """Expired leases, with every inconsistency that they may have."""
    held = [claimed_job(queue) for _ in range(9)]
    lost_once, stopped, last, undecided, gone, done, anew, entry_gone, put_off = held
    queue.cancel(stopped.id)
    mark_job(queue, last.id, "attempts", 3, "crashes", 1)
    mark_job(queue, undecided.id, "attempts", 2, "crashes", 1, "max_attempts", 9)
    wipe_job(queue, gone.id)
    mark_job(queue, anew.id, "adopted_token", "another")
    command(queue, "LREM", queue.settings.keys.processing, 0, entry_gone.id)
    # Another program that settles a job leaves its lease behind.
    for job, place in ((done, queue.settings.keys.completed),):
        command(queue, "LREM", queue.settings.keys.processing, 0, job.id)
        command(queue, "LPUSH", place, job.id)
        mark_job(queue, job.id, "status", "completed", "completed_at_ms", clock.now_ms)
        command(queue, "HDEL", queue.settings.keys.job(job.id), "claim_token")
        command(queue, "EXPIRE", queue.settings.keys.job(job.id), 3600)
    command(queue, "LREM", queue.settings.keys.processing, 0, put_off.id)
    command(queue, "HDEL", queue.settings.keys.job(put_off.id), "claim_token")
    mark_job(queue, put_off.id, "status", "delayed")
    command(queue, "ZADD", queue.settings.keys.delayed, clock.now_ms + 20_000, put_off.id)
    clock.pass_time(11)
    (operation,) = next(reclaim.sweep(queue.settings, 0))  # type: ignore[misc]
    return Staged(operation, [job.id for job in held if job is not gone], may_go=[gone.id])


def _reclaim_with_waits(queue: Queue, clock: Clock) -> Staged:
    held = [claimed_job(queue) for _ in range(2)]
    waits: list[str | int] = []
    for job in held:
        mark_job(queue, job.id, "attempts", 2, "crashes", 1, "max_attempts", 9)
        waits += [job.id, 2, 9, 4000, ""]
    clock.pass_time(11)
    return Staged(
        reclaim._reclaim(queue.settings, offset=-1, shorten=0, decided=waits, looked_at="", knows_tasks=0),
        [job.id for job in held],
    )


def _adopt(queue: Queue, clock: Clock) -> Staged:
    """Claims without a lease: a running one, a duplicate, one of a deleted job, and leftovers."""
    held = [claimed_job(queue) for _ in range(4)]
    runs, twice, gone, done = held
    for job in held:
        command(queue, "ZREM", queue.settings.keys.leases, job.id)
    command(queue, "LPUSH", queue.settings.keys.processing, twice.id)
    wipe_job(queue, gone.id)
    queue.complete(done)
    command(queue, "LPUSH", queue.settings.keys.processing, done.id)
    (operation,) = next(reclaim.sweep(queue.settings, 0))  # type: ignore[misc]
    return Staged(operation, [runs.id, twice.id, done.id], may_go=[gone.id])


def _reclaim_trims(queue: Queue, clock: Clock) -> Staged:
    """Histories that are too long, records that have expired, and a lease that ends too late."""
    ended = [claimed_job(queue) for _ in range(4)]
    for job in ended[:3]:
        queue.complete(job)
    queue.fail(ended[3], Discard())
    failed_job(queue)
    wipe_job(queue, ended[0].id)
    clock.pass_time(100)
    held = claimed_job(queue)
    clock.pass_time(-50)
    operation = reclaim._reclaim(queue.settings, offset=-1, shorten=1, decided=(), looked_at="", knows_tasks=0)
    return Staged(operation, [held.id], may_go=[job.id for job in ended] + [held.id] + _failed_ids(queue))


def _reclaim_expired(queue: Queue, clock: Clock) -> Staged:
    """Records that have expired between others, and a job with a ttl of its own that loses its last lease."""
    ended = [claimed_job(queue, completed_ttl=60) for _ in range(4)]
    for job in ended:
        queue.complete(job)
    wipe_job(queue, ended[1].id)
    wipe_job(queue, ended[2].id)
    held = claimed_job(queue, failed_ttl=60, max_attempts=1)
    clock.pass_time(11)
    (operation,) = next(reclaim.sweep(queue.settings))  # type: ignore[misc]
    return Staged(operation, [held.id, ended[0].id, ended[3].id], may_go=[ended[1].id, ended[2].id])


def _failed_ids(queue: Queue) -> list[str]:
    """The ids of the failed jobs."""
    return [job.id for job in queue.list_failed()]


SCENES: Final = (
    Scene("enqueue, now", _enqueue(Options())),
    Scene("enqueue, later", _enqueue(Options(delay=5, max_attempts=2))),
    Scene("enqueue, unique", _enqueue(Options(unique="a"), Options(unique="b", delay=5), Options(unique="c"))),
    Scene("enqueue, unique and there", _enqueue_unique_and_there),
    Scene("enqueue, many", _enqueue(Options(), Options(delay=5), Options(job_id="mine"), Options(delay=3))),
    Scene("enqueue, an id again", _enqueue_once_more),
    Scene("enqueue, what is there", _enqueue_what_is_there),
    Scene("claim, all kinds of entries", _claim()),
    Scene("claim, no suspects", _claim(suspects=False)),
    Scene("claim, too large", _claim_large),
    Scene("claim, paused", _claim_paused),
    Scene("claim, a paused task", _claim_and_hold),
    Scene("claim, held jobs", _claim_held),
    Scene("recover", _recover),
    Scene("renew", _renew),
    Scene("complete", _settle("complete")),
    Scene("fail, attempts left", _settle("retry")),
    Scene("fail, none left", _settle("fail")),
    Scene("snooze", _settle("snooze")),
    Scene("release", _settle("release")),
    Scene("stop", _settle("retry", "release", asked=True)),
    Scene("settle, all kinds", _settle("complete", "retry", "fail", "snooze", "release", "complete")),
    Scene("complete, with ttls", _settle_with_ttls, {"min_keep": 0}),
    Scene("complete, with trim", _settle_with_trim, _FORGETFUL),
    Scene("promote, by hand", _promote("")),
    Scene("promote, by a promoter", _promote("me")),
    Scene("reclaim, ended leases", _reclaim),
    Scene("reclaim, with waits", _reclaim_with_waits),
    Scene("reclaim, adopt", _adopt),
    Scene("reclaim, expired records", _reclaim_expired),
    Scene("reclaim, trim", _reclaim_trims, _FORGETFUL),
)
