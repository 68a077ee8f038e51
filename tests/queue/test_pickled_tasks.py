"""Tasks in other processes of the application: a process pool pickles the function that it is given."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest

from schedq import Exponential, Queue, Task, UsageError
from tests.doors import Handle

pickled = Queue("pickled", redis="embedded://unused")


@pickled.task
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


class Sums:
    """A place for a task that is no variable of the module."""

    @pickled.task(name="total")
    @staticmethod
    def total(numbers: list[int]) -> int:
        return sum(numbers)


def test_a_task_can_be_handed_to_a_process_pool():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(double, 21).result(60) == 42


def test_a_task_says_where_its_function_is():
    assert (double.__module__, double.__qualname__, double.__name__) == (__name__, "double", "double")


@pytest.mark.parametrize("task", [double, Sums.total], ids=["of a module", "of a class"])
def test_a_pickled_task_is_the_same_task(task: Task[..., object]):
    assert pickle.loads(pickle.dumps(task)) is task


def test_a_pickled_copy_keeps_its_options():
    later = double.options(
        delay=60, headers={"tenant": "acme"}, max_attempts=3, backoff=Exponential(base=2), timeout=5, expires=900
    )

    found = pickle.loads(pickle.dumps(later))

    assert found.with_args(1) == later.with_args(1) != double.with_args(1)
    assert found(4) == 8


def test_a_copied_task_is_another_object_with_the_same_options():
    later = double.options(delay=60)

    made = copy.copy(later)

    assert made is not later
    assert made.with_args(1) == later.with_args(1)


def test_a_task_that_its_module_does_not_have_says_why_it_cannot_be_pickled(queue: Handle):
    def inner() -> None:
        """A function that no other process could import."""

    task = queue.task(inner)

    with pytest.raises(UsageError, match=r"task 'inner' can't be pickled.*define it at the top of a module"):
        pickle.dumps(task)
    assert copy.copy(task).name == "inner"
