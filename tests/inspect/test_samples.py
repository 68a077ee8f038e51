"""How the queue has been doing: one sample every 10 s, whichever process takes it."""

from __future__ import annotations

import json
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


def test_only_the_newest_samples_are_kept(queue: Handle, clock: Clock):
    line = '{"at_ms":%d,"enqueued_total":%d}'
    old = [line % (clock.now_ms - 10_000 * n, n) for n in range(1, MOST_SAMPLES + 50)]
    queue.redis.rpush(queue.keys.samples, *old)

    take(queue)

    assert queue.redis.llen(queue.keys.samples) == MOST_SAMPLES
    assert instants(queue)[-1] == clock.now_ms


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


def test_json_in_redis_has_the_names_that_samples_have(queue: Handle):
    take(queue)

    assert set(json.loads(queue.redis.lindex(queue.keys.samples, 0))) == set(Sample.__slots__)
