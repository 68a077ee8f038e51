"""Verbs in any order, by many callers, with right and wrong tokens, on damaged data, compared with the model.

`scripts/explore --ci` runs ten times as many steps as the test.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

import hypothesis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from schedq import ClaimedJob, Fixed, Queue
from tests.doors import Clock, Handle, Loop
from tests.servers import Server
from tests.transitions.model import BACKOFF_MS, LEASE_MS, MAX_ATTEMPTS, Model

SECONDS = st.sampled_from([0, 0.001, 5, 10, 31])
DELAYS = st.sampled_from([0, 1, 40])
MOVES = st.sampled_from(["complete", "fail", "release", "snooze", "renew"])
ANY = st.integers(0, 1000)
TASKS = st.sampled_from(["", "send", "report"])


class AnyOrder(RuleBasedStateMachine):
    """One queue, one clock, and callers that do anything."""

    server: Server
    loop: Loop
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.model = Model(self.clock.now_ms)
        queue = Queue(
            f"any-{uuid.uuid4().hex[:12]}",
            redis=self.server.unix_url,
            clock=self.clock,
            visibility_ms=LEASE_MS,
            max_attempts=MAX_ATTEMPTS,
            backoff=Fixed(BACKOFF_MS / 1000),
        )
        self.queue = Handle(queue, self.server, self.loop)
        self.ids: list[str] = []
        self.claims: list[ClaimedJob] = []

    def teardown(self) -> None:
        self.queue.forget()
        self.queue.close()

    def some_id(self, n: int) -> str:
        """Any id that ever existed."""
        return self.ids[n % len(self.ids)] if self.ids else "never-was"

    @property
    def held(self) -> list[ClaimedJob]:
        """Claims that have not ended."""
        return [job for job in self.claims if self.model.holds(job.id, job.claim_token)]

    @rule(delay=DELAYS, count=st.integers(1, 3), task=TASKS)
    def enqueue(self, delay: int, count: int, task: str) -> None:
        for job_id in self.queue.enqueue_many([{"task": task} if task else delay] * count, delay=delay):
            self.model.enqueue(job_id, delay * 1000, task)
            self.ids.append(job_id)

    @rule(n=ANY)
    def enqueue_again(self, n: int) -> None:
        if record := self.queue.get_job(self.some_id(n)):
            before = self.queue.dump()
            assert self.queue.enqueue(record.payload, job_id=record.id) == record.id
            assert self.queue.dump() == before

    @rule()
    def claim(self) -> None:
        wanted = self.model.claim()
        job: ClaimedJob | None = self.queue.claim(0)
        assert (job and job.id) == (wanted and wanted.id)
        if job is not None and wanted is not None:
            assert (job.attempts, job.crashes) == (wanted.attempts, wanted.crashes)
            wanted.token = job.claim_token
            self.claims.append(job)

    def do(self, move: str, job: ClaimedJob, delay: int) -> None:
        """End or renew an attempt: the result is the model's, and nothing is written unless the caller owns the job."""
        before = self.queue.dump()
        is_held = self.model.holds(job.id, job.claim_token)
        if move == "renew":
            wanted, found = self.model.renew(job.id, job.claim_token), self.queue.renew(job)
        else:
            # The claimed job decides whether a failure is the last one.
            kind = "retry" if move == "fail" and job.attempts < MAX_ATTEMPTS else move
            wanted = self.model.end(kind, job.id, job.claim_token, delay * 1000)
            found = self.queue.snooze(job, delay) if move == "snooze" else getattr(self.queue, move)(job)
        assert found is wanted
        if not is_held:
            assert self.queue.dump() == before

    @precondition(lambda self: self.held)
    @rule(move=MOVES, n=ANY, delay=DELAYS)
    def act(self, move: str, n: int, delay: int) -> None:
        self.do(move, self.held[n % len(self.held)], delay)

    @precondition(lambda self: self.claims)
    @rule(move=MOVES, n=ANY, delay=DELAYS)
    def act_late(self, move: str, n: int, delay: int) -> None:
        """With the token of any claim ever made."""
        self.do(move, self.claims[n % len(self.claims)], delay)

    @precondition(lambda self: self.claims)
    @rule(move=MOVES, n=ANY, token=st.one_of(st.just(""), ANY, st.text("0123456789abcdef", min_size=16, max_size=16)))
    def act_without_right(self, move: str, n: int, token: str | int) -> None:
        """Without a token, with another claim's, or with one that never existed."""
        job = self.claims[n % len(self.claims)]
        if isinstance(token, int):
            token = self.claims[token % len(self.claims)].claim_token
        self.do(move, replace(job, claim_token=token and (token if "." in token else f"{token}.1")), 0)

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.clock.pass_time(seconds)
        self.model.now_ms = self.clock.now_ms

    @rule(seconds=SECONDS)
    def reclaim(self, seconds: float) -> None:
        """A worker that did not renew for this long is dead."""
        self.pass_time(seconds)
        assert sorted(self.queue.reclaim_stuck()) == self.model.reclaim()

    @rule(seconds=SECONDS)
    def promote(self, seconds: float) -> None:
        self.pass_time(seconds)
        assert self.queue.promote_due() == self.model.promote()

    @rule(n=ANY)
    def cancel(self, n: int) -> None:
        assert self.queue.cancel(self.some_id(n)) == self.model.cancel(self.some_id(n))

    @rule(n=ANY, delay=DELAYS)
    def reschedule(self, n: int, delay: int) -> None:
        job_id = self.some_id(n)
        assert self.queue.reschedule(job_id, delay=delay) is self.model.reschedule(job_id, delay * 1000)

    @rule(n=ANY)
    def requeue(self, n: int) -> None:
        assert self.queue.requeue(self.some_id(n)) is self.model.requeue(self.some_id(n))

    @rule()
    def requeue_failed(self) -> None:
        failed = list(self.model.order.get("failed", []))
        assert self.queue.requeue_failed() == len([job_id for job_id in failed if self.model.requeue(job_id)])

    @rule()
    def pause_for_a_claim(self) -> None:
        self.queue.pause()
        assert self.queue.claim(0) is None
        assert self.queue.resume() is True

    @rule(task=TASKS)
    def pause_a_task(self, task: str) -> None:
        if task:
            self.queue.pause(task=task)
            self.model.pause(task)

    @rule(task=TASKS)
    def resume_a_task(self, task: str) -> None:
        if task:
            assert self.queue.resume(task=task) is self.model.resume(task)

    @precondition(lambda self: len(self.model.jobs) > 10)
    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == self.model.purge()

    @rule()
    def forget_scripts(self) -> None:
        self.queue.redis.script_flush()

    @rule()
    def lose_the_connections(self) -> None:
        for found in self.queue.redis.client_list():
            if found["name"] == f"schedq-{self.queue.name}":
                self.queue.redis.client_kill_filter(_id=found["id"])

    # -- another program damages something, and the next request that reads it repairs it

    def in_place(self, *places: str) -> list[str]:
        return [job.id for job in self.model.jobs.values() if job.place in places]

    @precondition(lambda self: self.in_place("processing"))
    @rule(n=ANY)
    def lose_a_lease(self, n: int) -> None:
        """A sweep gives it a new one."""
        ids = self.in_place("processing")
        job_id = ids[n % len(ids)]
        self.queue.redis.zrem(self.queue.keys.leases, job_id)
        self.model.jobs[job_id].lease_ends_ms = self.clock.now_ms + LEASE_MS
        assert sorted(self.queue.reclaim_stuck()) == self.model.reclaim()

    @precondition(lambda self: self.in_place("processing"))
    @rule(n=ANY)
    def lose_an_entry_of_processing(self, n: int) -> None:
        """When its lease has ended, it is still reclaimed."""
        ids = self.in_place("processing")
        self.queue.redis.lrem(self.queue.keys.processing, 0, ids[n % len(ids)])
        self.reclaim(LEASE_MS / 1000)

    @precondition(lambda self: self.in_place("completed", "failed", "cancelled", "processing", "delayed"))
    @rule(n=ANY)
    def push_an_id_that_is_elsewhere(self, n: int) -> None:
        """The next claim drops the entry."""
        ids = self.in_place("completed", "failed", "cancelled", "processing", "delayed")
        self.promote(0)
        if (job_id := ids[n % len(ids)]) not in self.in_place("pending"):
            self.queue.redis.rpush(self.queue.keys.pending, job_id)
        self.claim()

    @precondition(lambda self: self.in_place("completed", "failed", "cancelled"))
    @rule(n=ANY)
    def lease_a_finished_job(self, n: int) -> None:
        """A sweep drops the lease."""
        ids = self.in_place("completed", "failed", "cancelled")
        self.queue.redis.zadd(self.queue.keys.leases, {ids[n % len(ids)]: self.clock.now_ms})
        self.reclaim(0)

    @precondition(lambda self: self.model.order.get("pending"))
    @rule()
    def lose_the_data_of_the_next_job(self) -> None:
        """The claim that reaches it leaves a note in `broken`."""
        self.promote(0)
        job = self.model.jobs[self.model.order["pending"][0]]
        self.queue.redis.delete(self.queue.keys.job(job.id))
        job.ended = ("", "")  # the token that ended it was lost with its data
        self.model.move(job, "broken")
        self.claim()

    @invariant()
    def is_as_the_model_says(self) -> None:
        state = self.queue.state()
        assert state.places() == self.model.places()
        assert state.broken_laws() == {}
        type(self).steps += 1
        for job_id, job in self.model.jobs.items():
            if job.place == "broken":
                continue
            fields = state.job(job_id)
            assert int(fields["attempts"]) == job.attempts
            assert int(fields.get("crashes", 0)) == job.crashes
            assert ("stop" in fields) == job.is_stopping


def go(server: Server, loop: Loop, *, runs: int, seed: int) -> int:
    """Run `runs` sequences of 50 steps each; returns the number of steps.

    Raises:
        AssertionError: the queue differs from the model; the shortest failing sequence is printed.
    """

    class Counted(AnyOrder):
        steps = 0

    Counted.server, Counted.loop = server, loop
    run_state_machine_as_test(
        hypothesis.seed(seed)(Counted),
        settings=settings(max_examples=runs, stateful_step_count=50, deadline=None, derandomize=False, database=None),
    )
    return Counted.steps


def test_verbs_in_any_order_do_what_the_model_does(server: Server, loop: Loop):
    assert go(server, loop, runs=50, seed=1) >= 2000
