"""A scene for each way that each script can take: what is in Redis, and the request that is then cut short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schedq import ClaimedJob, Discard, Fixed, Queue
from schedq.job import Options, Settlement
from schedq.operations import (
    Operation,
    acting,
    attempts,
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
    upkeep,
    views,
    why,
)
from schedq.operations.purging import purge_page
from schedq.schedule import Definition
from schedq.slots import plan
from schedq.task import NO_OPTIONS, TaskOptions
from tests.doors import Clock


@dataclass(frozen=True)
class Staged:
    """A scene that has been set.

    Attributes:
        operation: what is to be cut.
        accepted: ids of jobs that were accepted before; each must end.
        accepts: ids that the operation adds to them once it is answered.
        may_go: ids that it may delete, or, new ones, leave a note of in `broken`.
        answer: what it answers when it is sent again; None for anything.
        goes_on: whoever sends it sends the like of it all the time, so it is never the last one.
    """

    operation: Operation[Any]
    accepted: Sequence[str] = ()
    accepts: Sequence[str] = ()
    may_go: Sequence[str] = ()
    answer: Any = None
    goes_on: bool = False


@dataclass(frozen=True)
class Scene:
    """How a move finds things.

    Attributes:
        name: the move, and after a comma how it stood.
        stage: sets it, in an empty queue.
        settings: of the queue.
    """

    name: str
    stage: Callable[[Queue, Clock], Staged]
    settings: dict[str, Any] = field(default_factory=dict)


def _command(queue: Queue, *words: str | int) -> Any:
    return queue._ask(Operation("a test's own", None, (), words, lambda reply: reply))


def _held(queue: Queue, **options: Any) -> ClaimedJob:
    queue.enqueue("work", **options)
    job = queue.claim(0)
    assert job is not None
    return job


def _failed(queue: Queue) -> str:
    job = _held(queue)
    queue.fail(job, Discard())
    return job.id


def _mark(queue: Queue, job_id: str, *pairs: str | int) -> None:
    _command(queue, "HSET", queue.settings.keys.job(job_id), *pairs)


def _wipe(queue: Queue, job_id: str) -> None:
    _command(queue, "DEL", queue.settings.keys.job(job_id))


# -- new jobs


def _enqueue(*options: Options) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        old = queue.enqueue("old")
        new = [preparing.prepare(queue.settings, n, given) for n, given in enumerate(options)]
        stored = tuple("STORED" for _ in new)
        operation = enqueue._store(queue.settings, new, tuple)
        operation = operation._replace(read=lambda reply: len(reply) == len(stored))
        return Staged(operation, [old], [job.job_id for job in new], answer=True)

    return stage


def _enqueue_once_more(queue: Queue, clock: Clock) -> Staged:
    """The id of a job that was completed, whose record has expired."""
    queue.complete(_held(queue, job_id="mine"))
    _wipe(queue, "mine")
    new = preparing.prepare(queue.settings, "again", Options(job_id="mine"))
    return Staged(enqueue.enqueue(queue.settings, new), accepts=["mine"], answer="mine")


def _enqueue_what_is_there(queue: Queue, clock: Clock) -> Staged:
    """A job that is sent again: it is written once more, for those who wait for replicas or the disk."""
    there = queue.enqueue("same", job_id="mine")
    new = preparing.prepare(queue.settings, "same", Options(job_id="mine"))
    return Staged(enqueue.enqueue(queue.settings, new), accepted=[there], answer="mine")


# -- attempts


def _claim(*, suspects: bool = True, **changes: Any) -> Callable[[Queue, Clock], Staged]:
    """Jobs that can be run, and every kind of entry that cannot."""

    def stage(queue: Queue, clock: Clock) -> Staged:
        due, gone_due = queue.enqueue_many(["due", "due and gone"], delay=1)
        first, suspect, gone, unreadable, runs, twice, other, last = (queue.enqueue(n) for n in range(8))
        _mark(queue, suspect, "crashes", 2)
        _mark(queue, other, "crashes", 3)
        _wipe(queue, gone)
        _wipe(queue, gone_due)
        _command(queue, "HDEL", queue.settings.keys.job(unreadable), "payload")
        _command(queue, "LPUSH", queue.settings.keys.pending, twice)
        # A job that runs, with a second entry in `pending`.
        _mark(
            queue, runs, "status", "processing", "attempts", 1, "claim_token", "theirs", "started_at_ms", clock.now_ms
        )
        _command(queue, "LPUSH", queue.settings.keys.processing, runs)
        _command(queue, "ZADD", queue.settings.keys.leases, clock.now_ms + 10_000, runs)
        clock.pass_time(2)
        operation = attempts.claim(queue.settings, "request", 20, "worker", suspects=suspects)
        accepted = [due, first, suspect, unreadable, runs, twice, other, last]
        return Staged(operation, accepted, may_go=[gone, gone_due])

    return stage


def _claim_large(queue: Queue, clock: Clock) -> Staged:
    """The second job is too much for one answer."""
    ids = queue.enqueue_many(["x" * 100, "y" * 100])
    operation = attempts.claim(queue.settings, "request", 20)
    args = (*operation.args[:10], 150, *operation.args[11:])
    return Staged(operation._replace(args=args), ids)


def _claim_paused(queue: Queue, clock: Clock) -> Staged:
    job_id = queue.enqueue(1)
    queue.pause()
    return Staged(attempts.claim(queue.settings, "request"), [job_id])


def _settle(*moves: str, asked: bool = False, **options: Any) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        held = [_held(queue) for _ in moves]
        ends = [
            Settlement(move, job.id, job.claim_token, 5000, text='"done"', note="no use", traceback="line 1")
            for move, job in zip(moves, held, strict=True)
        ]
        if asked:
            for job in held:
                queue.cancel(job.id)
        for job in held:
            views_of = views.watch(queue.settings, job.id)
            queue._ask(views_of)
        return Staged(attempts.settle(queue.settings, ends), [job.id for job in held])

    return stage


def _settle_with_trim(queue: Queue, clock: Clock) -> Staged:
    old = _held(queue)
    queue.complete(old)
    clock.pass_time(100)
    job = _held(queue)
    end = Settlement("complete", job.id, job.claim_token, text='"done"')
    return Staged(attempts.settle(queue.settings, [end]), [job.id], may_go=[old.id, job.id])


def _renew(queue: Queue, clock: Clock) -> Staged:
    held = [_held(queue) for _ in range(3)]
    queue.cancel(held[1].id)
    shown = [(job.id, job.claim_token) for job in held]
    clock.pass_time(1)
    return Staged(attempts.renew(queue.settings, shown), [job.id for job in held], answer=["OK", "STOP", "OK"])


def _recover(queue: Queue, clock: Clock) -> Staged:
    ids = queue.enqueue_many(range(3))
    queue._ask(attempts.claim(queue.settings, "request", 2))
    (operation,) = next(attempts.recover(queue.settings, "request"))  # type: ignore[misc]
    return Staged(operation, ids)


# -- upkeep


def _promote(holder: str) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        done = _held(queue)
        queue.complete(done)
        first, gone, second, third = queue.enqueue_many(range(4), delay=1)
        _wipe(queue, gone)
        _command(queue, "ZADD", queue.settings.keys.delayed, clock.now_ms + 1000, done.id)
        clock.pass_time(2)
        return Staged(upkeep.promote(queue.settings, 100, holder), [first, second, third, done.id], may_go=[gone])

    return stage


def _reclaim(queue: Queue, clock: Clock) -> Staged:
    """Leases that have ended, and all that may be amiss with them."""
    held = [_held(queue) for _ in range(9)]
    lost_once, stopped, last, undecided, gone, done, anew, entry_gone, put_off = held
    queue.cancel(stopped.id)
    _mark(queue, last.id, "attempts", 3, "crashes", 1)
    _mark(queue, undecided.id, "attempts", 2, "crashes", 1, "max_attempts", 9)
    _wipe(queue, gone.id)
    _mark(queue, anew.id, "adopted_token", "another")
    _command(queue, "LREM", queue.settings.keys.processing, 0, entry_gone.id)
    # Other programs' ends leave a lease behind.
    for job, place in ((done, queue.settings.keys.completed),):
        _command(queue, "LREM", queue.settings.keys.processing, 0, job.id)
        _command(queue, "LPUSH", place, job.id)
        _mark(queue, job.id, "status", "completed", "completed_at_ms", clock.now_ms)
        _command(queue, "HDEL", queue.settings.keys.job(job.id), "claim_token")
        _command(queue, "EXPIRE", queue.settings.keys.job(job.id), 3600)
    _command(queue, "LREM", queue.settings.keys.processing, 0, put_off.id)
    _command(queue, "HDEL", queue.settings.keys.job(put_off.id), "claim_token")
    _mark(queue, put_off.id, "status", "delayed")
    _command(queue, "ZADD", queue.settings.keys.delayed, clock.now_ms + 20_000, put_off.id)
    clock.pass_time(11)
    (operation,) = next(upkeep.sweep(queue.settings, 0))  # type: ignore[misc]
    return Staged(operation, [job.id for job in held if job is not gone], may_go=[gone.id])


def _reclaim_with_waits(queue: Queue, clock: Clock) -> Staged:
    held = [_held(queue) for _ in range(2)]
    waits: list[str | int] = []
    for job in held:
        _mark(queue, job.id, "attempts", 2, "crashes", 1, "max_attempts", 9)
        waits += [job.id, 2, 9, 4000]
    clock.pass_time(11)
    return Staged(upkeep._reclaim(queue.settings, -1, waits, shorten=False), [job.id for job in held])


def _adopt(queue: Queue, clock: Clock) -> Staged:
    """Claims without a lease: one that runs, one twice, one of a job that is gone, and what was left behind."""
    held = [_held(queue) for _ in range(4)]
    runs, twice, gone, done = held
    for job in held:
        _command(queue, "ZREM", queue.settings.keys.leases, job.id)
    _command(queue, "LPUSH", queue.settings.keys.processing, twice.id)
    _wipe(queue, gone.id)
    queue.complete(done)
    _command(queue, "LPUSH", queue.settings.keys.processing, done.id)
    (operation,) = next(upkeep.sweep(queue.settings, 0))  # type: ignore[misc]
    return Staged(operation, [runs.id, twice.id, done.id], may_go=[gone.id])


def _reclaim_trims(queue: Queue, clock: Clock) -> Staged:
    """Histories that are too long, with records that have expired, and a lease that ends too late."""
    ended = [_held(queue) for _ in range(4)]
    for job in ended[:3]:
        queue.complete(job)
    queue.fail(ended[3], Discard())
    _failed(queue)
    _wipe(queue, ended[0].id)
    clock.pass_time(100)
    held = _held(queue)
    clock.pass_time(-50)
    operation = upkeep._reclaim(queue.settings, -1, (), shorten=True)
    return Staged(operation, [held.id], may_go=[job.id for job in ended] + [held.id] + _failed_ids(queue))


def _failed_ids(queue: Queue) -> list[str]:
    """Ids of failed jobs."""
    return [job.id for job in queue.list_failed()]


# -- operators


def _cancel(place: str) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        if place == "processing":
            job_id = _held(queue).id
        else:
            job_id = queue.enqueue(1, delay=60 if place == "delayed" else None)
        answer = "asked" if place == "processing" else "cancelled"
        return Staged(control.cancel(queue.settings, job_id), [job_id], answer=answer)

    return stage


def _reschedule(mode: str, ms: int) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        first, second = queue.enqueue(1, delay=60), queue.enqueue(2, delay=90)
        return Staged(control.reschedule(queue.settings, second, mode, ms), [first, second], answer=True)

    return stage


def _requeue(queue: Queue, clock: Clock) -> Staged:
    failed, other, cancelled = _failed(queue), _failed(queue), queue.enqueue(1)
    queue.cancel(cancelled)
    operation = control._requeue_some(queue.settings, "request", [failed, cancelled])
    return Staged(operation, [failed, other, cancelled], answer=["yes", "yes"])


def _pause(queue: Queue, clock: Clock) -> Staged:
    return Staged(control.pause(queue.settings), [queue.enqueue(1)])


def _resume(queue: Queue, clock: Clock) -> Staged:
    job_id = queue.enqueue(1)
    queue.pause()
    return Staged(control.resume(queue.settings), [job_id])


def _purge(place: str, kind: str) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        ids = {
            "pending": lambda: queue.enqueue_many(range(3)),
            "delayed": lambda: queue.enqueue_many(range(3), delay=5),
            "processing": lambda: [_held(queue).id for _ in range(3)],
            "failed": lambda: [_failed(queue) for _ in range(3)],
        }[place]()
        clock.pass_time(1)
        later = queue.enqueue("later")
        key = getattr(queue.settings.keys, place)
        operation = purge_page(queue.settings, key, kind, "", 0)
        return Staged(operation, [later], may_go=[*ids, later] if place == "pending" else ids)

    return stage


def _delete_some(place: str) -> Callable[[Queue, Clock], Staged]:
    """Of four jobs two; their entries are looked for around a position, or in all of the list."""

    def stage(queue: Queue, clock: Clock) -> Staged:
        ids = {
            "pending": lambda: queue.enqueue_many(range(4)),
            "delayed": lambda: queue.enqueue_many(range(4), delay=5),
            "failed": lambda: [_failed(queue) for _ in range(4)],
        }[place]()
        chosen = [ids[1], ids[2]]
        operation = acting.delete(queue.settings, "request", chosen, place, None if place == "failed" else 0)
        return Staged(operation, [ids[0], ids[3]], may_go=chosen)

    return stage


def _find(queue: Queue, clock: Clock) -> Staged:
    ids = queue.enqueue_many(range(2))
    (operation,) = next(finding.find(queue.settings, "pending", filters.Filter(text="1"), 10, None))  # type: ignore[misc]
    return Staged(operation, ids)


def _note(queue: Queue, clock: Clock) -> Staged:
    job_id = queue.enqueue(1)
    wish = acting.Wish("delete", "in", 0, "ada@vm")
    return Staged(acting.ActOnThese(queue.settings, wish, [job_id], None).note(), [job_id], answer=1)


def _wake(queue: Queue, clock: Clock) -> Staged:
    return Staged(upkeep.wake(queue.settings), [queue.enqueue(1)], answer=True)


def _beat(queue: Queue, clock: Clock) -> Staged:
    # What it answers of the last beat depends on how far this one got before it was cut.
    return Staged(upkeep.beat(queue.settings, "w-1", {"pid": 7}), [queue.enqueue(1)], goes_on=True)


def _sample(queue: Queue, clock: Clock) -> Staged:
    """The third one of a time in which nothing changed, and one that claims to come from the future before it."""
    job_id = queue.enqueue(1, delay=300)
    queue.complete(_held(queue))
    for _ in range(3):
        _command(queue, "SET", queue.settings.keys.promoter, "me", "PX", 600_000)
        queue._ask(samples.take(queue.settings, "me"))
        clock.pass_time(30)
    _command(queue, "LPUSH", queue.settings.keys.samples, f'{{"at_ms":{clock.now_ms + 60_000},"enqueued_total":1}}')
    return Staged(samples.take(queue.settings, "me"), [job_id], goes_on=True)


def _skim(queue: Queue, clock: Clock) -> Staged:
    return Staged(skimming.skim(queue.settings, queue.settings.keys.failed, "newest"), [_failed(queue)])


def _stop(queue: Queue, clock: Clock) -> Staged:
    queue._ask(upkeep.beat(queue.settings, "w-1", {"pid": 7}))
    return Staged(directory.stop(queue.settings, "w-1"), [queue.enqueue(1)], answer=True)


def _leave(queue: Queue, clock: Clock) -> Staged:
    queue._ask(upkeep.beat(queue.settings, "w-1", {"pid": 7}))
    queue._ask(upkeep.promote(queue.settings, 10, "me"))
    return Staged(upkeep.leave(queue.settings, "w-1", "me"), [queue.enqueue(1)], answer=True)


def _announce(queue: Queue, clock: Clock) -> Staged:
    tasks = {"charge": TaskOptions(max_attempts=1), "plain": NO_OPTIONS}
    return Staged(upkeep.announce(queue.settings, tasks), [queue.enqueue(1)], answer=True)


def _watch(queue: Queue, clock: Clock) -> Staged:
    job_id = queue.enqueue(1)
    return Staged(views.watch(queue.settings, job_id), [job_id])


def _why(queue: Queue, clock: Clock) -> Staged:
    queue.complete(_held(queue))
    job_id = queue.enqueue(1)
    return Staged(why.see(queue.settings, job_id), [job_id])


def _stats(queue: Queue, clock: Clock) -> Staged:
    return Staged(views.stats(queue.settings), [queue.enqueue(1)])


def _page(queue: Queue, clock: Clock) -> Staged:
    ids = queue.enqueue_many(range(2))
    return Staged(views._part(queue.settings, queue.settings.keys.pending, "oldest", 0, 10), ids)


# -- schedules

_DAY: Final = 86_400


def _schedule(queue: Queue, name: str, **options: Any) -> None:
    given: dict[str, Any] = {"every": _DAY, "payload": name} | options
    queue.schedules.upsert(name, **given)


def _fire(queue: Queue, clock: Clock) -> Staged:
    """Slots of every kind: on time, missed, late, put off; last runs that wait and that run; damaged, and gone."""
    for overlap in ("allow", "skip", "queue_one", "cancel_running"):
        _schedule(queue, f"runs-{overlap}", overlap=overlap)
    _schedule(queue, "waits", overlap="cancel_running", backoff=Fixed(5))
    _schedule(queue, "later", jitter=3600, max_runs=1)
    _schedule(queue, "all", catch_up="all", every=_DAY / 2)
    _schedule(queue, "missed", every=_DAY / 4)
    _schedule(queue, "late", every=_DAY / 4, window=0)
    for name in ("damaged", "gone", "paused"):
        _schedule(queue, name)
    _command(queue, "HDEL", queue.settings.keys.schedule("damaged"), "payload")
    _command(queue, "DEL", queue.settings.keys.schedule("gone"))
    _mark_schedule(queue, "paused", "paused_at_ms", 1)
    before = [_triggered(queue, f"runs-{overlap}") for overlap in ("allow", "skip", "queue_one", "cancel_running")]
    for _ in before:
        queue.claim(0)
    before.append(_triggered(queue, "waits"))
    clock.pass_time(_DAY + 1)
    queue._drive(upkeep.take_back(queue.settings))
    for _ in before[:4]:
        queue.claim(0)
    return Staged(_firing(queue), before, goes_on=True)


def _firing(queue: Queue) -> Operation[Any]:
    """The request that fires all that is due."""
    peeked = queue._ask(firing.peek(queue.settings, "due", 0, 100))
    memory, batch = firing.Memory(), []
    for seen in peeked.found:
        definition = memory.learn(seen, queue._ask(firing.read(queue.settings, seen.id)))
        slot = int(seen.slot)
        made = firing.park(definition) if isinstance(definition, str) else plan(definition, slot, peeked.now_ms)
        batch.append((seen, made))
    return firing.fire(queue.settings, batch)


def _triggered(queue: Queue, name: str) -> str:
    job_id = queue.schedules.trigger(name)
    assert job_id is not None
    return job_id


def _mark_schedule(queue: Queue, name: str, *pairs: str | int) -> None:
    _command(queue, "HSET", queue.settings.keys.schedule(name), *pairs)


def _upsert(*, stored: bool) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        if stored:
            _schedule(queue, "report", overlap="skip", jitter=5)
        seen = queue._ask(firing.peek(queue.settings, "these", 0, 0, ["report"])).found[0]
        definition = Definition("report", '"new"', every_ms=60_000, max_runs=1)
        operation = schedules._written(queue.settings, definition, seen, clock.now_ms, "request")
        assert isinstance(operation, Operation)
        return Staged(operation, [queue.enqueue(1)], answer="changed" if stored else "created")

    return stage


def _pause_schedule(queue: Queue, clock: Clock) -> Staged:
    _schedule(queue, "report")
    return Staged(steering.pause(queue.settings, "report"), [queue.enqueue(1)], answer=True)


def _resume_schedule(queue: Queue, clock: Clock) -> Staged:
    _schedule(queue, "report", max_runs=1)
    queue.schedules.pause("report")
    clock.pass_time(3 * _DAY)
    seen = queue._ask(firing.peek(queue.settings, "these", 0, 0, ["report"])).found[0]
    passed = (clock.now_ms - 2 * _DAY * 1000, clock.now_ms, 3)
    operation = steering._steer(queue.settings, "resume", seen, clock.now_ms + 1000, "request", passed=passed)
    return Staged(operation, [queue.enqueue(1)], answer="yes")


def _trigger(queue: Queue, clock: Clock) -> Staged:
    _schedule(queue, "report", max_attempts=2)
    operation = steering.trigger(queue.settings, "report")
    job_id = str(operation.args[4])
    return Staged(operation, [queue.enqueue(1)], accepts=[job_id], answer=job_id)


def _delete(queue: Queue, clock: Clock) -> Staged:
    _schedule(queue, "report", every=60)
    clock.pass_time(60)
    queue._drive(firing.fire_due(queue.settings, firing.Memory()))
    return Staged(steering.delete(queue.settings, "report"), [queue.enqueue(1)])


def _peek(queue: Queue, clock: Clock) -> Staged:
    _schedule(queue, "report", max_runs=1)
    return Staged(firing.peek(queue.settings, "all", 0, 10), [queue.enqueue(1)])


_FORGETFUL: Final = {"completed_history": 0, "failed_history": 0, "min_keep": 0}

SCENES: Final = (
    Scene("enqueue, now", _enqueue(Options())),
    Scene("enqueue, later", _enqueue(Options(delay=5, max_attempts=2))),
    Scene("enqueue, many", _enqueue(Options(), Options(delay=5), Options(job_id="mine"), Options(delay=3))),
    Scene("enqueue, an id again", _enqueue_once_more),
    Scene("enqueue, what is there", _enqueue_what_is_there),
    Scene("claim, all kinds of entries", _claim()),
    Scene("claim, no suspects", _claim(suspects=False)),
    Scene("claim, too large", _claim_large),
    Scene("claim, paused", _claim_paused),
    Scene("recover", _recover),
    Scene("renew", _renew),
    Scene("complete", _settle("complete")),
    Scene("fail, attempts left", _settle("retry")),
    Scene("fail, none left", _settle("fail")),
    Scene("snooze", _settle("snooze")),
    Scene("release", _settle("release")),
    Scene("stop", _settle("retry", "release", asked=True)),
    Scene("settle, all kinds", _settle("complete", "retry", "fail", "snooze", "release", "complete")),
    Scene("complete, with trim", _settle_with_trim, _FORGETFUL),
    Scene("promote, by hand", _promote("")),
    Scene("promote, by a promoter", _promote("me")),
    Scene("reclaim, ended leases", _reclaim),
    Scene("reclaim, with waits", _reclaim_with_waits),
    Scene("reclaim, adopt", _adopt),
    Scene("reclaim, trim", _reclaim_trims, _FORGETFUL),
    Scene("cancel, pending", _cancel("pending")),
    Scene("cancel, delayed", _cancel("delayed")),
    Scene("cancel, running", _cancel("processing")),
    Scene("reschedule, later", _reschedule("in", 120_000)),
    Scene("reschedule, sooner", _reschedule("in", 30_000)),
    Scene("run now", _reschedule("in", 0)),
    Scene("requeue", _requeue),
    Scene("pause", _pause),
    Scene("resume", _resume),
    Scene("purge, pending", _purge("pending", "list")),
    Scene("purge, delayed", _purge("delayed", "zset")),
    Scene("purge, processing", _purge("processing", "list")),
    Scene("purge, failed", _purge("failed", "list")),
    Scene("delete jobs, pending", _delete_some("pending")),
    Scene("delete jobs, delayed", _delete_some("delayed")),
    Scene("delete jobs, failed", _delete_some("failed")),
    Scene("find", _find),
    Scene("note", _note),
    Scene("wake", _wake),
    Scene("beat", _beat),
    Scene("sample", _sample),
    Scene("look over", _skim),
    Scene("stop worker", _stop),
    Scene("leave", _leave),
    Scene("announce", _announce),
    Scene("watch", _watch),
    Scene("stats", _stats),
    Scene("why", _why),
    Scene("list", _page),
    Scene("fire", _fire),
    Scene("upsert, new", _upsert(stored=False)),
    Scene("upsert, changed", _upsert(stored=True)),
    Scene("pause schedule", _pause_schedule),
    Scene("resume schedule", _resume_schedule),
    Scene("trigger", _trigger),
    Scene("delete", _delete),
    Scene("peek", _peek),
)
"""Every script, and every way that it can take."""
