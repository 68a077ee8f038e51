"""Verbs in any order, by many callers, with right and with old tokens: step by step as the model says."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from schedq import ClaimedJob, Fixed, Queue
from tests.doors import Clock, Handle, Loop
from tests.servers import Server
from tests.verbs.model import BACKOFF_MS, LEASE_MS, MAX_ATTEMPTS, Model

SECONDS = st.sampled_from([0.001, 1, 5, 10, 31])
DELAYS = st.sampled_from([0, 1, 5, 40])


class AnyOrder(RuleBasedStateMachine):
    """One queue, one clock, and a caller who does anything."""

    server: Server
    loop: Loop
    ids: Any = Bundle("ids")
    claims: Any = Bundle("claims")

    @initialize()
    def open(self) -> None:
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

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.queue.forget()
            self.queue.close()

    @rule(target=ids, delay=DELAYS)
    def enqueue(self, delay: int) -> str:
        job_id: str = self.queue.enqueue(delay, delay=delay)
        self.model.enqueue(job_id, delay * 1000)
        return job_id

    @rule(job_id=ids)
    def enqueue_again(self, job_id: str) -> None:
        if record := self.queue.get_job(job_id):
            before = self.queue.dump()
            assert self.queue.enqueue(record.payload, job_id=job_id) == job_id
            assert self.queue.dump() == before

    @rule(target=claims)
    def claim(self) -> ClaimedJob | None:
        wanted = self.model.claim()
        job: ClaimedJob | None = self.queue.claim(0)
        assert (job and job.id) == (wanted and wanted.id)
        if job is not None and wanted is not None:
            assert (job.attempts, job.crashes) == (wanted.attempts, wanted.crashes)
            wanted.token = job.claim_token
        return job

    @rule(job=claims, move=st.sampled_from(["complete", "fail", "release", "snooze", "renew"]), delay=DELAYS)
    def act(self, job: ClaimedJob | None, move: str, delay: int) -> None:
        """With the token of any claim, also of one that ended long ago."""
        if job is None:
            return
        before = self.queue.dump()
        is_held = self.model.holds(job.id, job.claim_token)
        if move == "renew":
            wanted, found = self.model.renew(job.id, job.claim_token), self.queue.renew(job)
        else:
            # Whether a failure is the last is decided by what the caller claimed.
            kind = "retry" if move == "fail" and job.attempts < MAX_ATTEMPTS else move
            wanted = self.model.end(kind, job.id, job.claim_token, delay * 1000)
            found = self.queue.snooze(job, delay) if move == "snooze" else getattr(self.queue, move)(job)
        assert found is wanted
        if not is_held:
            assert self.queue.dump() == before

    @rule(job=consumes(claims), token=st.sampled_from(["", "0123456789abcdef.1"]))
    def act_without_right(self, job: ClaimedJob | None, token: str) -> None:
        if job is not None:
            before = self.queue.dump()
            stranger = ClaimedJob(job.id, job.payload, job.attempts, token)
            assert not self.queue.complete(stranger)
            assert not self.queue.renew(stranger)
            assert self.queue.dump() == before

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.clock.pass_time(seconds)
        self.model.now_ms = self.clock.now_ms

    @rule()
    def reclaim(self) -> None:
        assert sorted(self.queue.reclaim_stuck()) == self.model.reclaim()

    @rule()
    def promote(self) -> None:
        assert self.queue.promote_due() == self.model.promote()

    @rule(job_id=ids)
    def cancel(self, job_id: str) -> None:
        assert self.queue.cancel(job_id) == self.model.cancel(job_id)

    @rule(job_id=ids, delay=DELAYS)
    def reschedule(self, job_id: str, delay: int) -> None:
        assert self.queue.reschedule(job_id, delay=delay) is self.model.reschedule(job_id, delay * 1000)

    @rule(job_id=ids)
    def requeue(self, job_id: str) -> None:
        assert self.queue.requeue(job_id) is self.model.requeue(job_id)

    @rule()
    def requeue_failed(self) -> None:
        failed = list(self.model.order.get("failed", []))
        assert self.queue.requeue_failed() == len([job_id for job_id in failed if self.model.requeue(job_id)])

    @rule()
    def pause_or_resume(self) -> None:
        if self.model.is_paused:
            assert self.queue.resume() is True
        else:
            self.queue.pause()
        self.model.is_paused = not self.model.is_paused

    @precondition(lambda self: len(self.model.jobs) > 5)
    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == self.model.purge()

    @rule()
    def forget_scripts(self) -> None:
        self.queue.redis.script_flush()

    @invariant()
    def is_as_the_model_says(self) -> None:
        if hasattr(self, "queue"):
            state = self.queue.state()
            assert state.places() == self.model.places()
            assert state.broken_laws() == {}
            for job_id, job in self.model.jobs.items():
                fields = state.job(job_id)
                assert int(fields["attempts"]) == job.attempts
                assert int(fields.get("crashes", 0)) == job.crashes
                assert ("stop" in fields) == job.is_stopping


@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
def test_verbs_in_any_order_do_what_the_model_says(server: Server, loop: Loop):
    AnyOrder.server, AnyOrder.loop = server, loop
    machine = AnyOrder.TestCase()
    machine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)

    machine.runTest()
