"""What gates do: limits, turns between keys, order, and what happens if another service refuses a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from schedq import Discard, Fixed, Queue, Rate, RateLimited, UsageError, current_job
from schedq.queue.queue import all_queues
from schedq.testing import eager, queue_tester, run_due
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle

HOUR = 3600


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


@pytest.fixture
def no_other_queues() -> Iterator[None]:
    """A tester runs the queues of all modules; those of other tests would make it jump too."""
    others = dict(all_queues)
    all_queues.clear()
    yield
    all_queues.update(others)


def task_of(queue: Handle, **options: Any) -> Any:
    """A task whose only argument is the key of its jobs in the gate `api`."""
    return queue.task(name="sync", key="customer", **({"gate": "api"} | options))(lambda customer: None)


def claimed(queue: Handle) -> list[Any]:
    """All jobs that may start now."""
    found = []
    while (job := queue.claim(0)) is not None:
        found.append(job)
    return found


def keys(jobs: list[Any]) -> list[str]:
    return [job.key for job in jobs]


# -- how many run


def test_no_more_jobs_of_a_gate_run_than_it_says(queue: Handle) -> None:
    queue.gate("api", concurrency=2)
    one, other = (queue.task(name=name, gate="api")(lambda: None) for name in ("one", "other"))
    ids = [task.enqueue().id for task in (one, other, one, other)]
    plain = queue.enqueue("no gate")

    found = claimed(queue)
    assert {job.id for job in found} == {*ids[:2], plain}
    queue.complete(next(job for job in found if job.id == ids[1]))
    assert [job.id for job in claimed(queue)] == [ids[2]]


@pytest.mark.parametrize("end", ["complete", "fail", "release", "snooze", "lose the lease"])
def test_a_place_is_free_when_its_job_has_ended(queue: Handle, clock: Clock, end: str) -> None:
    task_of(queue, gate=queue.gate("api", key_concurrency=1)).enqueue_many([((7,), {}), ((7,), {})])
    (job,) = claimed(queue)
    if end == "lose the lease":
        clock.pass_time(60)
        queue.reclaim_stuck()
    else:
        getattr(queue, end)(job, *([60] if end == "snooze" else []))
    assert len(claimed(queue)) == 1


def test_each_key_has_a_limit_of_its_own(queue: Handle) -> None:
    sync = task_of(queue, gate=queue.gate("api", concurrency=4, key_concurrency=2))
    sync.enqueue_many([((key,), {}) for key in "aaaabbbbcccc"])
    found = claimed(queue)
    assert len(found) == 4
    assert max(Counter(keys(found)).values()) <= 2


def test_limits_of_a_task_alone_hold_for_it_alone(queue: Handle) -> None:
    one = queue.task(name="one", concurrency=1)(lambda: None)
    other = queue.task(name="other")(lambda: None)
    for task in (one, one, other, other):
        task.enqueue()
    assert Counter(job.payload["task"] for job in claimed(queue)) == {"one": 1, "other": 2}


# -- turns and order


def test_keys_take_turns_however_many_jobs_one_of_them_has(queue: Handle) -> None:
    sync = task_of(queue)
    sync.enqueue_many([(("flood",), {})] * 20)
    sync.enqueue_many([((key,), {}) for key in ("a", "b", "a", "b")])
    started = keys([queue.claim(0) for _ in range(8)])
    assert Counter(started) == {"flood": 4, "a": 2, "b": 2}
    assert {"a", "b"} <= set(started[:4])


def test_gates_take_turns_by_weight(queue: Handle) -> None:
    queue.gate("heavy", weight=3)
    queue.gate("light")
    for gate in ("heavy", "light"):
        queue.enqueue_many(range(20), gate=gate)
    started = Counter(queue.claim(0).gate for _ in range(16))
    assert 11 <= started["heavy"] <= 13


def test_jobs_of_a_key_run_in_order_and_a_retry_keeps_its_key_waiting(queue: Handle, clock: Clock) -> None:
    ledger, ran = queue.gate("ledger", serial=True), list[tuple[str, int]]()

    @queue.task(gate=ledger, key="account", backoff=Fixed(60))
    def book(account: str, number: int) -> None:
        ran.append((account, number))
        if (account, number) == ("a", 1) and current_job().attempts == 1:
            raise ConnectionError

    book.enqueue_many([((account, number), {}) for number in range(3) for account in "ab"])
    run_due(queue.queue)
    assert [number for account, number in ran if account == "a"] == [0, 1]
    assert [number for account, number in ran if account == "b"] == [0, 1, 2]
    clock.pass_time(61)
    run_due(queue.queue)
    assert [number for account, number in ran if account == "a"] == [0, 1, 1, 2]


def test_a_delayed_job_that_is_run_now_takes_its_place_behind_those_that_wait(queue: Handle) -> None:
    queue.gate("api", serial=True)
    later = queue.enqueue("later", gate="api", key="7", delay=HOUR)
    waits = queue.enqueue("waits", gate="api", key="7")

    assert queue.reschedule(later, delay=0)
    (running,) = claimed(queue)
    last = queue.enqueue("last", gate="api", key="7")

    started = [running.id]
    queue.complete(running)
    for _ in range(2):
        (job,) = claimed(queue)
        started.append(job.id)
        queue.complete(job)
    assert started == [waits, later, last]


@pytest.mark.parametrize("was_serial", [True, False])
def test_order_may_be_switched_on_and_off_while_jobs_run(queue: Handle, clock: Clock, was_serial: bool) -> None:
    queue.gate("api", serial=was_serial)
    task_of(queue, backoff=Fixed(5, jitter=0))
    for number in range(4):
        for key in "ab":
            queue.enqueue({"task": "sync", "args": [key, number]}, gate="api", key=key)
    first, second = claimed(queue)[:2] if was_serial else (queue.claim(0), queue.claim(0))
    assert (first.key, second.key) == ("a", "b")
    queue.fail(first, "again")

    queue.gates.set("api", serial=not was_serial)
    order: dict[str, list[int]] = {"a": [], "b": []}
    running = [second]
    for second_now in range(12):
        queue.promote_due()
        jobs = claimed(queue)
        running += jobs
        if not was_serial:
            assert len({job.key for job in running}) == len(running)
        for job in jobs:
            assert job.id != first.id or second_now >= 5
            order[job.key].append(job.payload["args"][1])
        for job in running:
            assert queue.complete(job)
        running = []
        clock.pass_time(1)

    assert order == {"a": [0, 1, 2, 3] if was_serial else [1, 2, 3, 0], "b": [1, 2, 3]}


def test_a_limit_for_keys_of_a_serial_gate_is_refused(queue: Handle) -> None:
    queue.gate("api", serial=True)
    queue.enqueue("first", gate="api", key="7")

    with pytest.raises(UsageError, match=r"gate api is serial.*serial=False \(--no-serial\)"):
        queue.gates.set("api", key_concurrency=5)
    assert not queue.gates.get("api").set_by_operator

    assert queue.gates.set("api", key_concurrency=5, serial=False)
    assert queue.gates.set("api", key_concurrency=6)
    assert queue.gates.set("api", serial=True)
    assert queue.gates.set("api", key_concurrency=1)


def test_a_job_that_fails_for_good_lets_the_next_one_of_its_key_start(queue: Handle) -> None:
    ran = []

    @queue.task(gate=queue.gate("ledger", serial=True), key="account")
    def book(account: str, number: int) -> None:
        ran.append(number)
        if number == 0:
            raise Discard

    book.enqueue_many([(("a", number), {}) for number in range(3)])
    run_due(queue.queue)
    assert ran == [0, 1, 2]


# -- rates


def test_a_rate_spreads_the_starts(queue: Handle, clock: Clock) -> None:
    started, began = list[float](), clock.now

    @queue.task(rate=Rate(100, per=60))
    def call(number: int) -> None:
        started.append(clock.now - began)

    call.enqueue_many([((number,), {}) for number in range(10)])
    for _ in range(60):
        run_due(queue.queue)
        clock.pass_time(0.1)
    assert len(started) == 10
    assert started[-1] == pytest.approx(5.4, abs=0.11)


def test_several_rates_must_all_allow_a_start_and_each_key_has_its_own(queue: Handle, clock: Clock) -> None:
    limits = {"rate": [Rate(60, per=60), Rate(100, per=HOUR, burst=50)], "key_rate": Rate(1, per=30)}
    ran = list[str]()
    sync = queue.task(name="sync", key="customer", **limits)(lambda customer: ran.append(customer))
    sync.enqueue_many([((key,), {}) for key in "aaabbbccc"])
    for _ in range(60):
        run_due(queue.queue)
        clock.pass_time(1)
    assert Counter(ran) == {"a": 2, "b": 2, "c": 2}


@pytest.mark.usefixtures("no_other_queues")
def test_a_day_of_a_rate_passes_in_a_test() -> None:
    queue, started = Queue("calls"), list[float]()
    with queue_tester() as tester:

        @queue.task(rate=Rate(10, per=HOUR))
        def call(number: int) -> None:
            started.append(tester.clock())

        call.enqueue_many([((number,), {}) for number in range(300)])
        assert tester.fast_forward(24 * HOUR) == len(started) == 241  # one at once, then one every six minutes
        assert all(later - first >= HOUR - 0.001 for first, later in zip(started, started[10:], strict=False))
        assert tester.fast_forward() == 59
        assert started[-1] - started[0] == pytest.approx(299 * HOUR / 10, abs=1)


@pytest.mark.usefixtures("no_other_queues")
def test_jumps_end_at_a_key_whose_task_is_paused() -> None:
    queue = Queue("calls")
    with queue_tester() as tester:
        queue.task(name="call", rate=Rate(1, per=HOUR), key="customer")(lambda customer: None)
        queue.enqueue_many([{"task": "call", "args": [7]}] * 2, gate="call", key="7")
        assert tester.run_due() == 1
        queue.pause(task="call")
        before = tester.clock()
        assert tester.fast_forward() == 0
        assert tester.clock() - before < 2 * HOUR
        queue.resume(task="call")
        assert tester.fast_forward() == 1


@pytest.mark.usefixtures("no_other_queues")
def test_too_many_starts_for_the_jumps_of_a_test_name_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedq.testing.tester._MOST_JUMPS", 5)
    queue = Queue("calls")
    with queue_tester() as tester:
        call = queue.task(name="call", rate=Rate(1, per=HOUR))(lambda: None)
        call.enqueue_many([((), {})] * 9)
        with pytest.raises(UsageError, match="wait for the limits of gate call, and each start is a jump; say how far"):
            tester.fast_forward()


def test_in_eager_mode_no_limit_holds_a_job() -> None:
    queue = Queue("calls")

    @queue.task(rate=Rate(1, per=HOUR), key="customer")
    def call(customer: int) -> str:
        return f"{current_job().gate} {current_job().key}"

    with eager():
        assert [call.enqueue(customer).result(0) for customer in (7, 7, 8)] == ["call 7", "call 7", "call 8"]


# -- refused by another service


@pytest.mark.parametrize(("scope", "others"), [("key", ["b", "b"]), ("gate", [])])
def test_a_rate_limited_key_or_gate_waits_and_no_attempt_is_spent(
    queue: Handle, clock: Clock, scope: Any, others: list[str]
) -> None:
    refusals, ran = iter([True]), list[tuple[str, int]]()

    @queue.task(gate=queue.gate("api", key_concurrency=1), key="customer", max_attempts=1)
    def sync(customer: str, number: int) -> None:
        if customer == "a" and next(refusals, False):
            raise RateLimited(after=30, scope=scope)
        ran.append((customer, current_job().attempts))

    sync.enqueue_many([((customer, number), {}) for number in range(2) for customer in "ab"])
    run_due(queue.queue)
    assert [customer for customer, _ in ran] == others
    clock.pass_time(29)
    run_due(queue.queue)
    assert len(ran) == len(others)
    clock.pass_time(1.1)
    run_due(queue.queue)
    assert sorted(ran) == [("a", 1), ("a", 1), ("b", 1), ("b", 1)]


def test_no_ready_key_of_a_rate_limited_gate_starts_although_the_limited_key_waits_for_its_own_rate(
    queue: Handle, clock: Clock
) -> None:
    refusals, ran = iter([True]), list[str]()

    @queue.task(gate=queue.gate("api", key_rate=Rate(1, per=1)), key="customer")
    def sync(customer: str) -> None:
        if customer == "a" and next(refusals, False):
            raise RateLimited(after=30, scope="gate")
        ran.append(customer)

    sync.enqueue_many([((customer,), {}) for customer in "abc"])
    run_due(queue.queue)
    clock.pass_time(29)
    run_due(queue.queue)
    assert ran == []
    clock.pass_time(1.1)
    run_due(queue.queue)
    assert sorted(ran) == ["a", "b", "c"]


def test_a_wait_that_the_service_does_not_name_doubles_each_time_in_a_row(queue: Handle, clock: Clock) -> None:
    tried, refusals = list[float](), iter([True] * 8 + [False, True])

    @queue.task(gate="api", key="customer")
    def sync(customer: str) -> None:
        tried.append(clock.now)
        if next(refusals, False):
            raise RateLimited

    sync.enqueue("a")
    while len(tried) < 9:
        run_due(queue.queue)
        clock.pass_time(0.5)
    waits = [later - first for first, later in pairwise(tried)]
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60], abs=0.51)

    sync.enqueue("a")
    for _ in range(4):
        run_due(queue.queue)
        clock.pass_time(0.5)
    assert len(tried) == 11


def test_without_a_gate_a_rate_limited_job_is_put_off(queue: Handle, clock: Clock) -> None:
    refusals = iter([True])

    @queue.task(max_attempts=1)
    def call() -> str:
        if next(refusals, False):
            raise RateLimited(after=30)
        return "done"

    job = call.enqueue()
    run_due(queue.queue)
    assert queue.places() == {"delayed": [job.id]}
    clock.pass_time(31)
    run_due(queue.queue)
    assert queue.get_job(job.id).result == "done"
