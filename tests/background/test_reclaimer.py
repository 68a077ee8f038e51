"""The reclaimer takes back the jobs of dead workers, and no others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from schedq.background.reclaimer import Reclaimer, Retention
from schedq.background.reconnecting_client import Availability, ReconnectingClient
from schedq.model.times import monotonic
from schedq.transitions import promote, reclaim
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, asked

RENEWAL_S = 1.0
LATE_S = 0.25
Steps = Callable[[Reclaimer, Availability], Awaitable[None]]


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    """A queue with a renewal interval of a second, so that no pause of the machine looks like a stop."""
    return make_queue(visibility_ms=3000)


def step(queue: Handle, steps: Steps) -> None:
    """Run a queue's reclaimer step by step."""

    async def main() -> None:
        outage = Availability("here")
        link = ReconnectingClient(queue.queue, outage)
        try:
            await steps(Reclaimer(queue.settings, link), outage)
        finally:
            await link.aclose()

    asyncio.run(main())


def seen(**found: Any) -> promote.Promotion:
    """The result of a promoter's check; unless given otherwise, a lease has ended."""
    now_ms = int(time.time() * 1000)
    plain = promote.Promotion(
        is_leader=True,
        now_ms=now_ms,
        moved=0,
        has_more=False,
        next_due_ms=None,
        first_lease_end_ms=now_ms,
        unleased=0,
        workers=1,
        next_slot_ms=None,
    )
    return replace(plain, **found)


def lost_job(queue: Handle, **options: Any) -> str:
    """A job whose worker is dead and whose lease has ended."""
    job_id: str = queue.enqueue({"task": "ok"}, **options)
    assert queue.claim(timeout_ms=0)
    queue.redis.zadd(queue.keys.leases, {job_id: 1})
    return job_id


class Ahead:
    """The reclaimer's clock and Redis's, which only a test moves ahead, both together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_s = 0.0
        self._began = monotonic(), time.time()
        monkeypatch.setattr("schedq.background.reclaimer.monotonic", self.now)

    def now(self) -> float:
        """The reclaimer's clock."""
        return self._began[0] + self.by_s

    @property
    def now_ms(self) -> int:
        """Redis's clock."""
        return int((self._began[1] + self.by_s) * 1000)

    def seen(self, **found: Any) -> promote.Promotion:
        """The result of a check at this time."""
        return seen(**{"now_ms": self.now_ms, **found})

    def rest(self, wait: float | None) -> None:
        """Let a reclaimer that has reported a rest finish it."""
        assert wait is not None
        assert 0 < wait <= RENEWAL_S
        self.by_s += RENEWAL_S + LATE_S + 0.001  # more than the errors of sums


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Ahead:
    """A clock for the reclaimer."""
    return Ahead(monkeypatch)


async def assert_rests_first(reclaimer: Reclaimer, queue: Handle, job_id: str, ahead: Ahead) -> None:
    """It leaves the lost job until it has rested, and then takes it back."""
    wait = await reclaimer.look(ahead.seen())
    assert queue.places() == {"processing": [job_id]}
    ahead.rest(wait)
    await reclaimer.look(ahead.seen())
    assert queue.places() == {"pending": [job_id]}


def test_after_its_start_it_rests_until_live_workers_must_have_renewed(
    queue: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = lost_job(queue)
    began = monotonic()
    passed = 0.0
    monkeypatch.setattr("schedq.background.reclaimer.monotonic", lambda: began + passed)

    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        nonlocal passed
        waits = []
        for passed in (0.0, 0.2, RENEWAL_S, RENEWAL_S + LATE_S - 0.01):  # noqa: B007 - the time of the clock
            waits.append(await reclaimer.look(seen()))
        assert queue.places() == {"processing": [job_id]}
        assert waits == pytest.approx([RENEWAL_S, RENEWAL_S, LATE_S, 0.01])
        passed = RENEWAL_S + LATE_S
        assert await reclaimer.look(seen()) == 0.0

    step(queue, steps)

    assert queue.places() == {"pending": [job_id]}


def test_a_job_that_fails_for_good_because_its_lease_ended_is_logged_as_an_error(
    queue: Handle, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    again, last = lost_job(queue), lost_job(queue, max_attempts=1)
    began, passed = monotonic(), 0.0
    monkeypatch.setattr("schedq.background.reclaimer.monotonic", lambda: began + passed)

    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        nonlocal passed
        passed = RENEWAL_S + LATE_S
        await reclaimer.look(seen())

    step(queue, steps)

    assert queue.places() == {"pending": [again], "failed": [last]}
    assert sorted(logs()) == [
        f"ERROR job {last}: lease ended and no attempt is left, failed for good",
        f"WARNING job {again}: lease ended, taken back",
    ]


def test_a_process_that_checks_for_the_first_time_long_after_its_start_rests_as_well(
    queue: Handle, ahead: Ahead
) -> None:
    # A reserve makes its first check when it is called. Redis's clock, which also ends the leader's lease, may have
    # jumped just before.
    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        job_id = lost_job(queue)
        ahead.by_s += 60
        reclaimer.notice(ahead.now_ms, ahead.now())
        await assert_rests_first(reclaimer, queue, job_id, ahead)

    step(queue, steps)


@pytest.mark.parametrize("trouble", ["lost", "slow", "late", "unwatched", "clock ahead", "clock back"])
def test_it_rests_again_after_a_disturbance(queue: Handle, logs: Logs, trouble: str, ahead: Ahead) -> None:
    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        reclaimer.notice(ahead.now_ms, ahead.now())
        ahead.rest(await reclaimer.look(ahead.seen()))
        reclaimer.notice(ahead.now_ms, ahead.now())
        job_id = lost_job(queue)
        if trouble == "lost":
            outage.lost("somebody", ConnectionError())
            outage.back("somebody")
            reclaimer.notice(ahead.now_ms, ahead.now())
        elif trouble == "late":
            # The process was stopped for most of a lease, and could not renew.
            reclaimer.notice(ahead.now_ms, ahead.now(), late_s=2 * RENEWAL_S)
        elif trouble == "unwatched":
            # A standby takes over: the clock may have jumped back and forth meanwhile.
            ahead.by_s += 4
            reclaimer.notice(ahead.now_ms, ahead.now())
        elif trouble == "slow":
            # The reply was read long after Redis sent it, as when a handler blocks the loop: that is not a jump.
            reclaimer.notice(ahead.now_ms - 1500, ahead.now() - 1.6)
            reclaimer.notice(ahead.now_ms, ahead.now())
        else:
            reclaimer.notice(ahead.now_ms + (3_600_000 if trouble == "clock ahead" else -3_600_000), ahead.now())
        await assert_rests_first(reclaimer, queue, job_id, ahead)

    step(queue, steps)

    assert bool([line for line in logs() if "clock jumped by" in line]) == trouble.startswith("clock")


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_each_process_logs_a_jump_of_the_clock_once(
    queue: Handle, logs: Logs, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    now = monotonic()
    monkeypatch.setattr("schedq.background.reclaimer.monotonic", lambda: now)

    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        nonlocal now
        for second in range(60):
            now += 1
            reclaimer.notice(1_800_000_000_000 + second * 1000 + (step_s * 1000 if second >= 20 else 0), now)

    for process in (1, 2):
        step(queue, steps)
        said = [line for line in logs() if "jumped" in line]
        assert said == [f"WARNING queue {queue.settings.name}: Redis's clock jumped by {step_s:+.1f} s"] * process


class Standing:
    """A reclaimer with its own clock, in a process that is stopped again and again."""

    def __init__(self, reclaimer: Reclaimer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = monotonic() + 3600  # it started long ago
        self._reclaimer = reclaimer
        monkeypatch.setattr("schedq.background.reclaimer.monotonic", lambda: self.now)
        reclaimer.notice(self._now_ms, self.now)

    @property
    def _now_ms(self) -> int:
        return int((self.now + 1_800_000_000) * 1000)

    async def look(self, after_s: float, late_s: float = 0.0) -> float | None:
        """Check after this many seconds, of which so many were not planned."""
        self.now += after_s
        self._reclaimer.notice(self._now_ms, self.now, late_s)
        return await self._reclaimer.look(seen())


@pytest.mark.parametrize("planned_s", [0.02, 0.5, 1.0])
def test_a_process_that_is_stopped_often_rests_at_most_once_between_two_sweeps(
    queue: Handle, monkeypatch: pytest.MonkeyPatch, planned_s: float
) -> None:
    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        standing = Standing(reclaimer, monkeypatch)
        for _ in range(3):
            job_id = lost_job(queue)
            looks = 0
            while queue.places() != {"pending": [job_id]}:
                await standing.look(planned_s + 2.7, late_s=2.7)
                looks += 1
                assert looks <= 2
            queue.purge()

    step(queue, steps)


def test_after_a_short_stop_it_rests_until_other_processes_have_renewed(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(visibility_ms=30_000)

    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        standing = Standing(reclaimer, monkeypatch)
        job_id = lost_job(queue)
        assert await standing.look(9.0, late_s=8.0) == pytest.approx(3.0)  # and not for the 12 s of a renewal interval
        assert queue.places() == {"processing": [job_id]}
        await standing.look(3.0)
        assert queue.places() == {"pending": [job_id]}

    step(queue, steps)


def test_after_a_stop_longer_than_a_lease_it_rests_for_a_renewal_interval(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(visibility_ms=30_000)

    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        standing = Standing(reclaimer, monkeypatch)
        job_id = lost_job(queue)
        assert await standing.look(41.0, late_s=40.0) == pytest.approx(10.0)
        for _ in range(11):
            await standing.look(1.0)
        assert queue.places() == {"processing": [job_id]}
        await standing.look(1.0)
        assert queue.places() == {"pending": [job_id]}

    step(queue, steps)


def test_a_standby_that_was_stopped_rests_once_it_is_the_leader(queue: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        standing = Standing(reclaimer, monkeypatch)
        reclaimer.notice(standing._now_ms, standing.now, 2.7)
        for _ in range(10):
            standing.now += 1
            reclaimer.notice(standing._now_ms, standing.now)
        job_id = lost_job(queue)
        assert await standing.look(3.7, late_s=2.7) == pytest.approx(RENEWAL_S)
        assert queue.places() == {"processing": [job_id]}

    step(queue, steps)


def test_it_does_not_rest_without_a_reason(queue: Handle, logs: Logs, ahead: Ahead) -> None:
    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        reclaimer.notice(ahead.now_ms, ahead.now())
        ahead.rest(await reclaimer.look(ahead.seen()))
        for _ in range(3):
            job_id = lost_job(queue)
            asked_at = ahead.now()
            ahead.by_s += 0.1
            reclaimer.notice(ahead.now_ms, asked_at, late_s=RENEWAL_S / 10)
            await reclaimer.look(ahead.seen())
            assert queue.places()["pending"] == [job_id]
            queue.purge()

    step(queue, steps)
    assert not [line for line in logs() if "jumped" in line]


def test_after_the_clock_jumped_back_leases_are_shortened_to_their_full_length(queue: Handle, ahead: Ahead) -> None:
    job_id: str = queue.enqueue({})
    queue.claim(timeout_ms=0)
    before_ms = int(time.time() * 1000) + 3_600_000
    queue.redis.zadd(
        queue.keys.leases, {job_id: before_ms + 3000}
    )  # a lease that was given before the clock jumped back

    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        reclaimer.notice(before_ms, ahead.now())
        ahead.rest(await reclaimer.look(ahead.seen(first_lease_end_ms=before_ms + 3000)))
        reclaimer.notice(ahead.now_ms, ahead.now())
        ahead.rest(await reclaimer.look(ahead.seen(first_lease_end_ms=before_ms + 3000)))
        await reclaimer.look(ahead.seen(first_lease_end_ms=before_ms + 3000))

    step(queue, steps)

    end = queue.redis.zscore(queue.keys.leases, job_id)
    assert before_ms - 3_600_000 + 3000 <= end <= time.time() * 1000 + 3000
    assert queue.places() == {"processing": [job_id]}


def test_it_reports_when_the_next_lease_ends(queue: Handle, ahead: Ahead) -> None:
    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        ahead.rest(await reclaimer.look(ahead.seen(first_lease_end_ms=None)))
        assert await reclaimer.look(ahead.seen(first_lease_end_ms=None)) is None
        now_ms = ahead.now_ms
        assert await reclaimer.look(seen(now_ms=now_ms, first_lease_end_ms=now_ms + 700)) == 0.7

    step(queue, steps)


def test_other_settings_apply_from_the_start(queue: Handle, make_queue: MakeQueue) -> None:
    longer = make_queue(visibility_ms=60_000)

    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        reclaimer.settings = longer.settings
        wait = await reclaimer.look(seen())
        assert wait is not None
        assert 10 < wait <= 20  # a third of the lease, not of the shorter one

    step(queue, steps)


def test_the_job_of_a_dead_worker_runs_again_soon_after_its_lease_has_ended(make_queue: MakeQueue, crew: Crew) -> None:
    queue = make_queue(visibility_ms=1000)
    queue.task(name="ok")(lambda: "ok")
    job_id = queue.enqueue({"task": "ok"})
    began = time.monotonic()
    assert queue.claim(timeout_ms=0)
    crew.start(queue)

    assert queue.result(job_id, 60) == "ok"
    assert 1 <= time.monotonic() - began < 9.5  # the routine sweep would come after ten seconds
    assert int(queue.fields(job_id)["attempts"]) >= 2  # more if its second lease has ended as well


def test_it_sweeps_only_when_a_lease_ends(queue: Handle, crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedq.background.reclaimer._ROUTINE_S", 600)
    queue.task(name="ok")(lambda: "ok")
    with queue.server.requests() as requests:
        crew.start(queue)
        until(lambda: asked(requests, queue, "reclaim"))  # the first sweep after the start
        queue.result(queue.enqueue({"task": "ok"}), 60)
        looks = len(asked(requests, queue, "promote"))
        # Checks are a second apart, and each may lead to a sweep.
        until(lambda: len(asked(requests, queue, "promote")) >= looks + 2)

    assert len(asked(requests, queue, "reclaim")) == 1


def test_a_claim_of_another_program_gets_a_lease_and_is_taken_back_when_that_program_dies(
    make_queue: MakeQueue, crew: Crew
) -> None:
    queue = make_queue(visibility_ms=1000)
    queue.task(name="ok")(lambda: "ok")
    job_id = queue.enqueue({"task": "ok"})
    queue.redis.zrem(queue.keys.wake, "1")
    assert queue.redis.lmove(queue.keys.pending, queue.keys.processing, "RIGHT", "LEFT") == job_id
    queue.redis.hset(queue.keys.job(job_id), mapping={"status": "processing", "claim_token": "theirs"})
    began = time.monotonic()
    crew.start(queue)

    assert queue.result(job_id, 60) == "ok"
    assert time.monotonic() - began >= 1, "it was taken back before its lease had ended"
    assert queue.stats()["adopted_total"] == 1


def test_results_deleted_early_are_logged_once_a_minute(
    make_queue: MakeQueue, logs: Logs, monkeypatch: pytest.MonkeyPatch
):
    passed = 0.0
    monkeypatch.setattr("schedq.background.reclaimer.monotonic", lambda: passed)
    queue = make_queue("mail", completed_history=100, completed_ttl=1800)
    kept = reclaim.Sweep(1, (), (), False, -1, trimmed=250, kept_ms=40_000, is_memory_high=False)
    warnings = Retention()

    for passed, sweep in (  # noqa: B007 - the time of the clock
        (0, replace(kept, trimmed=0)),
        (10, kept),
        (20, replace(kept, trimmed=1260)),
        (69, replace(kept, trimmed=1260)),
        (70, replace(kept, trimmed=1270, kept_ms=55_000)),
        (200, replace(kept, trimmed=1270)),
        (300, replace(kept, trimmed=1280, kept_ms=600_000)),
    ):
        warnings.notice(queue.settings, sweep)
    full = replace(kept, trimmed=5000, is_memory_high=True)
    warnings.notice(replace(queue.settings, completed_history=100_000), full)

    rest = "before completed_ttl (1800 s) has passed"
    limit = "the queue keeps 100 results (completed_history); raise that, or lower completed_ttl if results are not"
    assert logs() == [
        f"WARNING queue mail: results are deleted after 40 s, {rest}, 250 so far: {limit} needed for that long",
        f"WARNING queue mail: results are deleted after 55 s, {rest}, 1,270 so far: {limit} needed for that long",
        f"WARNING queue mail: results are deleted after 40 s, {rest}, 5,000 so far: Redis uses more than 80 % of"
        " maxmemory, so the queue keeps 1,000 results; raise maxmemory, or lower completed_ttl",
    ]


@pytest.mark.breaks("totals", because="histories were trimmed, what was counted was not")
def test_early_deletion_is_logged_and_trimming_continues_while_there_is_more(
    make_queue: MakeQueue, logs: Logs, monkeypatch: pytest.MonkeyPatch
):
    queue = make_queue(completed_history=10, min_keep=0, retry_for=0)
    for _ in range(700):
        queue.enqueue(1)
        attempt = queue.claim(0)
        queue.queue.settings = replace(queue.settings, completed_history=1000)
        queue.complete(attempt)
    queue.queue.settings = replace(queue.settings, completed_history=10)

    async def steps(reclaimer: Reclaimer, outage: Availability) -> None:
        reclaimer._rested_from -= 60
        await reclaimer.look(seen(first_lease_end_ms=None))

    step(queue, steps)

    assert len(queue.places()["completed"]) == 10
    (warning,) = logs()
    assert "690 so far: the queue keeps 10 results (completed_history)" in warning
