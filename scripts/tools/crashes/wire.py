"""Requests that are interrupted on the wire, at every round trip of every verb, in three ways.

A request can be lost before the server receives it, be lost with the connection while it arrives, or be executed with
its reply lost. The second is cut in the middle of its bytes. A server that received all of it executes it whether or
not the connection still exists, which is the third way to the caller; a server that received a part discards it, which
is the first.

With retries (`retry_for`) a call must succeed and have the effect of a single call. Without, its caller gets an error
that says the outcome is unknown, and there is either no effect or that of one call.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from schedq import AsyncQueue, ClaimedJob, Discard, Fixed, NewJob, Queue, StoreUnavailable
from schedq.model import outcome
from schedq.model.runs import RunWait, beginning
from schedq.schedules import control
from schedq.schedules.fire import DefinitionCache, fire_due
from schedq.transitions import enqueue, run, scripts, send
from scripts.tools.crashes.recovery import lost, recover
from scripts.tools.crashes.scene import command
from scripts.tools.settling import settle_all
from tests.doors import Clock, Handle, Loop
from tests.laws.test_scripts import SCRIPTS
from tests.proxy import Proxy
from tests.servers import Server
from tests.state import State

LOST, TORN, UNANSWERED = "request lost", "request torn", "reply lost"
CUTS: Final = (LOST, TORN, UNANSWERED)
ONCE, SHORT, READ = "once", "once, with the reply to the second sending", "error raised"
NOT_DONE, DONE, PARTLY = "not done, error raised", "done, outcome reported as unknown", "partly done, error raised"
_RANDOM: Final = {"claim_token", "settled_token", "request", "worker", "id", "made_by"}


class Cutter(Proxy):
    """Interrupts the n-th request from now on."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._left = -1
        self._how = ""

    def cut_at(self, trip: int, how: str) -> None:
        """Interrupt the request number `trip` (0 is the next one) in one of the three ways."""
        self.faults, self._left, self._how = 0, trip, how

    def _pass_on(self, data: bytes, client: socket.socket, upstream: socket.socket) -> bool:
        self._left -= 1
        if self._left != -1:
            upstream.sendall(data)
            return True
        self.faults += 1
        if self._how == TORN:
            upstream.sendall(data[: len(data) // 2])
        elif self._how == UNANSWERED:
            upstream.sendall(data)
            upstream.recv(1 << 20)
        return False


Jobs = dict[str, Any]
_LEFT: Final = "v=1 undos=1 bytes=4 left=1"
"""`run` of a run that has ended with a step to undo."""


@dataclass(frozen=True)
class Verb:
    """A verb and its arguments.

    Attributes:
        call: calls it.
        rounds: its round trips; more, where it asks what an unanswered one has done.
        jobs: ids that it adds.
        may_go: it deletes jobs.
        tells_what_it_did: sent again, it returns the effect of the second sending, which may be less.
        given: what is done beforehand.
    """

    call: Callable[[Any, Jobs], Any]
    rounds: int = 1
    jobs: tuple[str, ...] = ()
    may_go: bool = False
    tells_what_it_did: bool = False
    given: Callable[[Any], Any] = bool


def fill(queue: Queue, clock: Clock) -> Jobs:
    """A job in every state: one is due, one has lost its lease, one is held."""
    queue.enqueue("done", job_id="done")
    queue.complete(_claimed(queue))
    for job_id in ("failed", "failed-too"):
        queue.enqueue(1, job_id=job_id)
        queue.fail(_claimed(queue), Discard())
    queue.enqueue(1, job_id="stuck")
    queue.claim(0)
    clock.pass_time(11)
    queue.enqueue(1, job_id="held")
    held = _claimed(queue)
    held.run = beginning(1, held.claimed_at_ms, None)
    queue.enqueue(1, job_id="due", delay=1)
    clock.pass_time(1)
    queue.enqueue(1, job_id="later", delay=60)
    queue.enqueue(1, job_id="first")
    queue.enqueue(1, job_id="second")
    return {"held": held}


def _claimed(queue: Queue) -> ClaimedJob:
    job = queue.claim(0)
    assert job is not None
    return job


VERBS: Final[dict[str, Verb]] = {
    "enqueue": Verb(lambda queue, jobs: queue.enqueue(1, job_id="new"), jobs=("new",)),
    "enqueue, later": Verb(lambda queue, jobs: queue.enqueue(1, job_id="new", delay=5), jobs=("new",)),
    "enqueue, unique": Verb(lambda queue, jobs: queue.enqueue(1, job_id="new", unique="mine"), jobs=("new",)),
    "enqueue many": Verb(
        lambda queue, jobs: _enqueue_many(queue),
        rounds=2,
        jobs=("new-0", "new-1", "new-2"),
    ),
    "claim": Verb(lambda queue, jobs: queue.claim(0).id),
    "complete": Verb(lambda queue, jobs: queue.complete(jobs["held"], "done")),
    "fail, attempts left": Verb(lambda queue, jobs: queue.fail(jobs["held"], "no use")),
    "fail, none left": Verb(lambda queue, jobs: queue.fail(jobs["held"], Discard("no use"))),
    "snooze": Verb(lambda queue, jobs: queue.snooze(jobs["held"], 60)),
    "release": Verb(lambda queue, jobs: queue.release(jobs["held"])),
    "renew": Verb(lambda queue, jobs: queue.renew(jobs["held"])),
    "suspend": Verb(lambda queue, jobs: _suspend(queue, jobs["held"])),
    "send": Verb(lambda queue, jobs: queue._ask(send.send(queue.settings, "later", "paid", 1, "m1"))),
    "record a step": Verb(
        lambda queue, jobs: queue._ask(run.step(queue.settings, jobs["held"], "charge", '["step","ok",1,1,2,1]')).rest
    ),
    "receive": Verb(
        lambda queue, jobs: queue._ask(run.receive(queue.settings, jobs["held"], "receive", "paid", None)).rest,
        given=lambda queue: queue._ask(send.send(queue.settings, "held", "paid", 1, "m1")),
    ),
    "start over": Verb(
        lambda queue, jobs: queue._ask(run.start_over(queue.settings, jobs["held"], 1, "[[2],{}]")).rest
    ),
    "add an undo": Verb(
        lambda queue, jobs: queue._ask(run.add_undo(queue.settings, jobs["held"], "charge", "[]")).rest
    ),
    "undo": Verb(
        lambda queue, jobs: queue.undo("failed"),
        given=lambda queue: [
            command(queue, "HSET", queue.settings.keys.job("failed"), "run", _LEFT, "undo:pay", "1 []"),
            command(queue, "ZADD", queue.settings.keys.undos, 1, "failed"),
        ],
    ),
    "promote": Verb(lambda queue, jobs: queue.promote_due(), tells_what_it_did=True),
    "reclaim": Verb(lambda queue, jobs: queue.reclaim_stuck(), tells_what_it_did=True),
    "cancel, pending": Verb(lambda queue, jobs: queue.cancel("first")),
    "cancel, delayed": Verb(lambda queue, jobs: queue.cancel("later")),
    "cancel, running": Verb(lambda queue, jobs: queue.cancel("held")),
    "reschedule": Verb(lambda queue, jobs: queue.reschedule("later", delay=90)),
    "run now": Verb(lambda queue, jobs: queue.run_now("later")),
    "requeue": Verb(lambda queue, jobs: queue.requeue("failed")),
    "requeue all": Verb(lambda queue, jobs: queue.requeue_failed(), rounds=2),
    "pause": Verb(lambda queue, jobs: queue.pause()),
    "resume": Verb(lambda queue, jobs: queue.resume(), tells_what_it_did=True, given=lambda queue: queue.pause()),
    "pause task": Verb(lambda queue, jobs: queue.pause(task="send")),
    "resume task": Verb(
        lambda queue, jobs: queue.resume(task="send"),
        tells_what_it_did=True,
        given=lambda queue: (queue.enqueue({"task": "send"}, job_id="send"), queue.pause(task="send")),
    ),
    "cancel task": Verb(
        lambda queue, jobs: queue.cancel_task("send"),
        rounds=6,
        given=lambda queue: [queue.enqueue({"task": "send"}, delay=n, job_id=f"send-{n}") for n in (0, 5)],
    ),
    "purge": Verb(lambda queue, jobs: queue.purge(), rounds=10, may_go=True, tells_what_it_did=True),
    "delete jobs": Verb(
        lambda queue, jobs: queue.inspector.act("delete", ["failed", "later"]).done, rounds=2, may_go=True
    ),
    "act on many": Verb(lambda queue, jobs: queue.inspector.act_on("requeue", "failed").done, rounds=3),
    "find": Verb(lambda queue, jobs: [job.id for job in queue.inspector.find("pending").jobs]),
    "result": Verb(lambda queue, jobs: queue.result("done", 0)),
    "get job": Verb(lambda queue, jobs: queue.get_job("done").id),
    "stats": Verb(lambda queue, jobs: queue.stats()["pending_depth"]),
    "list": Verb(lambda queue, jobs: [job.id for job in queue.list_pending()]),
    "fire": Verb(
        lambda queue, jobs: queue._drive(fire_due(queue.settings, DefinitionCache())).jobs,
        rounds=3,
        tells_what_it_did=True,
        given=lambda queue: (_schedule(queue, every=1), queue.settings.clock.pass_time(1)),
    ),
    "schedule upsert": Verb(lambda queue, jobs: _schedule(queue, every=60), rounds=2),
    "schedule pause": Verb(lambda queue, jobs: queue.schedules.pause("report"), given=lambda queue: _schedule(queue)),
    "schedule resume": Verb(
        lambda queue, jobs: queue.schedules.resume("report"),
        rounds=2,
        given=lambda queue: (_schedule(queue), queue.schedules.pause("report")),
    ),
    "schedule trigger": Verb(lambda queue, jobs: _trigger(queue), given=lambda queue: _schedule(queue)),
    "schedule delete": Verb(
        lambda queue, jobs: queue.schedules.delete("report"),
        tells_what_it_did=True,
        given=lambda queue: _schedule(queue),
    ),
    "schedule backfill": Verb(
        lambda queue, jobs: queue.schedules.backfill("report", 1_799_999_997, 1_800_000_000),
        rounds=3,
        given=lambda queue: _schedule(queue, every=1),
    ),
}
"""Every verb that sends requests to Redis."""
WITHOUT_ROUND_TRIPS_OF_THEIR_OWN: Final = {
    "close",
    "aclose",
    "settle",  # used by complete and fail
    "events",  # yields events, and '' where some may have been missed
    "wait",  # same requests as result
    "gather_results",  # reads, and waits as wait does
    "list_delayed",
    "list_processing",
    "list_completed",
    "list_failed",
    "list_cancelled",
    "list_batches",
    "list_broken",
    "list_workers",  # plain reads, like `get job`
    "list_paused_tasks",
    "list_queues",
    "load_settings",
}


def _schedule(queue: Any, every: float = 86_400) -> Any:
    return queue.schedules.upsert("report", every=every, payload=1, end=1_800_000_100)


def _trigger(queue: Any) -> Any:
    """With the same id each time."""
    with patch.object(control, "new_request", lambda: "0123456789abcdef"):
        return queue.schedules.trigger("report")


def _suspend(queue: Any, job: ClaimedJob) -> bool:
    settlement = outcome.suspended(job, [RunWait("sleep", "sleep", 1_800_000_100_000)])
    (word,) = queue._drive(settle_all(queue.settings, [settlement]))
    return word in ("OK", "DUPLICATE")


def _enqueue_many(queue: Any) -> Any:
    """In batches of two, so that there are several."""
    with patch.object(enqueue, "MOST_IDS", 2):
        return queue.enqueue_many([NewJob(n, job_id=f"new-{n}") for n in range(3)])


@dataclass(frozen=True)
class Cut:
    """The result of one interruption.

    Attributes:
        verb: the verb.
        door: blocking or asyncio.
        trip: number of the request that was interrupted.
        how: one of the three ways.
        patient: whether it may be sent again.
        outcome: in a few words.
        wrong: problems found; should be empty.
    """

    verb: str
    door: str
    trip: int
    how: str
    patient: bool
    outcome: str
    wrong: list[str]

    def __str__(self) -> str:
        patience = "with retries" if self.patient else "without retries"
        return f"{self.verb} ({self.door}), {self.how}, trip {self.trip}, {patience}: {self.outcome}; {self.wrong}"


class Whole(NamedTuple):
    """The uninterrupted call: its effect, its reply, and what was stored before."""

    effect: Any
    reply: Any
    before: Any


class Bench:
    """Interrupts verbs, each on a freshly filled queue."""

    def __init__(self, server: Server, loop: Loop, name: str = "crash-wire") -> None:
        self.server = server
        self._loop = loop
        self._name = name
        self._client = server.client()
        self._plain = Queue(name, redis=server.unix_url, clock=(clock := Clock()), backoff=Fixed(30))
        self._clock = clock
        self._cutter = Cutter(server)
        self._cutter.__enter__()
        for script in SCRIPTS:
            self._client.script_load(scripts.load(script).source)

    def close(self) -> None:
        """Close its connections."""
        self._plain.close()
        self._client.close()
        self._cutter.__exit__(None, None, None)

    def cuts(self, name: str) -> Iterator[Cut]:
        """Interrupt a verb in every way: the blocking client with and without retries, the asyncio client with."""
        verb = VERBS[name]
        whole = self._whole(verb)
        for kind, patient in ((Queue, True), (Queue, False), (AsyncQueue, True)):
            for how in CUTS:
                trip = 0
                while (found := self._cut(name, kind, trip, how, patient, whole)) is not None:
                    yield found
                    trip += 1
                assert trip >= 1, f"{name} sent no request"

    def _whole(self, verb: Verb) -> Whole:
        jobs = self._set(verb)
        before = self._effect()
        reply = verb.call(self._plain, jobs)
        return Whole(self._effect(), reply, before)

    def _cut(self, name: str, kind: type, trip: int, how: str, patient: bool, whole: Whole) -> Cut | None:
        verb = VERBS[name]
        jobs = self._set(verb)
        door = "blocking" if kind is Queue else "asyncio"
        made = kind(
            self._name, redis=self._cutter.url, clock=self._clock, retry_for=5 if patient else 0, backoff=Fixed(30)
        )
        handle = Handle(made, self.server, self._loop)
        try:
            self._cutter.cut_at(-1, "")
            handle.stats()
            self._cutter.cut_at(trip, how)
            try:
                reply = verb.call(handle, jobs)
                has_raised = False
            except StoreUnavailable as error:
                reply, has_raised = error, True
            was_cut = self._cutter.faults > 0
            self._cutter.cut_at(-1, "")
        finally:
            handle.close()
        if not was_cut:
            return None
        if has_raised:
            outcome, wrong = _judge_error(verb, self._effect(), whole)
            wrong += [f"raised {reply!r}"] if patient else []
        else:
            outcome, wrong = _judge_reply(verb, how, reply, self._effect(), whole)
        wrong += self._after(verb, has_raised)
        return Cut(name, door, trip, how, patient, outcome, wrong)

    def _after(self, verb: Verb, has_raised: bool) -> list[str]:
        accepted = {"done", "failed", "failed-too", "stuck", "held", "due", "later", "first", "second"}
        if not has_raised:
            accepted |= set(verb.jobs)
        recover(self._plain, self._clock)
        state = State.of(self._client, self._plain.settings.keys)
        wrong = [] if verb.may_go else lost(state, accepted)
        return wrong + [f"{law}: {complaints}" for law, complaints in state.broken_laws().items()]

    # -- the queue

    def _set(self, verb: Verb) -> Jobs:
        if names := self._client.keys(self._plain.settings.keys.prefix + "*"):
            self._client.unlink(*names)
        self._clock.now = Clock().now
        jobs = fill(self._plain, self._clock)
        verb.given(self._plain)
        return jobs

    def _effect(self) -> Any:
        """Everything stored, except for random values."""
        state = State.of(self._client, self._plain.settings.keys)
        jobs = {
            job_id: {name: value for name, value in state.job(job_id).items() if name not in _RANDOM}
            for job_id in state.jobs()
        }
        leases = state.holds("leases", "zset")
        schedules = {
            name: {field: value for field, value in key.holds.items() if field != "request"}
            for name, key in state.keys.items()
            if name.startswith("schedule") and key.kind != "list"
        }
        paused = ["paused" in state.keys, sorted(state.holds("paused_tasks", "hash"))]
        return json.loads(json.dumps([state.places(), state.totals(), leases, jobs, paused, schedules]))


def _difference(one: Any, other: Any) -> str:
    return "; ".join(f"{a} instead of {b}" for a, b in zip(one, other, strict=True) if a != b)


def _judge_reply(verb: Verb, how: str, reply: Any, effect: Any, whole: Whole) -> tuple[str, list[str]]:
    """The outcome of a call that returned, and its problems."""
    wrong = []
    outcome = SHORT if verb.tells_what_it_did and how == UNANSWERED else ONCE
    if reply != whole.reply and outcome == ONCE:
        wrong.append(f"returned {reply!r}, not {whole.reply!r}")
    if effect != whole.effect:
        wrong.append(f"effect differs from that of one call: {_difference(effect, whole.effect)}")
    return outcome, wrong


def _judge_error(verb: Verb, effect: Any, whole: Whole) -> tuple[str, list[str]]:
    """The outcome of a call that raised, and its problems."""
    if whole.effect == whole.before == effect:
        return READ, []
    if effect == whole.effect:
        return DONE, []
    if effect == whole.before:
        return NOT_DONE, []
    wrong = [f"neither fully done nor unchanged: {_difference(effect, whole.effect)}"] if verb.rounds == 1 else []
    return PARTLY, wrong
