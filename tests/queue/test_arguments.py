"""Arguments that a task's function does not accept are refused when the job is enqueued."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedq import ArgumentsError, Queue, UsageError
from schedq.model.callables import Parameters
from schedq.testing import run_due
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle

WRONG: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {}, "missing a required argument: 'to'"),
    (("a", "b", "c"), {}, "too many positional arguments"),
    (("a",), {"to": "b"}, "multiple values for argument 'to'"),
    (("a",), {"subjekt": "b"}, "got an unexpected keyword argument 'subjekt'"),
    ((), {"subject": "b"}, "missing a required argument: 'to'"),
]


@pytest.fixture
def send(queue: Handle) -> Any:
    @queue.task
    def send(to: str, subject: str = "hi") -> str:
        return f"{to} {subject}"

    return send


@pytest.mark.parametrize(("args", "kwargs", "problem"), WRONG)
def test_wrong_arguments_are_refused_with_the_task_the_problem_and_the_signature(
    queue: Handle, send: Any, args: tuple[Any, ...], kwargs: dict[str, Any], problem: str
):
    good: tuple[tuple[str, ...], dict[str, Any]] = (("a",), {})
    calls: list[Callable[[], Any]] = [
        lambda: send.enqueue(*args, **kwargs),
        lambda: queue.run(send.aenqueue(*args, **kwargs)),
        lambda: send.options(delay=5).enqueue(*args, **kwargs),
        lambda: send.options(job_id="mine").enqueue(*args, **kwargs),
        lambda: send.enqueue_many([good, (args, kwargs)]),
        lambda: send.options(delay=5).enqueue_many([good, (args, kwargs)]),
        lambda: queue.run(send.aenqueue_many([good, (args, kwargs)])),
        lambda: send.new_job(args, kwargs),
        lambda: queue.every(60, args=args, kwargs=kwargs)(send),
        lambda: queue.cron("0 3 * * *", args=args, kwargs=kwargs)(send),
        lambda: queue.schedules.upsert("nightly", every=60, task=send, args=args, kwargs=kwargs),
        lambda: queue.schedules.upsert("nightly", every=60, task="send", args=args, kwargs=kwargs),
    ]

    for call in calls:
        with pytest.raises(ArgumentsError) as refused:
            call()
        assert str(refused.value).startswith(f"task 'send': {problem}")
        assert "it is send(to, subject='hi')" in str(refused.value)
        assert isinstance(refused.value, (UsageError, TypeError))

    assert queue.places() == {}
    assert queue.registry.schedules == ()


def test_of_many_calls_the_wrong_one_is_named(send: Any):
    with pytest.raises(ArgumentsError, match=r"\(call 2\)$"):
        send.enqueue_many([(("a",), {}), (("b",), {}), ((), {})])


@pytest.mark.parametrize("call", ["ada@example.org", ("ada@example.org",), 5, (("a",), {}, 3)])
def test_a_call_that_is_not_a_pair_of_arguments_is_refused(send: Any, call: Any):
    with pytest.raises(ArgumentsError, match="call 1 is "):
        send.enqueue_many([(("a",), {}), call])


def test_a_string_is_not_a_list_of_arguments(queue: Handle, send: Any):
    two = queue.task(name="two")(lambda a, b: None)
    for _ in range(2):
        with pytest.raises(ArgumentsError, match="must be a list or tuple, got 'ab'"):
            two.enqueue_many([("ab", {})])
        with pytest.raises(ArgumentsError, match="must be a list or tuple, got 'a'"):
            two.enqueue_many([(("a",), {"b": 1}), ("a", {"b": 1})])


@pytest.mark.parametrize("wrong", [b"a", {"to": "a"}, {"a"}, None])
def test_only_a_sequence_can_be_a_list_of_arguments(queue: Handle, send: Any, wrong: Any):
    for refused in (
        lambda: send.enqueue_many([(wrong, {})]),
        lambda: send.enqueue_many([(wrong, {"subject": "x"})]),
        lambda: queue.queue.every(5, args=wrong)(send),
        lambda: queue.schedules.upsert("nightly", every=5, task="of another process", args=wrong),
    ):
        with pytest.raises(ArgumentsError, match="must be a list or tuple, got "):
            refused()


def test_only_a_mapping_can_be_keyword_arguments(send: Any):
    with pytest.raises(ArgumentsError, match="keyword arguments must be a dict, got .'to'.* .call 0.$"):
        send.enqueue_many([((), ["to"])])


def test_defaults_are_not_filled_in_so_that_a_new_one_reaches_waiting_jobs(queue: Handle, send: Any):
    job = send.enqueue("ada")

    assert queue.get_job(job.id).payload == {"task": "send", "args": ["ada"]}


def test_a_decorated_function_is_not_checked_because_the_decorator_may_pass_arguments(queue: Handle):
    def with_session(function: Any) -> Any:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function("session", *args, **kwargs)

        return inner

    @queue.task
    @with_session
    def charge(session: str, order: int) -> str:
        return f"{session} {order}"

    job = charge.enqueue(5)

    assert run_due(queue.queue) == 1
    assert queue.result(job.id, 0) == "session 5"


def test_a_task_of_another_process_is_not_checked(queue: Handle, send: Any):
    assert queue.schedules.upsert("nightly", every=60, task="resize", args=[1, 2, 3]) == "created"
    queue.enqueue({"task": "send", "args": [1, 2, 3]})


def test_a_job_made_by_name_with_wrong_arguments_fails_at_once(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=5)

    @queue.task
    def send(to: str) -> None:
        raise TypeError(f"{to} is of no use")

    wrong = queue.enqueue({"task": "send", "kwargs": {"whom": "ada"}})
    raised = queue.enqueue({"task": "send", "args": ["ada"]})

    assert run_due(queue.queue) == 2

    assert queue.places() == {"failed": [wrong], "delayed": [raised]}
    assert queue.get_job(wrong).last_error == (
        "wrong arguments: task 'send': missing a required argument: 'to'; it is send(to)"
    )
    assert queue.get_job(raised).last_error == "TypeError: ada is of no use"


def takes_none() -> None: ...
def takes_two(a: int, b: int) -> None: ...
def has_default(a: int, b: int = 2) -> None: ...
def by_position(a: int, b: int = 2, /) -> None: ...
def by_name(*, a: int, b: int = 2) -> None: ...
def takes_many(a: int, *b: int) -> None: ...
def takes_any_name(a: int, **b: int) -> None: ...
def takes_all(*a: int, **b: int) -> None: ...
def a_mixture(a: int, b: int = 2, /, c: int = 3, *d: int, e: int, f: int = 6, **g: int) -> None: ...
def same_name(a: int, /, **b: int) -> None: ...


FUNCTIONS = (
    *(takes_none, takes_two, has_default, by_position, by_name, takes_many, takes_any_name, takes_all, a_mixture),
    *(same_name, functools.partial(takes_two, 1), functools.partial(takes_two, b=1), dict, Queue),
)


@given(
    st.sampled_from(FUNCTIONS),
    st.lists(st.integers(), max_size=5),
    st.dictionaries(st.sampled_from("abcdefg"), st.integers(), max_size=5),
)
def test_the_check_says_what_python_says(function: Any, args: list[int], kwargs: dict[str, int]):
    try:
        signature = inspect.signature(function)
    except ValueError:
        signature = inspect.signature(takes_all)
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        fits = False
    else:
        fits = True
    parameters = Parameters("f", function)

    with nullcontext() if fits else pytest.raises(ArgumentsError):
        parameters.check(args, kwargs)
