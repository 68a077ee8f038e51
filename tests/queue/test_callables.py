"""What may be a task or a handler. Anything that would "complete" without running is refused with an explanation."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import linecache
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from schedq import Queue, UsageError
from schedq.testing import run_due
from tests.conftest import MakeQueue
from tests.doors import Handle


def rows() -> Iterator[int]:
    yield 1


async def pages() -> AsyncIterator[int]:
    yield 1


async def coroutine() -> None: ...


class Report:
    def send(self, to: str) -> str:
        return f"sent to {to}"

    @classmethod
    def make(cls, to: str) -> str:
        return f"made for {to}"

    @staticmethod
    def plain(to: str) -> str:
        return f"plain for {to}"

    def __call__(self, to: str) -> str:
        return f"called for {to}"


class Rows:
    def __call__(self) -> Iterator[int]:
        yield 1


def add(one: int, other: int) -> int:
    return one + other


REFUSED = {
    "a generator": (rows, r"rows is a generator: calling it runs none of its code"),
    "an async generator": (pages, "pages is a generator"),
    "a partial of a generator": (functools.partial(rows), "rows is a generator"),
    "an object that is a generator": (Rows(), "is a generator"),
    "a class": (Report, r"got the class .*Report: register a function that uses it"),
    "a method without its object": (Report.send, r"Report.send is a method, for which a job has no object"),
    "a classmethod object": (Report.__dict__["make"], "got a classmethod object"),
    "a name": ("send", "got 'send'"),
    "nothing": (5, "got 5"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_not_do_its_work_is_refused_with_words(queue: Handle, what: str):
    function, words = REFUSED[what]

    with pytest.raises(UsageError, match=f"a task must be a function.*{words}"):
        queue.task(name="given")(function)
    with pytest.raises(UsageError, match=f"a task must be a function.*{words}"):
        queue.task(function)
    with pytest.raises(UsageError, match=f"a handler must be a function.*{words}"):
        queue.handler(function)
    with pytest.raises(UsageError, match=f"a task must be a function.*{words}"):
        queue.every(60)(function)
    with pytest.raises(UsageError, match=f"a task must be a function.*{words}"):
        queue.cron("0 3 * * *")(function)
    assert queue.registry.is_empty


def test_a_coroutine_is_a_call_and_no_function(queue: Handle):
    with pytest.raises(UsageError, match=r"got the coroutine coroutine: leave out the \(\)"):
        queue.task(coroutine())
    with pytest.raises(UsageError, match=r"got the coroutine coroutine: leave out the \(\)"):
        queue.handler(coroutine())


@pytest.mark.parametrize("function", [functools.partial(add, 1), Report()], ids=["partial", "object"])
def test_a_callable_without_a_name_needs_one(queue: Handle, function: Any):
    with pytest.raises(UsageError, match="has no name of its own: give its task one, name='...'"):
        queue.task(function)


def test_decorators_without_their_arguments_name_what_is_missing(queue: Handle):
    with pytest.raises(UsageError, match="cron needs an expression, as in @queue.cron"):
        queue.cron(add)
    with pytest.raises(UsageError, match="every needs an interval, as in @queue.every"):
        queue.every(add)
    for decorator in (queue.cron("0 3 * * *"), queue.every(60)):
        with pytest.raises(UsageError, match="a task must be a function, got None"):
            decorator(None)


@pytest.mark.parametrize("timeout", [0, 0.0, timedelta(0), -1])
def test_a_timeout_of_nothing_is_refused(queue: Handle, timeout: Any):
    with pytest.raises(UsageError, match="timeout must"):
        queue.task(timeout=timeout)(add)
    with pytest.raises(UsageError, match="timeout must"):
        queue.every(60, timeout=timeout, args=[1, 2])(add)


def test_a_handler_takes_the_payload(queue: Handle):
    for wrong in (lambda: None, lambda a, b: None, lambda *, payload: None):
        with pytest.raises(UsageError, match="a handler takes one argument, the payload"):
            queue.handler(wrong)
    queue.handler(lambda payload, more=1: None)


def test_all_else_that_can_be_called_runs(queue: Handle):
    async def later(one: int) -> int:
        await asyncio.sleep(0)
        return one + 1

    tasks = {
        queue.task(name="partial")(functools.partial(add, 1)): ((2,), 3),
        queue.task(name="object")(Report()): (("ada",), "called for ada"),
        queue.task(name="bound")(Report().send): (("ada",), "sent to ada"),
        queue.task(name="of the class")(Report.make): (("ada",), "made for ada"),
        queue.task(name="static")(Report.plain): (("ada",), "plain for ada"),
        queue.task(name="static object")(Report.__dict__["plain"]): (("ada",), "plain for ada"),
        queue.task(name="builtin")(max): ((1, 2), 2),
        queue.task(name="without signature")(print): ((1,), None),
        queue.task(name="lambda")(lambda one: -one): ((1,), -1),
        queue.task(name="async partial")(functools.partial(later)): ((1,), 2),
        queue.task(name="cached")(functools.cache(add)): ((1, 2), 3),
    }
    jobs = {task.enqueue(*args): result for task, (args, result) in tasks.items()}

    assert run_due(queue.queue) == len(jobs)

    assert {job.id: queue.result(job.id, 0) for job in jobs} == {job.id: result for job, result in jobs.items()}


def test_a_task_of_one_queue_can_be_one_of_another(make_queue: MakeQueue):
    one, other = make_queue(), make_queue()
    task = one.task(name="sum", max_attempts=7, timeout=5)(add)

    again = other.task(task)

    assert (again.name, again.function, again.max_attempts, again.timeout_ms) == ("sum", add, 7, 5000)
    assert again.enqueue(1, 2).id
    assert one.places() == {}


def test_a_schedule_of_another_queues_task_makes_it_one_of_this_queue(make_queue: MakeQueue):
    one, other = make_queue(), make_queue()
    task = one.task(name="sum")(add)

    other.every(60, args=[1, 2])(task)
    other.cron("0 3 * * *", id="night", args=[1, 2])(task)

    assert other.registry.names == ("sum",)
    assert {definition.id for definition in other.registry.schedules} == {"sum", "night"}


@pytest.mark.parametrize(
    ("returned", "kind"),
    [
        (rows, "a generator"),
        (pages, "an async generator"),
        (contextmanager(rows), "a context manager"),
        (asynccontextmanager(pages), "an async context manager"),
        (lambda: map(str, [1]), "a map object"),
        (lambda: filter(None, [1]), "a filter object"),
    ],
    ids=["generator", "async generator", "context manager", "async context manager", "map", "filter"],
)
def test_a_function_that_returns_code_that_has_not_run_has_failed(queue: Handle, returned: Any, kind: str):
    job = queue.task(name="lazy")(lambda: returned()).enqueue()

    assert run_due(queue.queue) == 1

    record = queue.get_job(job.id)
    assert (record.status, record.attempts) == ("failed", 1)
    assert record.last_error.startswith(f"it returned {kind}, whose code has not run")


def test_an_async_function_that_returns_a_coroutine_has_failed(queue: Handle):
    async def lazy() -> Any:
        return coroutine()

    job = queue.task(lazy).enqueue()

    assert run_due(queue.queue) == 1

    assert "it returned a coroutine" in queue.get_job(job.id).last_error


TWO = """
@queue.task
def send(to): ...

@queue.task(max_attempts=1)
def send(whom): ...
"""


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """Loads a file repeatedly as a module that registers tasks."""
    name = f"loaded_{request.node.name}".replace("[", "_").replace("]", "")
    queue = Queue("mail", redis="redis://localhost")

    def load(text: str) -> Queue:
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        found: Any = importlib.util.module_from_spec(spec)
        found.queue = queue
        sys.modules[name] = found
        spec.loader.exec_module(found)
        return queue

    yield load
    sys.modules.pop(name, None)


def test_two_functions_of_one_name_in_one_module_are_refused(module: Any):
    with pytest.raises(UsageError, match="has a task 'send' already"):
        module(TWO)
    with pytest.raises(UsageError, match="has a handler already"):
        module(TWO.replace("queue.task(max_attempts=1)", "queue.handler").replace("queue.task", "queue.handler"))
    with pytest.raises(UsageError, match="has a task 'a' already"):
        module("queue.task(name='a')(lambda: 1)\n\nqueue.task(name='a')(lambda: 2)\n")


@pytest.mark.parametrize("known", [[], ["pass\n"]], ids=["alone", "in python -c, since Python 3.13"])
def test_two_functions_of_one_name_in_text_that_is_run_are_refused(monkeypatch: pytest.MonkeyPatch, known: list[str]):
    monkeypatch.setitem(linecache.cache, "<string>", (4, None, known, "<string>"))

    with pytest.raises(UsageError, match="has a task 'send' already"):
        exec(TWO, {"queue": Queue("mail", redis="redis://localhost"), "__name__": "made"})


def test_a_module_that_is_loaded_again_may_register_its_functions_again(module: Any):
    one = "\n@queue.task\n\ndef send(to): ...\n"
    for text in (one, one, "\n\n\n" + one, "import re\n" + one, one.replace("@queue", "@(lambda f: f)\n@queue"), one):
        queue = module(text)

    assert queue.registry.names == ("send",)


@pytest.mark.parametrize(
    "twice",
    [
        "class Mailer:\n    def send(self): ...\nfor _ in range(2): queue.task(Mailer().send)",
        "for sender in ('a', 'b'): queue.task(name='send')(partial(plain, sender))",
        "for sender in ('a', 'b'):\n    @queue.task\n    def send(sender=sender): ...",
    ],
    ids=["methods of two objects", "partials with different arguments", "a def in a loop"],
)
def test_one_function_that_would_do_different_things_under_one_name_is_refused(module: Any, twice: str):
    with pytest.raises(UsageError, match="has a task 'send' already"):
        module(f"from functools import partial\ndef plain(sender): ...\n{twice}\n")


def test_the_same_function_may_be_registered_twice(queue: Handle):
    report = Report()

    for _ in range(2):
        queue.task(report.send)  # each access to a method creates a new object
        queue.task(Report.make)
        queue.task(name="partial")(functools.partial(report.send, "ada"))

    assert queue.registry.names == ("send", "make", "partial")
