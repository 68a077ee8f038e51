"""Gates as users define them: on tasks, queues and single jobs; what is refused, and what a job stores."""

from __future__ import annotations

import enum
import pickle
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from schedq import ClaimedJob, Discard, Gate, NewJob, Queue, Rate, RateLimited, Retry, Snooze, UsageError
from schedq.inspect.export import exported
from schedq.model import outcome
from schedq.model.gates import definition
from schedq.testing import as_job
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


class Plan(enum.Enum):
    FREE = "free"
    PAID = "paid"


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def stored(queue: Handle, job_id: str) -> tuple[str | None, str | None]:
    """The gate and the key that a job stores."""
    fields = queue.fields(job_id)
    return fields.get("gate"), fields.get("key")


def defined(queue: Handle) -> dict[str, str]:
    return dict(queue.settings.gates)


# -- definitions


def test_a_gate_is_defined_once_for_several_tasks(queue: Handle) -> None:
    api = queue.gate("api", concurrency=40, rate=Rate(500, per=60), key_concurrency=2)
    one, other = (queue.task(name=name, gate=gate)(lambda: None) for name, gate in (("one", api), ("other", "api")))

    assert defined(queue) == {"api": definition(api)}
    assert queue.gate("api", concurrency=40, rate=Rate(500, per=60), key_concurrency=2) == api
    assert [stored(queue, task.enqueue().id) for task in (one, other)] == [("api", None)] * 2
    with pytest.raises(UsageError, match="gate 'api' is defined already with other limits"):
        queue.gate("api", concurrency=41)


def test_limits_of_a_task_are_a_gate_of_its_name(queue: Handle) -> None:
    @queue.task(concurrency=2, rate=Rate(10, per=1), key_concurrency=1, key="customer")
    def sync(customer: int) -> None:
        """Only enqueued."""

    assert defined(queue) == {"sync": '{"concurrency":2,"rate":[[10,1000,1]],"key_concurrency":1}'}
    assert stored(queue, sync.enqueue(7).id) == ("sync", "7")


def test_jobs_of_a_task_alone_may_run_in_order(queue: Handle) -> None:
    book = queue.task(name="book", serial=True, key="account")(lambda account: None)
    assert stored(queue, book.enqueue("a").id) == ("book", "a")
    assert defined(queue) == {"book": '{"serial":true}'}
    with pytest.raises(UsageError, match="leave out key_concurrency=2"):
        queue.task(name="other", serial=True, key_concurrency=2)(lambda: None)


def test_a_task_may_name_a_gate_that_is_defined_elsewhere(queue: Handle) -> None:
    task = queue.task(name="sync", gate="api")(lambda: None)
    assert stored(queue, task.enqueue().id) == ("api", None)
    assert defined(queue) == {}


def test_a_queue_has_limits_of_its_own(make_queue: MakeQueue) -> None:
    limited = make_queue(concurrency=200, rate=Rate(1000, per=1))
    assert defined(limited) == {"": '{"concurrency":200,"rate":[[1000,1000,25]]}'}
    with pytest.raises(UsageError, match="^concurrency must be a whole number of 1 to"):
        Queue("work", concurrency=0)
    with pytest.raises(UsageError, match="^rate must be a Rate or a list of them"):
        Queue("work", rate="10/s")  # type: ignore[arg-type]


def test_a_gate_of_another_queue_is_refused(queue: Handle, make_queue: MakeQueue) -> None:
    other = make_queue()
    api = other.gate("api", concurrency=2)
    with pytest.raises(UsageError, match="task 'sync': gate 'api' belongs to another queue"):
        queue.task(name="sync", gate=api)(lambda: None)
    with pytest.raises(UsageError, match="gate 'api' belongs to another queue"):
        queue.enqueue(1, gate=api)
    assert defined(queue) == {}


def test_a_task_registered_with_two_queues_has_its_limits_in_both(queue: Handle, make_queue: MakeQueue) -> None:
    other = make_queue()
    sync = queue.task(name="sync", concurrency=2, key="customer")(lambda customer: None)
    there = other.register(sync)
    assert defined(other) == defined(queue) == {"sync": '{"concurrency":2}'}
    assert stored(other, there.enqueue(7).id) == ("sync", "7")
    assert stored(other, other.task(name="free", gate="api")(sync).enqueue(7).id) == ("api", "7")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"key": "customer"}, "task 'sync': key='customer' needs a gate"),
        ({"gate": "api", "key": "shop"}, "task 'sync': it has no parameter 'shop'; its parameters are customer"),
        ({"gate": "api", "key": 42}, "key must be the name of a parameter or a function of the arguments, got 42"),
        ({"gate": "api", "concurrency": 2, "key_rate": Rate(1, 1)}, "not both: a job has one gate"),
        ({"gate": "a b"}, "task 'sync': gate name 'a b' must be 1 to 48 characters"),
        ({"concurrency": 0}, "task 'sync': gate 'sync': concurrency must be a whole number of 1 to"),
        ({"concurrency": 2, "name": "bills: send"}, "so give name=, or gate=queue.gate(...)"),
    ],
)
def test_a_task_with_an_invalid_gate_is_refused(queue: Handle, options: dict[str, Any], error: str) -> None:
    def sync(customer: int) -> None:
        """Never registered."""

    with pytest.raises(UsageError) as refused:
        queue.task(**options)(sync)
    assert error in str(refused.value)
    assert defined(queue) == {}


# -- keys


@pytest.mark.parametrize(
    ("key", "call", "text"),
    [
        ("customer", (7,), "7"),
        ("page", (7,), "1"),
        ("page", (7, 3), "3"),
        (lambda customer, page=1: f"{customer}/{page}", (7, 2), "7/2"),
        (lambda customer, page=1: None, (7,), None),
        ("customer", (None,), None),
        ("customer", ("",), None),
    ],
)
def test_the_key_of_a_call_is_a_parameter_or_a_function(queue: Handle, key: Any, call: Any, text: str | None) -> None:
    sync = queue.task(name="sync", gate="api", key=key)(lambda customer, page=1: None)
    assert stored(queue, sync.enqueue(*call).id) == ("api", text)


def test_a_key_is_compared_as_it_is_stored(queue: Handle) -> None:
    @queue.task(gate="api", key="plan")
    def bill(plan: Plan = Plan.FREE, order: uuid.UUID | None = None) -> None:
        """Only enqueued."""

    @queue.task(gate="api", key="order")
    def send(order: uuid.UUID) -> None:
        """Only enqueued."""

    order = uuid.uuid4()
    assert stored(queue, bill.enqueue().id) == ("api", "free")
    assert stored(queue, send.enqueue(order).id) == ("api", str(order))


@pytest.mark.parametrize("customer", [True, 1.5, "a b", "x" * 129])
def test_a_call_with_an_invalid_key_is_refused(queue: Handle, customer: object) -> None:
    sync = queue.task(name="sync", gate="api", key="customer")(lambda customer: None)
    with pytest.raises(UsageError, match="task 'sync': a key must be"):
        sync.enqueue(customer)
    assert queue.places() == {}


def test_options_of_a_call_give_another_key_or_gate(queue: Handle) -> None:
    sync = queue.task(name="sync", gate="api", key="customer")(lambda customer: None)
    assert stored(queue, sync.options(key="vip-7").enqueue(7).id) == ("api", "vip-7")
    assert stored(queue, sync.options(key=9).options(max_attempts=2).enqueue(7).id) == ("api", "9")
    assert stored(queue, sync.options(key="").enqueue(7).id) == ("api", None)
    assert stored(queue, sync.options(gate="slow").enqueue(7).id) == ("slow", "7")
    assert stored(queue, sync.enqueue(7).id) == ("api", "7")
    with pytest.raises(UsageError, match="task 'sync': a key must be a text or a whole number"):
        sync.options(key=True)
    plain = queue.task(name="plain")(lambda: None)
    with pytest.raises(UsageError, match="task 'plain': key='a' needs a gate"):
        plain.options(key="a")
    assert stored(queue, plain.options(gate="api", key="a").enqueue().id) == ("api", "a")


def test_many_calls_have_keys_of_their_own(queue: Handle) -> None:
    sync = queue.task(name="sync", gate="api", key="customer")(lambda customer: None)
    jobs = sync.enqueue_many([((7,), {}), sync.with_args(8), sync.options(key="vip").with_args(9)])
    assert [stored(queue, job.id)[1] for job in jobs] == ["7", "8", "vip"]
    jobs = sync.options(key="one").enqueue_many([((7,), {}), ((8,), {})])
    assert [stored(queue, job.id)[1] for job in jobs] == ["one", "one"]


def test_a_payload_has_the_gate_and_the_key_that_are_given(queue: Handle) -> None:
    api = queue.gate("api", concurrency=2)
    assert stored(queue, queue.enqueue({"n": 1}, gate=api, key=42)) == ("api", "42")
    assert stored(queue, queue.enqueue({"n": 1}, gate="api", key="")) == ("api", None)
    jobs = [NewJob(1, gate="api", key="a"), NewJob(2, key="b"), 3]
    ids = queue.enqueue_many(jobs, gate="slow")
    assert [stored(queue, job_id) for job_id in ids] == [("api", "a"), ("slow", "b"), ("slow", None)]
    with pytest.raises(UsageError, match="key='42' needs a gate"):
        queue.enqueue({"n": 1}, key="42")
    assert stored(queue, queue.enqueue({"n": 1})) == (None, None)


def test_a_delayed_job_and_a_unique_one_keep_their_gate(queue: Handle) -> None:
    sync = queue.task(name="sync", gate="api", key="customer", unique=True)(lambda customer: None)
    first = sync.options(delay=5).enqueue(7)
    assert not sync.enqueue(7).created
    assert stored(queue, first.id) == ("api", "7")


# -- where jobs are seen


def test_jobs_and_handlers_know_their_gate_and_key(queue: Handle) -> None:
    job_id = queue.enqueue(1, gate="api", key="42")
    record, job = queue.get_job(job_id), queue.claim(0)
    assert (record.gate, record.key) == (job.gate, job.key) == ("api", "42")
    plain = queue.enqueue(1)
    record, job = queue.get_job(plain), queue.claim(0)
    assert (record.gate, record.key) == (job.gate, job.key) == ("", "")
    with as_job() as current:
        assert (current.gate, current.key) == ("", "")


def test_an_export_carries_gate_and_key(queue: Handle, make_queue: MakeQueue) -> None:
    record = queue.get_job(queue.enqueue({"n": 1}, gate="api", key="42"))
    entry, there = exported(record, "pending"), make_queue()
    assert (entry["gate"], entry["key"]) == ("api", "42")
    assert there.inspector.import_jobs([entry]).stored == 1
    assert stored(there, record.id) == ("api", "42")
    damaged = [{**entry, "id": "a", "key": "a b"}, {"id": "b", "payload": 1, "key": "a"}, {**entry, "gate": "-"}]
    refused = there.inspector.import_jobs(damaged).refused
    assert [refused[number][:10] for number in range(3)] == ["a key must", "key='a' ne", "gate name "]


def test_jobs_of_a_schedule_carry_gate_and_key(queue: Handle, clock: Clock) -> None:
    @queue.every(60, id="seven", args=(7,))
    @queue.task(gate="api", key="customer")
    def sync(customer: int) -> None:
        """Only enqueued."""

    queue.schedules.register()
    queue.schedules.upsert("eight", every=60, task="sync", args=(8,))
    queue.schedules.upsert("payload", every=60, payload=1, gate="slow", key=9)
    ids = [queue.schedules.trigger(name) for name in ("seven", "eight", "payload")]
    assert [stored(queue, job_id) for job_id in ids] == [("api", "7"), ("api", "8"), ("slow", "9")]
    queue.schedules.update("eight", args=(80,))
    queue.schedules.update("payload", every=30)
    ids = [queue.schedules.trigger(name) for name in ("eight", "payload")]
    assert [stored(queue, job_id) for job_id in ids] == [("api", "80"), ("slow", "9")]
    with pytest.raises(UsageError, match="key='a' needs a gate"):
        queue.schedules.upsert("wrong", every=60, payload=1, key="a")


# -- RateLimited


def ended(error: BaseException, gate_key: str = "api 42") -> Any:
    job = ClaimedJob("a", 1, 3, "r.1", gate_key=gate_key)
    return outcome.failed(job, error, outcome.Policy(3, lambda *_: 0.0, 1000))


@pytest.mark.parametrize(
    ("error", "delay_ms", "scope", "text"),
    [
        (RateLimited(30), 30_000, "key", ""),
        (RateLimited(after=30, scope="gate"), 30_000, "gate", ""),
        (RateLimited(0), 100, "key", ""),
        (RateLimited(), 1000, "key", "doubles"),
    ],
)
def test_a_rate_limited_job_holds_its_key_or_gate(error: RateLimited, delay_ms: int, scope: str, text: str) -> None:
    found = ended(error)
    assert (found.move, found.delay_ms, found.note, found.text) == ("limit", delay_ms, scope, text)
    assert found.gate_key == "api 42"
    snoozed = ended(error, gate_key="")
    assert (snoozed.move, snoozed.delay_ms, snoozed.note, snoozed.text) == ("snooze", delay_ms, "", "")


def test_rate_limited_refuses_what_it_can_not_wait_for() -> None:
    with pytest.raises(UsageError, match="scope must be 'key' or 'gate', got 'queue'"):
        RateLimited(scope="queue")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="after must be seconds"):
        RateLimited("30")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make", [lambda: RateLimited(30, "gate"), lambda: Retry(5, "later"), lambda: Snooze(7), lambda: Discard("no")]
)
def test_what_a_handler_decides_survives_a_process(make: Callable[[], Exception]) -> None:
    error = make()
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))


def test_a_gate_tells_its_limits() -> None:
    gate = Queue("work").gate("api", concurrency=2, rate=Rate(10, per=1))
    assert isinstance(gate, Gate)
    assert (gate.name, gate.concurrency, gate.rate, gate.key_rate, gate.weight) == ("api", 2, (Rate(10, 1),), (), 1)
