"""Declared graphs as an application uses them: all of their time in a moment, on a real server."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from schedq import (
    ArgumentsError,
    BatchResults,
    Conflict,
    Fixed,
    Flow,
    FlowNode,
    JobCancelled,
    JobFailed,
    Queue,
    Task,
    UsageError,
    WorkflowContext,
    current_job,
    inherit_headers,
)
from schedq.connection.async_client import AsyncClient
from schedq.testing import QueueTester

HOUR = timedelta(hours=1)


@pytest.fixture
def queue(tester: QueueTester) -> Queue:
    """A queue whose retries follow after a minute."""
    return Queue("shop", backoff=Fixed(60))


@pytest.fixture
def ran() -> list[str]:
    """The names that jobs noted, in their order."""
    return []


@pytest.fixture
def note(queue: Queue, ran: list[str]) -> Task[[str], str]:
    """A task that notes its name."""

    @queue.task(name="note")
    def note(name: str) -> str:
        ran.append(name)
        return name

    return note


@pytest.fixture
def broken(queue: Queue, ran: list[str]) -> Task[[str], str]:
    """A task that fails at its first call, and completes later."""
    failed: set[str] = set()

    @queue.task(name="broken", max_attempts=1)
    def broken(name: str) -> str:
        ran.append(name)
        if name in failed:
            return name
        failed.add(name)
        raise ValueError(f"no {name}")

    return broken


# -- results


def test_results_flow_along_the_arguments(tester: QueueTester, queue: Queue):
    @queue.task
    def files(where: str) -> list[str]:
        return [f"{where}/{n}" for n in range(3)]

    @queue.task
    def size(path: str) -> int:
        return len(path) + int(path[-1])

    @queue.task
    def total(parts: BatchResults[int], more: list[Any], *, extra: dict[str, Any]) -> dict[str, Any]:
        return {"sum": sum(parts), "more": more, "extra": extra}

    flow = queue.flow("etl")
    found = flow.call(files, "s3")
    sizes = flow.map(size, found.result, concurrency=2)
    end = flow.call(total, sizes.result, [1, found.result], extra={"from": found.result, "n": 2.5})
    job = flow.start(end)
    tester.run_due()

    listed = ["s3/0", "s3/1", "s3/2"]
    assert job.result(0) == {"sum": 15, "more": [1, listed], "extra": {"from": listed, "n": 2.5}}


def test_arguments_and_results_have_the_types_of_annotations(tester: QueueTester, queue: Queue):
    @queue.task
    def tomorrow(day: datetime) -> datetime:
        return day + timedelta(days=1)

    flow = queue.flow("days")
    node = flow.call(tomorrow, datetime(2026, 5, 1))
    for _ in range(2):
        node = flow.call(tomorrow, node.result)
    job = flow.start(node)
    tester.run_due()

    assert job.result(0) == datetime(2026, 5, 4)


@pytest.mark.parametrize("items", ["results of a map", "a list", "calls", "results in a list", "no items"])
def test_a_map_over(items: str, tester: QueueTester, queue: Queue, note: Task[[str], str]):
    @queue.task
    def together(names: BatchResults[str]) -> str:
        return " ".join(names)

    flow = queue.flow("mapped")
    one, two = flow.call(note, "one"), flow.call(note, "two")
    given: dict[str, Any] = {
        "results of a map": lambda: flow.map(note, ["one", "two"]).result,
        "a list": lambda: ["one", "two"],
        "calls": lambda: [note.with_args("one"), note.with_args("two")],
        "results in a list": lambda: [one.result, two.result],
        "no items": list,
    }
    job = flow.start(flow.call(together, flow.map(note, given[items]()).result))
    tester.run_due()

    assert job.result(0) == ("" if items == "no items" else "one two")


def test_a_flow_of_a_function_is_a_task(tester: QueueTester, queue: Queue, note: Task[[str], str]):
    @queue.flow
    def twice(flow: Flow, name: str, times: int = 2) -> FlowNode[str]:
        node = flow.call(note, name)
        for _ in range(times - 1):
            node = flow.call(note, node.result)
        return node

    @queue.flow(name="all of them")
    def every(flow: Flow) -> None:
        flow.options(after=flow.call(twice, "a")).map(twice, ["b", "c"])

    job = every.options(job_id="night-1").enqueue()
    tester.run_due()

    assert job.result(0) is None
    assert twice.enqueue("x", times=1).id != job.id
    with pytest.raises(ArgumentsError, match="missing a required argument"):
        twice.enqueue()  # type: ignore[call-overload]


def test_a_function_declares_a_flow_once(tester: QueueTester, queue: Queue, note: Task[[str], str]):
    calls = []

    @queue.flow
    def two(flow: Flow) -> FlowNode[str]:
        calls.append(1)
        return flow.call(note, flow.call(note, f"after {len(calls)}").result)

    job = two.enqueue()
    tester.run_due()

    assert job.result(0) == "after 1"
    assert len(calls) == 1


def test_workflows_and_schedules_run_flows(tester: QueueTester, queue: Queue, ran: list[str], note: Task[[str], str]):
    @queue.every(3600)
    @queue.flow
    def hourly(flow: Flow) -> FlowNode[str]:
        return flow.call(note, "hourly")

    @queue.workflow
    async def caller(ctx: WorkflowContext) -> str:
        return await ctx.call(hourly) + " called"

    job = caller.enqueue()
    tester.run_due()
    assert job.result(0) == "hourly called"
    tester.fast_forward(2 * HOUR)

    assert ran == ["hourly"] * 3


# -- conditions

FATES = {"ok": "note", "bad": "broken"}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("ok", "ok", "success ended"), ("ok", "bad", "failure ended"), ("bad", "bad", "failure ended")],
)
def test_what_has_to_have_become_of_the_nodes_before(
    first: str, second: str, expected: str, tester: QueueTester, queue: Queue, ran: list[str], note: Any, broken: Any
):
    tasks = {"ok": note, "bad": broken}
    flow = queue.flow("when")
    before = [flow.call(tasks[first], "1"), flow.call(tasks[second], "2")]
    for when in ("success", "failure", "ended"):
        flow.options(after=before, when=when).call(note, when)
    job = flow.start()
    tester.run_due()

    assert ran[2:] == expected.split()
    assert job.status() == ("completed" if "success" in expected else "failed")


def test_what_comes_after_a_failure_is_skipped_and_can_say_why(
    tester: QueueTester, queue: Queue, ran: list[str], note: Any, broken: Any
):
    flow = queue.flow("skips")
    bad = flow.call(broken, "x")
    far = flow.call(note, flow.call(note, bad.result).result)
    flow.options(after=far, when="failure").call(note, far.error)
    flow.options(after=flow.options(after=far, when="ended").call(note, "clean up")).call(note, "cleaned")
    quiet = flow.options(after=flow.call(note, "fine"), when="failure").call(note, "never")
    flow.options(after=quiet).call(note, "never either")
    job = flow.start(far)
    tester.run_due()

    assert sorted(ran) == ["broken: ValueError: no x", "clean up", "cleaned", "fine", "x"]
    with pytest.raises(JobFailed, match="node broken: ValueError: no x"):
        job.result(0)


def test_a_map_tolerates_some_failures(tester: QueueTester, queue: Queue, ran: list[str], broken: Any):
    @queue.task
    def count(names: BatchResults[str]) -> int:
        return len([*names])

    flow = queue.flow("tolerant")
    some = flow.map(broken.options(max_attempts=2), ["a", "b"], tolerate=1)
    none = flow.map(broken, ["c", "d"], tolerate=1)
    end = flow.call(count, some.result)
    flow.options(after=none).call(count, none.result)
    job = flow.start(end)
    tester.fast_forward()

    assert job.status() == "failed"
    assert "2 of 2 jobs failed" in str(job.record().last_error)


# -- races


def test_the_first_to_complete_wins_and_the_others_are_called_off(
    tester: QueueTester, queue: Queue, ran: list[str], note: Any, broken: Any
):
    @queue.workflow
    async def slow(ctx: WorkflowContext, seconds: int) -> str:
        await ctx.sleep(seconds)
        await ctx.step(ran.append, f"slept {seconds}")
        return f"after {seconds}"

    flow = queue.flow("race")
    bad, long, short = flow.call(broken, "x"), flow.call(slow, 300), flow.call(slow, 60)
    far = flow.call(note, flow.call(slow, 500).result)
    winner = flow.first(bad, long, short, far)
    flow.call(note, long.result)
    job = flow.start(flow.call(note, winner.result))
    tester.fast_forward()

    assert job.result(0) == "after 60"
    assert ran == ["x", "slept 60", "after 60", "slept 500"]


def test_racers_of_several_types(tester: QueueTester, queue: Queue, note: Any):
    @queue.task
    def day() -> datetime:
        return datetime(2026, 5, 1)

    @queue.workflow
    async def later(ctx: WorkflowContext) -> str:
        await ctx.sleep(60)
        return "later"

    same, other = queue.flow("same"), queue.flow("other")
    jobs: list[Any] = [
        same.start(same.first(same.call(day), same.call(day.options(max_attempts=2)))),
        other.start(other.first(other.call(later), other.call(note, "text"))),
    ]
    tester.fast_forward()

    assert [job.result(0) for job in jobs] == [datetime(2026, 5, 1), "text"]


def test_a_race_that_nobody_wins_fails(tester: QueueTester, queue: Queue, broken: Any):
    flow = queue.flow("lost")
    job = flow.start(flow.first(flow.call(broken, "a"), flow.call(broken, "b")))
    tester.run_due()

    assert job.status() == "failed"
    error = str(job.record().last_error)
    assert "node broken: ValueError: no a; node broken 2: ValueError: no b" in error
    assert "node first: none of its nodes completed" in error


# -- operators


def test_a_start_with_an_id_is_idempotent(tester: QueueTester, queue: Queue, ran: list[str], note: Any):
    def start(name: str) -> Any:
        flow = queue.flow("daily")
        return flow.start(flow.call(note, name), job_id="daily-1")

    queue.before_enqueue(lambda job: job.headers.setdefault("at", str(tester.clock())))
    first = start("x")
    tester.fast_forward(HOUR)
    again = start("x")
    assert (first.created, again.created) == (True, False)
    with pytest.raises(Conflict, match="daily-1"):
        start("y")

    assert again.result(0) == "x"
    assert ran == ["x"]


def test_cancelling_a_flow_cancels_its_jobs(tester: QueueTester, queue: Queue, ran: list[str], note: Any):
    @queue.workflow
    async def slow(ctx: WorkflowContext, name: str) -> None:
        await ctx.sleep(HOUR)
        await ctx.step(ran.append, name)

    flow = queue.flow("long")
    flow.map(slow, [str(n) for n in range(20)], concurrency=3)
    flow.options(after=flow.call(slow, "one")).call(note, "two")
    job = flow.start()
    tester.run_due()
    assert queue.stats().delayed_depth == 5
    assert job.cancel() == "cancelled"
    tester.fast_forward()

    assert ran == []
    assert queue.stats().delayed_depth == 0
    with pytest.raises(JobCancelled):
        job.result(0)


def test_a_paused_flow_begins_nothing_until_it_is_resumed(tester: QueueTester, queue: Queue, ran: list[str], note: Any):
    @queue.task
    def pausing(name: str) -> str:
        assert asyncio.run(job.apause())
        return name

    flow = queue.flow("paused")
    second = flow.call(pausing, flow.call(note, "one").result)
    job = flow.start(flow.call(note, second.result))
    assert job.pause()
    tester.run_due()
    assert (ran, job.status()) == ([], "delayed")
    assert "paused" in job.why().text
    assert job.resume()
    tester.run_due()
    assert (ran, job.status()) == (["one"], "delayed")
    assert asyncio.run(job.aresume())
    tester.run_due()

    assert ran == ["one"] * 2
    assert job.result(0) == "one"
    assert not job.pause()
    assert not queue.job("none").resume()


def test_only_flows_are_paused(tester: QueueTester, queue: Queue, note: Any):
    @queue.workflow
    async def other(ctx: WorkflowContext) -> None:
        await ctx.sleep(HOUR)

    waits, plain = other.enqueue(), note.enqueue("x")
    with pytest.raises(UsageError, match="is not one of a flow"):
        plain.pause()
    tester.run_due()
    with pytest.raises(UsageError, match="is not one of a flow"):
        waits.pause()


def test_requeue_runs_again_what_failed_and_what_depends_on_it(
    tester: QueueTester, queue: Queue, ran: list[str], note: Any, broken: Any
):
    flow = queue.flow("again")
    good, bad = flow.call(note, "good"), flow.call(broken, "bad")
    end = flow.options(after=good).call(note, bad.result)
    flow.options(after=[good, bad], when="failure").call(note, "alarm")
    clean = flow.options(after=[end], when="ended").call(note, "clean up")
    flow.options(after=clean).call(note, "cleaned")
    flow.map(broken, ["p1", "p2"])
    job = flow.start(end)
    tester.run_due()
    assert sorted(ran) == ["alarm", "bad", "clean up", "cleaned", "good", "p1", "p2"]
    del ran[:]
    assert job.requeue()
    tester.run_due()

    assert sorted(ran) == ["bad", "bad", "clean up", "cleaned", "p1", "p2"]
    assert job.result(0) == "bad"


def test_the_deadline_of_a_flow(tester: QueueTester, queue: Queue, note: Any):
    @queue.workflow
    async def slow(ctx: WorkflowContext) -> None:
        await ctx.sleep(HOUR)

    @queue.flow(run_timeout=60)
    def brief(flow: Flow) -> None:
        flow.options(after=flow.call(slow)).call(note, "late")

    job = brief.enqueue()
    tester.fast_forward()

    assert job.status() == "failed"
    assert "run_timeout" in str(job.record().last_error)


def test_headers_come_from_the_flow_and_from_functions_before_enqueue(tester: QueueTester, queue: Queue):
    seen: list[Any] = []

    @queue.task
    def look() -> None:
        seen.append(dict(current_job().headers))

    queue.before_enqueue(inherit_headers("tenant"))
    flow = queue.flow("headers")
    flow.call(look.options(headers={"own": "1"}))
    flow.start(headers={"tenant": "seven"})
    tester.run_due()

    assert seen == [{"own": "1", "tenant": "seven"}]


def test_gates_and_keys_of_jobs_apply(tester: QueueTester, queue: Queue):
    ran: list[str] = []

    @queue.task(key="user", key_concurrency=1)
    def mail(user: str) -> str:
        ran.append(f"{user} {current_job().key}")
        return user

    flow = queue.flow("keyed")
    one = flow.call(mail, "ada")
    flow.map(mail, ["bob", "eve"])
    flow.call(mail.options(key="fixed"), one.result)
    with pytest.raises(UsageError, match=r"mail\.options\(key="):
        flow.call(mail, one.result)
    with pytest.raises(UsageError, match=r"mail\.options\(key="):
        flow.map(mail, flow.map(mail, ["x"]).result)
    flow.start()
    tester.run_due()

    assert sorted(ran) == ["ada ada", "ada fixed", "bob bob", "eve eve", "x x"]


# -- size


def test_many_nodes_at_once(tester: QueueTester, queue: Queue):
    @queue.task
    def add(*numbers: int) -> int:
        return sum(numbers)

    flow = queue.flow("wide")
    leaves = [flow.call(add, n) for n in range(150)]
    parts = [flow.call(add, *(leaf.result for leaf in leaves[at::10])) for at in range(10)]
    job = flow.start(flow.call(add, *(part.result for part in parts)))
    tester.run_due()

    assert job.result(0) == sum(range(150))


def test_a_link_takes_one_attempt_of_the_flow_and_four_requests(
    tester: QueueTester, queue: Queue, note: Any, monkeypatch: pytest.MonkeyPatch
):
    sent: list[list[str]] = []
    real = AsyncClient.execute

    async def execute(client: AsyncClient, operations: Any) -> Any:
        sent.append([each.name for each in operations])
        return await real(client, operations)

    monkeypatch.setattr(AsyncClient, "execute", execute)  # of which only the flow has one here
    flow = queue.flow("links")
    node = flow.call(note, "x")
    for _ in range(9):
        node = flow.call(note, node.result)
    job = flow.start(node)
    attempts = tester.run_due()

    assert job.result(0) == "x"
    assert attempts == 10 + 11
    assert sent[4:8] == [["recall"], ["group", "group", "results", "failures"], ["step"], ["fill_group", "drop_group"]]
    assert len(sent) == 4 + 9 * 4 + 3
