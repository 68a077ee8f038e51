"""Functions as tasks: what enqueueing sends, what a job handle can do, which function runs a payload."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from schedq import ArgumentsError, Conflict, Fixed, Job, JobGone, Queue, QueueFull, Task, UsageError
from schedq.queue.registry import NoHandler
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


def send(to: str, subject: str = "hi") -> str:
    """Send a mail."""
    return f"{to}: {subject}"


async def fetch(url: str) -> str:
    return url


def call(queue: Handle, task: Any, verb: str, *args: Any, **kwargs: Any) -> Any:
    """A method of a task or a job, or its asyncio variant for an asyncio queue."""
    if isinstance(queue.queue, Queue):
        return getattr(task, verb)(*args, **kwargs)
    return queue.run(getattr(task, "await_end" if verb == "wait" else f"a{verb}")(*args, **kwargs))


@pytest.mark.parametrize(
    ("args", "kwargs", "payload"),
    [
        (("ada",), {}, {"task": "send", "args": ["ada"]}),
        (("ada",), {"subject": "later"}, {"task": "send", "args": ["ada"], "kwargs": {"subject": "later"}}),
        ((), {"to": "ada"}, {"task": "send", "kwargs": {"to": "ada"}}),
    ],
)
def test_a_call_travels_as_json_that_any_language_can_write(queue: Handle, args: Any, kwargs: Any, payload: Any):
    task = queue.task(send)

    job = call(queue, task, "enqueue", *args, **kwargs)

    assert queue.get_job(job.id).payload == payload
    found = queue.registry.find(payload)
    assert (found.handler.function, tuple(found.args), dict(found.kwargs)) == (send, args, kwargs)


def test_a_call_without_arguments_travels_without_them(queue: Handle):
    job = call(queue, queue.task(name="tick")(lambda: None), "enqueue")

    assert queue.get_job(job.id).payload == {"task": "tick"}


def test_a_task_is_still_the_function(queue: Handle):
    task = queue.task(send)

    assert task("ada", subject="now") == "ada: now"
    assert asyncio.run(queue.task(fetch)("u")) == "u"
    assert (task.__name__, task.__doc__, inspect.signature(task)) == ("send", "Send a mail.", inspect.signature(send))
    assert queue.places() == {}


def test_options_of_the_task_go_with_its_jobs_and_those_of_a_call_come_first(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    task = queue.task(name="mail", max_attempts=5, backoff=Fixed(1), timeout=30)(send)

    plain = call(queue, task, "enqueue", "ada")
    special = call(queue, task.options(delay=60, job_id="mine", max_attempts=9, backoff=Fixed(2)), "enqueue", "ada")

    fields, own = queue.fields(plain.id), queue.fields("mine")
    assert (fields["max_attempts"], fields["timeout_ms"], fields["status"]) == ("5", "30000", "pending")
    assert (own["max_attempts"], own["timeout_ms"], own["status"]) == ("9", "30000", "delayed")
    assert own["run_at_ms"] == str(clock.now_ms + 60_000)
    assert queue.get_job("mine").payload["task"] == "mail"
    assert special.id == "mine"


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"max_attempts": 0},
        {"backoff": 5},
        {"durability": "much"},
        {"job_id": ""},
        {"delay": -1},
        {"delay": 1, "run_at": 1},
    ],
    ids=str,
)
def test_invalid_options_are_refused_where_they_are_written(queue: Handle, options: dict[str, Any]):
    with pytest.raises(UsageError) as when_written:
        queue.task(send).options(**options)
    with pytest.raises(UsageError) as when_sent:
        queue.enqueue("ada", **options)

    assert str(when_written.value) == str(when_sent.value)


def test_options_do_not_stick(queue: Handle):
    task = queue.task(send)
    task.options(delay=60)

    assert queue.fields(call(queue, task, "enqueue", "ada").id)["status"] == "pending"


def test_a_function_that_says_how_long_is_asked_where_the_job_runs(queue: Handle):
    task = queue.task(backoff=lambda attempt, error: attempt)(send)

    job = call(queue, task, "enqueue", "ada")

    assert "backoff" not in queue.fields(job.id)
    assert queue.registry.find({"task": "send"}).handler.backoff(3, ValueError()) == 3


def test_many_calls_are_one_request(queue: Handle):
    task = queue.task(send)
    queue.stats()

    jobs = call(queue, task, "enqueue_many", [(("a",), {}), (("b",), {"subject": "c"})])

    assert queue.places() == {"pending": [job.id for job in jobs]}
    assert all(isinstance(job, Job) for job in jobs)
    assert queue.get_job(jobs[1].id).payload == {"task": "send", "args": ["b"], "kwargs": {"subject": "c"}}


def test_calls_with_their_own_options_are_enqueued_together(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    task = queue.task(name="mail", max_attempts=5)(send)
    calls = [
        task.with_args("a", subject="c"),
        task.options(delay=30, job_id="mine").with_args("b"),
        (("c",), {}),
    ]

    jobs = call(queue, task.options(delay=60, max_attempts=9), "enqueue_many", calls)
    again = call(queue, task, "enqueue_many", [calls[1]])

    records = [queue.get_job(job.id) for job in jobs]
    assert records[0].payload == {"task": "mail", "args": ["a"], "kwargs": {"subject": "c"}}
    assert [record.run_at_ms - clock.now_ms for record in records] == [60_000, 30_000, 60_000]
    assert {record.max_attempts for record in records} == {9}
    assert (jobs[1].id, jobs[1].created, again[0].created) == ("mine", True, False)


def test_the_queue_takes_calls_of_several_tasks(queue: Handle):
    tasks = queue.task(max_attempts=5)(send), queue.task(fetch)

    ids = queue.enqueue_many([tasks[0].with_args("ada"), tasks[1].with_args(url="u")])

    assert [queue.get_job(job_id).payload["task"] for job_id in ids] == ["send", "fetch"]
    assert [queue.get_job(job_id).max_attempts for job_id in ids] == [5, None]


def test_a_call_of_another_task_is_refused(queue: Handle):
    task, other = queue.task(send), queue.task(fetch)

    with pytest.raises(ArgumentsError, match=r"is not a call of this task \(call 1\)"):
        call(queue, task, "enqueue_many", [task.with_args("a"), other.with_args("u")])
    with pytest.raises(ArgumentsError, match="send"):
        task.with_args()
    assert queue.places() == {}


def test_a_common_id_is_that_of_a_call_without_one(queue: Handle):
    task = queue.task(send)

    (job,) = call(queue, task.options(job_id="mine"), "enqueue_many", [task.with_args("a")])

    assert (job.id, job.created) == ("mine", True)


# -- other queues


def test_a_task_of_two_queues_can_be_enqueued_in_either(make_queue: MakeQueue, clock: Clock):
    here, there = make_queue(clock=clock), make_queue(clock=clock)
    task = here.task(name="mail", max_attempts=5, timeout=30)(send)
    there.task(max_attempts=2)(task)

    job = call(there, task.options(delay=60).options(queue=there.queue), "enqueue", "ada")

    assert job.queue_name == there.name
    assert here.places() == {}
    record = there.get_job(job.id)
    assert (record.payload["task"], record.max_attempts, record.fields["timeout_ms"]) == ("mail", 2, "30000")
    assert record.run_at_ms == clock.now_ms + 60_000
    assert call(here, task, "enqueue", "ada").queue_name == here.name


def test_a_queue_without_the_task_is_refused(make_queue: MakeQueue):
    here, there = make_queue(), make_queue()
    task = here.task(send)

    with pytest.raises(UsageError, match=f"queue {there.name} has no task 'send'"):
        task.options(queue=there.queue)
    with pytest.raises(UsageError, match="must be a Queue"):
        task.options(queue="bulk")


def test_reasons_to_refuse_a_job_also_refuse_a_call(make_queue: MakeQueue):
    queue = make_queue(max_pending=1, max_payload=100)
    task = queue.task(send)
    with pytest.raises(UsageError, match="max_payload"):
        call(queue, task, "enqueue", "x" * 200)
    with pytest.raises(UsageError):
        call(queue, task, "enqueue", object())

    call(queue, task.options(job_id="mine"), "enqueue", "ada")

    with pytest.raises(Conflict):
        call(queue, task.options(job_id="mine"), "enqueue", "eve")
    with pytest.raises(QueueFull):
        call(queue, task, "enqueue", "ada")


# -- the handle


def test_a_handle_follows_its_job(queue: Handle):
    job = call(queue, queue.task(send), "enqueue", "ada")

    assert call(queue, job, "status") == "pending"
    assert call(queue, job, "wait", 0) is False
    claimed = queue.claim(0)
    assert call(queue, job, "status") == "processing"
    assert call(queue, job, "cancel") == "asked"
    queue.complete(claimed, "sent")

    assert call(queue, job, "wait", 0) is True
    assert call(queue, job, "result", 0) == "sent"
    assert call(queue, job, "record").result == "sent"
    assert call(queue, job, "cancel") == "no"


def test_a_handle_can_be_made_from_an_id(queue: Handle):
    job_id = queue.enqueue(1)

    assert call(queue, queue.job(job_id), "cancel") == "cancelled"
    assert repr(queue.job(job_id)) == f"Job({job_id!r})"
    assert call(queue, queue.job("never-was"), "record") is None
    with pytest.raises(JobGone, match="never-was"):
        call(queue, queue.job("never-was"), "status")
    with pytest.raises(UsageError):
        queue.job("no id")


# -- the registry


def test_two_functions_of_one_name_are_refused(queue: Handle):
    def other() -> None: ...

    queue.task(send)
    queue.task(send)  # its module may be loaded again

    with pytest.raises(UsageError, match=r"has a task 'send' already \(.*send\); give .*other"):
        queue.task(name="send")(other)
    assert queue.registry.names == ("send",)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", 7])
def test_a_name_that_makes_no_sense_is_refused(queue: Handle, name: Any):
    with pytest.raises(UsageError, match="task name"):
        queue.task(name=name)(send)


def test_a_task_that_is_not_a_function_is_refused(queue: Handle):
    for register in (queue.task, queue.handler):
        with pytest.raises(UsageError, match="must be a function"):
            register("send")


PLAIN = [
    {"kind": "email"},
    {"task": "send", "to": "ada"},
    {"task": ["send"]},
    {"task": "send", "args": "ada"},
    {"task": "send", "kwargs": ["ada"]},
    {"args": []},
    "send",
    ["send"],
    None,
    {},
]


@pytest.mark.parametrize("payload", PLAIN, ids=repr)
def test_a_payload_that_is_not_a_task_call_goes_to_the_handler(queue: Handle, payload: Any):
    queue.task(send)
    with pytest.raises(NoHandler, match="no handler"):
        queue.registry.find(payload)

    def handle(payload: Any) -> None: ...

    assert queue.handler(handle) is handle
    found = queue.registry.find(payload)
    assert (found.handler.function, tuple(found.args), found.handler.name) == (handle, (payload,), "handler")


def test_an_unknown_task_is_named(queue: Handle):
    queue.handler(print)

    with pytest.raises(NoHandler, match="no task 'delete_everything'"):
        queue.registry.find({"task": "delete_everything"})
    for name in ("os.system", "builtins.eval", "__class__", "send"):
        with pytest.raises(NoHandler):
            queue.registry.find({"task": name})


def test_there_is_one_handler(queue: Handle):
    queue.handler(send)
    queue.handler(send)

    with pytest.raises(UsageError, match="has a handler already"):
        queue.handler(fetch)


def test_both_clients_have_the_same_functions(make_queue: MakeQueue):
    queue = make_queue()
    task = queue.task(send)

    assert isinstance(task, Task)
    assert queue.blocking.registry is queue.aio.registry is queue.registry
    assert queue.blocking.aio is queue.aio
    queue.blocking.close()


def test_a_decorator_with_options_takes_no_more_of_them(queue: Handle):
    task: Any = queue.queue.task(name="work", timeout=30)

    with pytest.raises(UsageError, match="keep those that tasks share in a dict"):
        task(max_attempts=1)
    assert task(lambda: None).timeout_ms == 30_000
