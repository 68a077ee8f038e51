"""Context managers around the function of each attempt are entered in its own thread or asyncio task."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from schedq import AttemptFacts, Depends, UsageError
from schedq.testing import run_due
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew, Gate
from tests.worker.layers import KINDS, handler
from tests.worker.processes import outcome

BY = ["a worker", "run_due"]
place: ContextVar[str] = ContextVar("place", default="outside")


@pytest.fixture(autouse=True)
def _without_django(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once another test has loaded Django, `run_due` runs async code in a thread of Django's."""
    monkeypatch.delitem(sys.modules, "django.db", raising=False)


def run(queue: Handle, crew: Crew, by: str) -> None:
    if by == "run_due":
        run_due(queue.queue)
    else:
        crew.start(queue)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_entered_where_the_function_runs(queue: Handle, crew: Crew, kind: str, by: str):
    seen: list[tuple[str, int]] = []

    @queue.queue.around
    @contextmanager
    def inside(attempt: AttemptFacts) -> Iterator[None]:
        token = place.set(f"inside {attempt.task} {attempt.job.attempts}")
        seen.append(("enter", threading.get_ident()))
        yield
        seen.append(("exit", threading.get_ident()))
        place.reset(token)

    job = queue.task(name="where")(handler(kind, lambda: [place.get(), threading.get_ident()])).enqueue()

    run(queue, crew, by)

    found, thread = outcome(queue, job.id).result
    until(lambda: len(seen) == (4 if kind == "awaitable" else 2))
    assert found == "inside where 1"
    assert seen[-2:] == [("enter", thread), ("exit", thread)]
    assert place.get() == "outside"


@pytest.mark.parametrize("by", BY)
def test_dependencies_are_inside_where_they_are_created_there(queue: Handle, crew: Crew, by: str):
    @queue.queue.around
    @contextmanager
    def inside(attempt: AttemptFacts) -> Iterator[None]:
        token = place.set("inside")
        yield
        place.reset(token)

    def plain_one() -> Iterator[str]:
        yield place.get()
        assert place.get() == "inside"

    async def async_one() -> str:
        return place.get()

    @queue.task
    def plain(one: str = Depends(plain_one)) -> list[str]:
        return [one, place.get()]

    @queue.task
    async def coro(one: str = Depends(plain_one), two: str = Depends(async_one)) -> list[str]:
        return [one, two, place.get()]

    jobs = [task.enqueue() for task in (plain, coro)]
    run(queue, crew, by)

    assert [outcome(queue, job.id).result for job in jobs] == [["inside"] * 2, ["inside"] * 3]


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("kind", KINDS)
def test_it_sees_the_error_and_can_not_suppress_it(queue: Handle, crew: Crew, kind: str, by: str):
    seen: list[str] = []

    @contextmanager
    def layer(name: str) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(f"{name} {error}")

    queue.queue.around(lambda attempt: layer("outer"))
    queue.queue.around(lambda attempt: layer("inner"))

    def fail() -> None:
        raise ValueError("no")

    job = queue.task(name="fails", max_attempts=1)(handler(kind, fail)).enqueue()
    run(queue, crew, by)

    assert outcome(queue, job.id).last_error == "ValueError: no"
    assert seen[0] == "inner no"


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("at", ["enter", "exit"])
def test_its_own_error_fails_the_attempt_and_the_others_are_left(queue: Handle, crew: Crew, by: str, at: str):
    seen: list[str] = []

    @contextmanager
    def outer(attempt: AttemptFacts) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            seen.append(str(error))
            raise

    @contextmanager
    def broken(attempt: AttemptFacts) -> Iterator[None]:
        if at == "enter":
            raise RuntimeError("broken")
        yield
        raise RuntimeError("broken")

    queue.queue.around(outer)
    queue.queue.around(broken)
    job = queue.task(lambda: seen.append("run"), name="works", max_attempts=1).enqueue()
    run(queue, crew, by)

    assert outcome(queue, job.id).last_error == "RuntimeError: broken"
    assert seen == (["broken"] if at == "enter" else ["run", "broken"])


def test_after_a_timeout_it_is_left_with_the_error_when_the_thread_ends(queue: Handle, crew: Crew, gate: Gate):
    seen: list[str] = []

    @queue.queue.around
    @contextmanager
    def inside(attempt: AttemptFacts) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            seen.append(str(error))
            raise

    job = queue.task(gate.wait, name="hangs", timeout=0.3, max_attempts=1).enqueue()
    crew.start(queue)
    assert outcome(queue, job.id).status == "failed"
    assert seen == []

    gate.open()

    until(lambda: seen == ["timed out after 0.3 s"])


def test_async_attempts_at_the_same_time_do_not_share_it(queue: Handle, crew: Crew):
    @queue.queue.around
    @contextmanager
    def inside(attempt: AttemptFacts) -> Iterator[None]:
        token = place.set(attempt.job.id)
        yield
        place.reset(token)

    running: list[None] = []

    @queue.task
    async def coro() -> str:
        running.append(None)
        while len(running) < 3:
            await asyncio.sleep(0.01)
        return place.get()

    jobs = [coro.enqueue() for _ in range(3)]
    crew.start(queue, concurrency=3)

    assert [outcome(queue, job.id).result for job in jobs] == [job.id for job in jobs]


async def coroutine(attempt: AttemptFacts) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (coroutine, "is async; write def"),
        (lambda: None, "can't be called with one"),
        (AttemptFacts, "takes a function"),
        ("inside", "got 'inside'"),
    ],
)
def test_a_mistake_is_reported_at_once(queue: Handle, wrong: Any, why: str):
    with pytest.raises(UsageError, match=why):
        queue.queue.around(wrong)


def test_it_is_refused_once_a_worker_has_started(queue: Handle, crew: Crew):
    queue.task(lambda: None, name="nothing")
    crew.start(queue)
    until(lambda: queue.queue.registry._has_started)

    with pytest.raises(UsageError, match="around comes too late"):
        queue.queue.around(lambda attempt: contextmanager(lambda: iter([None]))())
