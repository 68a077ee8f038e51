"""What an application does to each job before it is stored."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import FrozenInstanceError
from datetime import datetime
from typing import Any

import pytest

from schedq import EnqueueFacts, NewJob, UsageError, Worker, current_job, inherit_headers
from schedq.testing import as_job
from tests.conftest import MakeQueue
from tests.doors import Handle


class RefusedError(Exception):
    """Raised by an application's own function."""


def send(queue: Handle, **options: Any) -> Any:
    return queue.task(name="send", **options)(lambda *args, **kwargs: None)


def enqueue(queue: Handle, task: Any, *args: Any, **kwargs: Any) -> Any:
    """One call of a task, through the client that is tested."""
    if inspect.iscoroutinefunction(queue.queue.enqueue):
        return queue.run(task.aenqueue(*args, **kwargs))
    return task.enqueue(*args, **kwargs)


def enqueue_many(queue: Handle, task: Any, calls: Any) -> Any:
    if inspect.iscoroutinefunction(queue.queue.enqueue):
        return queue.run(task.aenqueue_many(calls))
    return task.enqueue_many(calls)


def all_ways(queue: Handle) -> dict[str, Any]:
    """Each way to enqueue, as a call that returns the ids of what it stored."""
    task = send(queue)
    return {
        "enqueue": lambda: [queue.enqueue("mail")],
        "enqueue_many": lambda: queue.enqueue_many(["mail", NewJob("mail", delay=60)]),
        "Task.enqueue": lambda: [enqueue(queue, task, 1).id],
        "Task.enqueue_many": lambda: [job.id for job in enqueue_many(queue, task, [((1,), {}), task.with_args(2)])],
        "with an id": lambda: [job.id for job in enqueue_many(queue, task.options(job_id="one"), [((1,), {})])],
    }


def test_every_way_to_enqueue_calls_the_function_first(queue: Handle):
    queue.before_enqueue(lambda job: job.headers.update(tenant="acme"))

    for way, stored in all_ways(queue).items():
        ids = stored()
        assert [queue.get_job(job_id).headers for job_id in ids] == [{"tenant": "acme"}] * len(ids), way


def test_both_clients_of_a_queue_ask_first(queue: Handle):
    queue.before_enqueue(lambda job: job.headers.update(tenant="acme"))

    ids = [queue.queue.blocking.enqueue("mail"), queue.run(queue.queue.aio.enqueue("mail"))]

    assert [queue.get_job(job_id).headers for job_id in ids] == [{"tenant": "acme"}] * 2


def test_functions_are_called_in_order_and_see_what_those_before_them_did(queue: Handle):
    seen: list[dict[str, str]] = []

    @queue.before_enqueue
    def first(job: EnqueueFacts) -> None:
        seen.append(dict(job.headers))
        job.headers["first"] = "1"

    @queue.before_enqueue
    def second(job: EnqueueFacts) -> None:
        seen.append(dict(job.headers))
        job.headers["given"] += "!"

    job_id = queue.enqueue("mail", headers={"given": "yes"})

    assert seen == [{"given": "yes"}, {"given": "yes", "first": "1"}]
    assert queue.get_job(job_id).headers == {"given": "yes!", "first": "1"}
    assert callable(first)
    assert callable(second)


def test_a_function_may_take_headers_away(queue: Handle):
    queue.before_enqueue(lambda job: job.headers.clear())

    ids = [queue.enqueue("mail", headers={"a": "1"}), *queue.enqueue_many(["mail"], headers={"a": "1"})]

    assert ["headers" in queue.fields(job_id) for job_id in ids] == [False, False]


def test_a_function_sees_the_job(queue: Handle):
    seen: list[EnqueueFacts] = []
    queue.before_enqueue(seen.append)
    task = queue.task(name="remind")(remind)

    enqueue(queue, task.options(delay=60, expires=90, job_id="r-1"), datetime(2030, 1, 2), who="Ada")
    queue.enqueue({"n": 1}, run_at=1_900_000_000)

    one, other = seen
    assert (one.queue, one.task, one.job_id) == (queue.name, "remind", "r-1")
    assert (one.args, one.kwargs) == (["2030-01-02T00:00:00"], {"who": "Ada"})
    assert one.payload == {"task": "remind", "args": one.args, "kwargs": one.kwargs}
    assert (one.delay, one.run_at, one.expires, one.headers) == (60, None, 90, {})
    assert (other.task, other.args, other.kwargs, other.payload) == (None, [], {}, {"n": 1})
    assert (other.job_id, other.delay, other.run_at) == (None, None, 1_900_000_000)


def remind(at: datetime, who: str) -> None: ...


def test_a_function_sees_the_options_that_the_jobs_of_a_call_share(queue: Handle):
    seen: list[EnqueueFacts] = []
    queue.before_enqueue(seen.append)

    queue.enqueue_many(["a", NewJob("b", delay=5, headers={"locale": "fr"})], delay=60, headers={"tenant": "acme"})

    assert [(job.payload, job.delay, job.headers) for job in seen] == [
        ("a", 60, {"tenant": "acme"}),
        ("b", 5, {"tenant": "acme", "locale": "fr"}),
    ]


def test_a_function_sees_the_gate_and_the_key(queue: Handle):
    seen: list[EnqueueFacts] = []
    queue.before_enqueue(seen.append)
    sync = queue.task(name="sync", gate=queue.gate("api"), key="customer")(lambda customer: None)

    enqueue(queue, sync, 7)
    enqueue(queue, sync.options(key="vip"), 7)
    queue.enqueue("plain")
    queue.enqueue_many(["a", NewJob("b", key="8")], gate="api")

    assert [(job.gate, job.key) for job in seen] == [("api", "7"), ("api", "vip"), ("", ""), ("api", ""), ("api", "8")]


def test_a_function_can_not_change_the_payload(queue: Handle):
    def change(job: EnqueueFacts) -> None:
        job.payload["to"] = "eve"
        with pytest.raises(FrozenInstanceError):
            job.payload = {}  # type: ignore[misc]

    queue.before_enqueue(change)
    payload = {"to": "ada"}

    job_id = queue.enqueue(payload)

    assert payload == queue.get_job(job_id).payload == {"to": "ada"}


@pytest.mark.parametrize("way", ["enqueue", "enqueue_many", "Task.enqueue", "Task.enqueue_many", "with an id"])
def test_a_function_may_refuse_and_then_nothing_is_stored(queue: Handle, way: str):
    def refuse(job: EnqueueFacts) -> None:
        raise RefusedError(f"no {job.queue} today")

    stored = all_ways(queue)[way]
    queue.before_enqueue(refuse)

    with pytest.raises(RefusedError, match="today"):
        stored()
    assert queue.places() == {}


def test_one_refused_job_of_many_keeps_all_of_them_out(queue: Handle):
    def refuse(job: EnqueueFacts) -> None:
        if job.payload == 999:
            raise RefusedError("the last one")

    queue.before_enqueue(refuse)

    with pytest.raises(RefusedError):
        queue.enqueue_many(range(1000))
    assert queue.places() == {}


def test_an_invalid_job_is_refused_before_any_function_is_called(queue: Handle):
    queue.before_enqueue(lambda job: pytest.fail("called"))

    for options in ({"delay": -1}, {"max_attempts": 0}, {"headers": {"a": 7}}, {"job_id": "a b"}):
        with pytest.raises(UsageError):
            queue.enqueue("mail", **options)
    with pytest.raises(UsageError, match="not JSON"):
        queue.enqueue(object())


@pytest.mark.parametrize(("name", "value"), [("tenant", 7), (7, "acme"), ("tenant", "x" * 5000)])
def test_headers_that_a_function_may_not_add_are_refused(queue: Handle, name: Any, value: Any):
    queue.before_enqueue(lambda job: job.headers.update({name: value}))

    with pytest.raises(UsageError, match="header"):
        queue.enqueue("mail")
    assert queue.places() == {}


def test_jobs_made_in_redis_and_by_an_import_are_not_seen(queue: Handle):
    queue.before_enqueue(lambda job: pytest.fail("called"))
    queue.schedules.upsert("tick", every=60, payload="tick")

    queue.schedules.trigger("tick")
    assert queue.inspector.import_jobs([{"id": "a", "payload": 1}]).stored == 1


def test_other_queues_are_not_asked(make_queue: MakeQueue):
    one, other = make_queue(), make_queue()
    one.before_enqueue(lambda job: pytest.fail("called"))

    other.enqueue("mail")
    task = send(one)
    send(other)
    enqueue(other, task.options(queue=other.queue), 1)


async def coroutine_function(job: EnqueueFacts) -> None: ...


class AsyncCallable:
    async def __call__(self, job: EnqueueFacts) -> None: ...


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (coroutine_function, r"takes a plain function, and .*coroutine_function is async"),
        (AsyncCallable(), "takes a plain function, and .* is async"),
        ("send", "takes a function, got 'send'"),
        (None, "takes a function, got None"),
    ],
)
def test_only_a_plain_function_is_accepted(queue: Handle, function: Any, what: str):
    with pytest.raises(UsageError, match=what):
        queue.before_enqueue(function)


def test_a_function_that_returns_a_coroutine_is_refused_when_it_is_called(queue: Handle):
    queue.before_enqueue(lambda job: coroutine_function(job))

    with pytest.raises(UsageError, match="returned a coroutine, whose code has not run"):
        queue.enqueue("mail")
    assert queue.places() == {}


# -- headers of the job that enqueues


PARENT = {"tenant": "acme", "request": "r-1"}


@pytest.mark.parametrize(
    ("names", "found"),
    [((), PARENT), (("tenant",), {"tenant": "acme"}), (("tenant", "absent"), {"tenant": "acme"})],
)
def test_a_handlers_jobs_inherit_its_headers(queue: Handle, names: tuple[str, ...], found: dict[str, str]):
    queue.before_enqueue(inherit_headers(*names))
    task = send(queue)

    with as_job(headers=PARENT):
        ids = [queue.queue.blocking.enqueue("mail"), task.enqueue().id]
        ids += [job.id for job in task.enqueue_many([((), {}), task.with_args()])]

    assert [queue.get_job(job_id).headers for job_id in ids] == [found] * 4


def test_awaited_calls_inherit_headers_too(queue: Handle):
    queue.before_enqueue(inherit_headers())
    task = send(queue)

    async def handler() -> list[str]:
        with as_job(headers=PARENT):
            found = [await queue.queue.aio.enqueue("mail"), (await task.aenqueue()).id]
            found += await queue.queue.aio.enqueue_many(["mail"])
            found += [job.id for job in await task.aenqueue_many([((), {})])]
        return found

    assert [queue.get_job(job_id).headers for job_id in queue.run(handler())] == [PARENT] * 4


def test_headers_that_the_new_job_has_take_precedence(queue: Handle):
    queue.before_enqueue(inherit_headers())
    with as_job(headers=PARENT):
        job = send(queue).options(headers={"request": "own", "locale": "de"}).enqueue()

    assert job.record().headers == {"tenant": "acme", "request": "own", "locale": "de"}


def test_outside_a_handler_nothing_is_inherited(queue: Handle):
    queue.before_enqueue(inherit_headers())

    assert queue.get_job(queue.enqueue("mail")).headers == {}


@pytest.mark.parametrize("names", [(["tenant"],), (7,)])
def test_names_to_inherit_are_texts(names: Any):
    with pytest.raises(UsageError, match="inherit_headers takes names of headers"):
        inherit_headers(*names)


def test_the_function_that_makes_the_function_is_not_the_function(queue: Handle):
    queue.before_enqueue(inherit_headers)

    with pytest.raises(UsageError, match=r"write queue.before_enqueue\(inherit_headers\(\)\)"):
        queue.enqueue("mail")


def test_a_job_without_headers_passes_none_on(queue: Handle):
    queue.before_enqueue(inherit_headers())
    with as_job():
        assert current_job().headers == {}
        assert "headers" not in queue.fields(send(queue).enqueue().id)


def test_a_function_comes_too_late_once_a_worker_has_started(queue: Handle) -> None:
    queue.task(lambda: None, name="nothing")
    asyncio.run(Worker([queue.queue], burst=True).run())

    with pytest.raises(UsageError, match=f"queue {queue.name}: a worker of it has started .* before_enqueue comes too"):
        queue.before_enqueue(lambda job: None)
