"""A task of one queue, registered with another one too."""

from __future__ import annotations

import asyncio

import pytest

from schedq import Fixed, UsageError, Worker
from tests.conftest import MakeQueue
from tests.doors import Handle


def test_a_registered_task_makes_jobs_of_the_other_queue_with_its_own_options(make_queue: MakeQueue):
    one, other = make_queue(), make_queue()

    @one.task(name="sum", max_attempts=7, backoff=Fixed(3), timeout=5, durability="memory")
    def add(a: int, b: int = 1) -> int:
        return a + b

    task = other.register(add)
    job = task.enqueue(2, b=3)

    assert task is not add
    assert task(2) == 3
    assert (task.name, task.own_options, task.durability) == (add.name, add.own_options, add.durability)
    assert other.places() == {"pending": [job.id]}
    assert one.places() == {}
    assert other.fields(job.id)["max_attempts"] == "7"
    assert add.options(queue=other.queue).enqueue(1).queue_name == other.name


def test_options_given_for_a_call_stay_with_the_call(make_queue: MakeQueue):
    one, other = make_queue(), make_queue()
    task = one.task(lambda: None, name="nothing")

    job = other.register(task.options(delay=60, max_attempts=9)).enqueue()

    assert other.places() == {"pending": [job.id]}
    assert "max_attempts" not in other.fields(job.id)


def test_a_task_of_a_queue_is_registered_once_more_with_it(queue: Handle):
    task = queue.task(lambda: None, name="nothing")

    assert queue.register(task).name == "nothing"
    assert queue.registry.names == ("nothing",)


def test_only_a_task_is_registered(queue: Handle):
    with pytest.raises(UsageError, match=r"register takes a task of another queue, got <built-in function print>"):
        queue.register(print)


def test_a_name_that_another_function_has_is_refused(make_queue: MakeQueue):
    one, other = make_queue(), make_queue()
    task = one.task(lambda: 1, name="nothing")
    other.task(lambda: 2, name="nothing")

    with pytest.raises(UsageError, match="has a task 'nothing' already"):
        other.register(task)


def test_register_comes_too_late_once_a_worker_has_started(make_queue: MakeQueue):
    one, other = make_queue(), make_queue()
    task = one.task(lambda: None, name="nothing")
    other.task(lambda: None, name="another")
    asyncio.run(Worker([other.queue], burst=True).run())

    with pytest.raises(UsageError, match=f"queue {other.name}: a worker of it has started.*register comes too late"):
        other.register(task)
    assert other.registry.names == ("another",)
    assert other.task(lambda: None, name="late").enqueue().queue_name == other.name, "its worker takes it up"
