"""How the queue has been doing: one sample every 10 s, whichever process takes it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from schedq import Discard, UsageError
from schedq.inspect import samples
from schedq.inspect.samples import MOST_SAMPLES, Sample, rate
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.servers import Server


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def hold(queue: Handle, promoter_id: str = "me") -> None:
    """Give a process the promoter lease, for longer than any test lasts."""
    queue.redis.set(queue.keys.promoter, promoter_id, px=3_600_000)


def take(queue: Handle, promoter_id: str = "me") -> float:
    """Let the promoter take a sample, if one is due."""
    hold(queue, promoter_id)
    return float(queue._ask(samples.take(queue.settings, promoter_id)))


def instants(queue: Handle) -> list[int]:
    return [sample.at_ms for sample in queue.inspector.samples()]


def test_a_sample_describes_the_queue(queue: Handle, clock: Clock):
    began = clock.now_ms
    queue.enqueue_many(range(3))
    queue.enqueue("later", delay=3600)
    clock.pass_time(2)
    done, failed = queue.claim(0), queue.claim(0)
    clock.pass_time(1)
    queue.complete(done)
    queue.fail(failed, Discard("no use"))

    take(queue)

    (sample,) = queue.inspector.samples()
    assert sample == Sample(
        at_ms=clock.now_ms,
        enqueued_total=4,
        completed_total=1,
        failed_total=1,
        retried_total=0,
        reclaimed_total=0,
        pending_depth=1,
        delayed_depth=1,
        processing_depth=0,
        failed_depth=1,
        next_due_ms=began + 3_600_000,
        overdue_ms=0,
        oldest_pending_ms=3000,
        workers=0,
        measured=1,
        lateness_p50_ms=2000,
        lateness_p99_ms=2000,
        run_p50_ms=1000,
        run_p99_ms=1000,
    )


def test_a_sample_says_by_how_much_the_promoter_is_behind(queue: Handle, clock: Clock):
    queue.enqueue(1, delay=60)
    clock.pass_time(75)

    take(queue)

    assert queue.inspector.samples()[0].overdue_ms == 15_000


def test_one_is_taken_every_ten_seconds(queue: Handle, clock: Clock):
    began = clock.now_ms
    waits = []
    for _ in range(41):
        queue.enqueue(1)
        waits.append(take(queue))
        clock.pass_time(1)

    assert [at - began for at in instants(queue)] == [0, 10_000, 20_000, 30_000, 40_000]
    assert waits[:3] == [10.0, 9.0, 8.0]


def test_another_promoter_neither_doubles_nor_bends_the_row(queue: Handle, clock: Clock):
    began = clock.now_ms
    for second in range(31):
        queue.enqueue(1)
        take(queue, f"promoter-{second // 7}")
        clock.pass_time(1)

    assert [at - began for at in instants(queue)] == [0, 10_000, 20_000, 30_000]


def test_a_process_without_the_promoter_lease_takes_no_sample(queue: Handle):
    hold(queue, "another")

    queue._ask(samples.take(queue.settings, "me"))

    assert queue.inspector.samples() == []


def test_of_a_period_without_changes_the_first_and_last_sample_are_kept(queue: Handle, clock: Clock):
    began = clock.now_ms
    for _ in range(50):
        take(queue)
        clock.pass_time(10)
    queue.enqueue(1)
    take(queue)

    assert [at - began for at in instants(queue)] == [0, 490_000, 500_000]


def keep_busy(queue: Handle, clock: Clock, hours: float) -> None:
    """Take the samples of a queue that never rests. Its totals are so large that its lines are as long as busy ones."""
    for n in range(int(hours * 360)):
        counts = {f"{name}_total": 300_000_000_000_000 + 4321 * n for name in ("enqueued", "completed")}
        counts |= {f"{name}_total": 100_000_000_000_000 + 12 * n for name in ("failed", "retried", "reclaimed")}
        queue.redis.hset(queue.keys.stats, mapping=counts)
        take(queue)
        clock.pass_time(10)


@pytest.mark.breaks("totals", because="the test writes them")
def test_a_busy_queue_has_samples_of_six_hours_in_100_kb(queue: Handle, clock: Clock):
    queue.enqueue(1, delay=86_400)
    keep_busy(queue, clock, 7)

    found = instants(queue)
    recent, old = found[-360:], found[:-360]
    assert {later - before for before, later in pairwise(recent)} == {10_000}
    assert len({at // 60_000 for at in old}) == len(old) == 300
    assert found[-1] - found[0] >= 6 * 3_600_000 - 60_000
    assert len(queue.redis.lindex(queue.keys.samples, 0)) > 125
    assert queue.redis.memory_usage(queue.keys.samples, samples=0) <= 100_000


def test_the_worst_times_of_a_minute_are_kept(queue: Handle, clock: Clock):
    clock.pass_time(60 - clock.now_ms / 1000 % 60)
    queue.enqueue(1)
    for place in range(6 * 70):
        clock.pass_time(5)
        if place == 7:  # 75 s after the enqueue
            queue.complete(queue.claim(0))
        if place == 9:
            queue.complete(queue.claim(queue.enqueue(2) and 0))
        clock.pass_time(5)
        queue.redis.hincrby(queue.keys.stats, "retried_total", 1)
        take(queue)

    old = [sample for sample in queue.inspector.samples() if sample.at_ms < clock.now_ms - 3_600_000]
    busy = [sample for sample in old if sample.measured]
    assert [(each.lateness_p50_ms, each.lateness_p99_ms, each.run_p99_ms) for each in busy] == [(0, 75_000, 0)]
    assert max(sample.oldest_pending_ms for sample in old) == 70_000


def old_line(at_ms: int, enqueued: int) -> str:
    """A sample as the release before wrote it."""
    facts: dict[str, Any] = dict.fromkeys(Sample.__slots__, 7)
    return json.dumps(
        facts | {"at_ms": at_ms, "enqueued_total": enqueued, "lateness_p50_ms": None}, separators=(",", ":")
    )


def test_samples_of_the_release_before_are_read_and_kept_by_minutes(queue: Handle, clock: Clock):
    """Its workers may also take turns with new ones."""
    began = clock.now_ms
    queue.redis.rpush(queue.keys.samples, *(old_line(began - 10_000 * n, 3000 - n) for n in range(1, 2161)))

    take(queue)

    found = queue.inspector.samples()
    assert [sample.at_ms for sample in found[-360:]] == [began - 10_000 * n for n in range(359, -1, -1)]
    assert began - 21_600_000 <= found[0].at_ms < began - 21_400_000
    assert 655 <= len(found) <= 661
    assert [(each.enqueued_total, each.run_p99_ms, each.lateness_p50_ms) for each in found[-3:-1]] == [
        (2998, 7, None),
        (2999, 7, None),
    ]
    clock.pass_time(10)
    queue.redis.lpush(queue.keys.samples, old_line(clock.now_ms, 5000))
    assert take(queue) == 10.0
    assert instants(queue)[-2:] == [began, clock.now_ms]


def test_after_the_clock_went_back_samples_stay_in_order(queue: Handle, clock: Clock):
    for _ in range(10):
        queue.enqueue(1)
        take(queue)
        clock.pass_time(10)
    clock.pass_time(-55)
    queue.enqueue(1)

    take(queue)
    clock.pass_time(10)
    take(queue)

    found = instants(queue)
    assert found == sorted(set(found))
    assert found[-1] == clock.now_ms or found[-1] > clock.now_ms - 10_000


def test_with_full_memory_no_sample_is_taken_and_no_error_raised(make_queue: MakeQueue, clock: Clock):
    with Server(maxmemory_policy="noeviction") as server:
        queue = make_queue(at=server, clock=clock)
        take(queue)
        clock.pass_time(10)
        queue.enqueue(1)
        hold(queue)
        queue.redis.set("ballast", "x" * 1_000_000)
        queue.redis.config_set("maxmemory", queue.redis.info("memory")["used_memory"] - 500_000)

        assert queue._ask(samples.take(queue.settings, "me")) == 10.0

        queue.redis.config_set("maxmemory", 0)
        assert instants(queue) == [clock.now_ms - 10_000]
        queue.forget()
        queue.close()


def test_what_others_wrote_there_is_passed_over(queue: Handle, clock: Clock):
    queue.redis.lpush(queue.keys.samples, "{}", "no json", "[" * 100_000, '{"at_ms":"x"}', '"text"')

    take(queue)

    assert instants(queue) == [clock.now_ms]


@pytest.mark.parametrize("limit", [0, -1, MOST_SAMPLES + 1, True, "9", 1.5])
def test_a_limit_that_makes_no_sense_is_refused(queue: Handle, limit: Any):
    with pytest.raises(UsageError, match="limit"):
        queue.inspector.samples(limit)


# -- rates


def sample(at_s: float, completed: int) -> Sample:
    facts: dict[str, Any] = dict.fromkeys(Sample.__slots__, 0)
    return Sample(**facts | {"at_ms": int(at_s * 1000), "completed_total": completed})


def totals(completed: int) -> dict[str, int]:
    return {"enqueued_total": 0, "failed_total": 0, "retried_total": 0, "completed_total": completed}


def test_a_rate_is_what_happened_since_then(queue: Handle):
    row = [sample(100, 0), sample(110, 500), sample(120, 1500)]

    found = rate(row, totals(2000), 125_000, 10)

    # Half of the 1,000 between 110 and 120 s, and the 500 after them.
    assert (found.seconds, found.completed) == (10, 100)


def test_a_rate_reaches_back_as_far_as_the_samples():
    found = rate([sample(100, 0)], totals(300), 130_000, 600)

    assert (found.seconds, found.completed) == (30, 10)


def test_there_is_no_rate_without_samples():
    assert rate([], totals(300), 130_000, 10) is None


def test_reset_totals_give_no_negative_rate():
    assert rate([sample(100, 5000), sample(110, 5000)], totals(3), 120_000, 60).completed == 0
