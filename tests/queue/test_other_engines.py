"""Whoever writes a name of another engine gets the word for it."""

from __future__ import annotations

import copy
import inspect
import re
from typing import Any

import pytest

from schedq import AsyncQueue, Job, Queue, UsageError
from schedq.queue import other_engines
from schedq.queue.task import Task
from schedq.queue.task_options import GivenOptions


def example(kind: type) -> Any:
    queue = Queue("mail", redis="redis://127.0.0.1:1/0")
    task = queue.task(name="send")(print)
    return {Task: task, Job: queue.job("a"), Queue: queue, AsyncQueue: queue.aio}[kind]


@pytest.mark.parametrize(
    ("kind", "name", "here"),
    [
        (Task, "delay", "enqueue(...)"),
        (Task, "apply_async", "options(delay=60).enqueue(...)"),
        (Queue, "enqueue_in", "task.options(delay=60).enqueue(...), or run_at="),
        (AsyncQueue, "enqueue_job", "task.enqueue(...), or enqueue(payload)"),
        (Job, "get_status", "status()"),
    ],
)
def test_a_method_of_another_engine_is_named_as_it_is_here(kind: type, name: str, here: str):
    with pytest.raises(AttributeError) as caught:
        getattr(example(kind), name)

    assert str(caught.value) == f"{kind.__name__!r} object has no attribute {name!r}; here it is {here}"


def test_any_other_missing_name_raises_what_python_says():
    with pytest.raises(AttributeError) as caught:
        _ = example(Task).enqeue

    assert str(caught.value) == "'Task' object has no attribute 'enqeue'"
    assert (caught.value.name, type(caught.value.obj)) == ("enqeue", Task)
    assert copy.copy(example(Job)).id == "a"


@pytest.mark.parametrize("kind", [Task, Queue, AsyncQueue, Job])
def test_every_word_that_is_offered_exists_and_none_hides_a_name(kind: type):
    for name, here in kind._other_names.items():  # type: ignore[attr-defined] # each of them has it
        first = re.sub(r"^(task|queue|raise)\b[. ]|^@queue\.", "", here)
        word = re.match(r"\w+", first)
        assert word, here
        assert any(hasattr(example(each), word[0]) for each in (kind, Task, Queue)) or word[0] == "Retry", here
        assert name not in dir(kind)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("max_retries", "; here it is max_attempts, which counts the first one too"),
        ("bind", "; here it is schedq.current_job() in the function"),
        ("timout", "; here it is timeout"),
        ("priority", "; here it is a queue for each priority"),
        ("ignore_result", ""),
    ],
)
def test_an_option_that_tasks_do_not_have_is_named(option: str, says: str):
    queue = Queue("mail", redis="redis://127.0.0.1:1/0")

    with pytest.raises(UsageError) as caught:
        queue.task(name="send", **{option: 3})(print)  # type: ignore[call-overload]

    assert str(caught.value) == f"task 'send': there is no option {option!r}{says}"
    assert isinstance(caught.value, TypeError)
    assert queue.registry.get("send") is None


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("countdown", "; here it is delay"),
        ("eta", "; here it is run_at"),
        ("priority", "; here it is a queue for each priority"),
        ("queue_name", "; here it is queue"),
        ("soft_time_limit", "; here it is timeout"),
        ("autoretry_for", "; here it is @queue.task(...)"),
        ("retry_on", "; here it is @queue.task(...)"),
        ("dealy", "; here it is delay"),
        ("ignore_result", ""),
    ],
)
def test_an_option_that_jobs_do_not_have_is_named(option: str, says: str):
    with pytest.raises(UsageError) as caught:
        example(Task).options(**{"timeout": 5, option: 3})

    assert str(caught.value) == f"task 'send': there is no option {option!r}{says}"
    assert isinstance(caught.value, TypeError)


def test_no_option_counts_as_one_of_another_engine():
    jobs = inspect.signature(Task.options).parameters.keys()

    assert not other_engines._OPTIONS.keys() & GivenOptions.__optional_keys__
    assert not other_engines._OF_JOBS.keys() & (jobs - {"queue", "delay", "run_at"})
    words = {name: re.findall(r"@?\w+", here)[0] for name, here in other_engines._OF_JOBS.items() if name not in jobs}
    assert {name: word for name, word in words.items() if word not in {*jobs, "@queue", "a", "schedq"}} == {}


@pytest.mark.parametrize("what", ["a function", "a Task"])
def test_a_function_as_payload_is_answered_with_how_to_enqueue_a_call(what: str):
    queue = Queue("mail", redis="redis://127.0.0.1:1/0")
    given = print if what == "a function" else queue.task(name="send")(print)

    with pytest.raises(
        UsageError, match=r"payload is .*, which is not JSON; enqueue a call of a task as task\.enqueue"
    ):
        queue.enqueue(given)
