"""What workers count of each task is added up in Redis, once, by hour and by five minutes, in bounded memory."""

from __future__ import annotations

import pytest

from schedq import UsageError
from schedq.inspect.task_stats import TaskStats
from schedq.model.task_stats import Counts, Histogram, bin_of
from schedq.transitions import count_tasks, heartbeat
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle

ONE = "1 0 0 0 20|20 3|9:1|4:1"


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def count(queue: Handle, number: int, counted: dict[str, str], worker: str = "w-1") -> bool:
    """A worker reports after a heartbeat; whether it was added."""
    beat = heartbeat.beat(queue.settings, worker, {"pid": 1})
    _, added = queue.execute([beat, count_tasks.count_tasks(queue.settings, worker, number, counted)])
    return bool(added)


def look(queue: Handle) -> TaskStats:
    found: TaskStats = queue.inspector.task_stats()
    return found


def test_reports_of_all_workers_are_added_up(queue: Handle):
    count(queue, 1, {"send": "3 1 2 0 600|400 90|10:4 17:2|0:6", "": ONE})
    count(queue, 1, {"send": "1 0 0 1 50|50 120|11:2|0:1 13:1"}, worker="w-2")

    ever = look(queue).ever

    assert ever.tasks["send"] == Counts(
        4, 1, 2, 1, 650, 400, 120, Histogram({10: 4, 11: 2, 17: 2}), Histogram({0: 7, 13: 1})
    )
    assert ever.tasks[""] == Counts(1, 0, 0, 0, 20, 20, 3, Histogram({9: 1}), Histogram({4: 1}))
    assert ever.all.attempts == 9


def test_a_report_whose_reply_was_lost_is_not_added_again(queue: Handle):
    assert count(queue, 1, {"send": ONE})
    assert count(queue, 2, {"send": ONE})

    assert not count(queue, 1, {"send": ONE})
    assert not count(queue, 2, {"send": ONE})

    assert look(queue).ever.tasks["send"].completed == 2


def test_counts_are_kept_by_five_minutes_for_two_hours_and_by_hour_for_two_days(queue: Handle, clock: Clock):
    for number in range(1, 61):
        count(queue, number, {"send": ONE})
        clock.pass_time(3600)

    found = look(queue)

    assert found.ever.tasks["send"].completed == 60
    assert found.within(7200).tasks["send"].completed == 2
    day = found.history(24 * 3600)
    assert {part.seconds for part in day} == {3600}
    assert [part.tasks["send"].completed for part in day if part.tasks] == [1] * 24
    assert len(queue.redis.hkeys(queue.keys.task_stats)) <= 1 + 48 + 2


def test_the_last_minutes_begin_with_full_five_minutes(queue: Handle, clock: Clock):
    clock.pass_time(300 - clock.now_ms / 1000 % 300)  # a new five minutes
    began = clock.now_ms
    count(queue, 1, {"send": ONE})
    clock.pass_time(299)
    count(queue, 2, {"send": ONE})
    clock.pass_time(302)

    lately = look(queue).within(600)

    assert (lately.since_ms, lately.tasks["send"].completed) == (began, 2)
    assert look(queue).within(300).tasks == {}


@pytest.mark.parametrize("period", [0, 48 * 3600 + 1, -1])
def test_a_period_that_is_not_kept_is_refused(queue: Handle, period: float):
    with pytest.raises(UsageError, match=r"period"):
        look(queue).within(period)


def test_memory_stays_bounded_however_many_tasks_there_are(queue: Handle, clock: Clock):
    """The oldest times go first; tasks beyond the first 300 share one name."""
    number = 0
    for _ in range(4):
        for first in range(0, 400, 50):
            number += 1
            count(queue, number, {f"task {n}": ONE for n in range(first, first + 50)})
        clock.pass_time(3600)

    found = look(queue)

    assert len(queue.redis.hkeys(queue.keys.task_stats)) <= 1000
    assert found.ever.tasks["task 299"].completed == 4
    assert found.ever.tasks["(other)"].completed == 400
    assert "task 300" not in found.ever.tasks
    assert queue.redis.memory_usage(queue.keys.task_stats, samples=0) < 150_000


def test_times_that_the_clock_has_not_reached_are_forgotten(queue: Handle, clock: Clock):
    """Redis's clock went back."""
    count(queue, 1, {"send": ONE})
    clock.pass_time(-7200)
    count(queue, 2, {"send": ONE})

    found = look(queue)

    assert found.within(7200).tasks["send"].completed == 1
    assert found.ever.tasks["send"].completed == 2


@pytest.mark.parametrize("damage", ["", "x", "1 2 3", "nan 1|1 1|1:x|", "1 0 0 0 20|20 3|9:1|4:1|5", "-1|-2|3:-4|"])
def test_a_damaged_figure_is_replaced_by_the_next_report(queue: Handle, damage: str):
    count(queue, 1, {"send": ONE})
    queue.redis.hset(queue.keys.task_stats, "t:send", damage)
    assert look(queue).ever.tasks["send"].attempts < 10

    count(queue, 2, {"send": ONE})

    assert look(queue).ever.tasks["send"] == Counts.from_text(ONE)


def test_names_of_other_programs_are_passed_over(queue: Handle):
    count(queue, 1, {"send": ONE})
    queue.redis.hset(queue.keys.task_stats, mapping={"h" + "9" * 5000 + ":send": ONE, "hx:send": ONE, "": "", "m": ONE})

    assert look(queue).within(3600).tasks == look(queue).ever.tasks == {"send": Counts.from_text(ONE)}


def test_a_histogram_tells_quantiles_within_its_bins():
    found = Histogram()
    for ms in range(1, 1001):
        found += Histogram({bin_of(ms): 1})

    for share in (0.01, 0.5, 0.9, 0.99, 1):
        assert found.quantile_ms(share) == pytest.approx(1000 * share, rel=0.42)
    assert Histogram().quantile_ms(0.5) is None
    assert (Histogram({0: 3}).quantile_ms(0.5) or 0) < 1


@pytest.mark.parametrize("ms", [0, 1, 2, 3, 10, 999, 10**6, 10**9])
def test_a_bin_counts_the_durations_between_its_edges(ms: int):
    low, high = Histogram.edges(bin_of(ms))

    assert low <= ms * (1 + 1e-9)
    assert ms < high
