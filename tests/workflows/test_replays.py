"""`assert_replays`: code of a workflow that takes another way when it runs again is found, and no step runs again."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from schedq import Discard, Queue, StepFailed, UsageError, WorkflowContext
from schedq.model.runs import Memo
from schedq.testing import QueueTester
from schedq.testing.large_memos import LargeMemos, large_memos

calls: list[Any] = []
numbers = itertools.count()


def note(*values: Any) -> Any:
    """A step."""
    calls.append(values)
    return values[0]


async def refuse(value: str) -> None:
    """A step that fails for good."""
    raise Discard(f"not {value}")


@pytest.fixture(autouse=True)
def none_called() -> None:
    calls.clear()


@pytest.fixture
def queue(tester: QueueTester) -> Queue:
    return Queue("shop")


async def steps_and_waits(ctx: WorkflowContext, n: int) -> list[Any]:
    found = [await ctx.step(note, n), await ctx.step(repr, object())]
    await ctx.sleep(3600)
    try:
        await ctx.receive("late", timeout=60)
    except TimeoutError:
        found.append(await ctx.receive("early"))
    return found


async def branches_and_a_race(ctx: WorkflowContext, n: int) -> Any:
    async def two(first: str, second: str) -> list[Any]:
        return [await ctx.step(note, first), await ctx.step(note, second)]

    found = await ctx.gather(two("a", "b"), ctx.step(note, "c"), ctx.gather(two("d", "e"), ctx.sleep(5)))
    race = await ctx.first(early=ctx.receive("early"), late=ctx.sleep(n), later=two("x", "y"))
    return [*found[0], *race]


async def a_failure_that_is_caught(ctx: WorkflowContext, n: int) -> str:
    try:
        await ctx.gather(ctx.step(refuse, "this"), ctx.sleep(n))
    except StepFailed as failed:
        await ctx.step(note, str(failed))
    return "done"


async def a_clean_up(ctx: WorkflowContext, n: int) -> int:
    await ctx.step(note, "lock")
    try:
        await ctx.sleep(n)
        await ctx.step(note, "use")
    finally:
        await ctx.step(note, "unlock")
    return n


async def a_failure(ctx: WorkflowContext, n: int) -> None:
    await ctx.step(note, n)
    await ctx.step(refuse, "that")


async def a_start_over(ctx: WorkflowContext, n: int, *, turn: int = 0) -> int:
    await ctx.step(note, turn)
    if turn < 2:
        await ctx.start_over(n, turn=turn + 1)
    return turn


STABLE = (steps_and_waits, branches_and_a_race, a_failure_that_is_caught, a_clean_up, a_failure, a_start_over)


@pytest.mark.parametrize("function", STABLE)
def test_a_stable_workflow_passes_and_calls_no_step(tester: QueueTester, queue: Queue, function: Any):
    hooks: list[str] = []
    workflow = queue.workflow(on_success=lambda *_: hooks.append("s"))(function)
    run = workflow.enqueue(30)
    run.send("early", "bird")
    tester.fast_forward()
    before = list(calls), list(hooks)

    tester.assert_replays(run)

    assert (calls, hooks) == before
    assert run.status() == ("failed" if function is a_failure else "completed")
    assert calls


async def a_random_argument(ctx: WorkflowContext, n: int) -> None:
    await ctx.step(note, next(numbers))


async def a_random_branch(ctx: WorkflowContext, n: int) -> None:
    await ctx.options(name=f"number {next(numbers)}").step(note, n)
    await ctx.sleep(60)


async def a_step_that_is_left_out(ctx: WorkflowContext, n: int) -> None:
    if not calls:
        await ctx.step(note, n)


async def another_result(ctx: WorkflowContext, n: int) -> int:
    await ctx.sleep(60)
    return next(numbers)


async def an_order_that_changes(ctx: WorkflowContext, n: int) -> None:
    for each in ("a", "b") if next(numbers) % 2 else ("b", "a"):
        await ctx.step(note, each)


async def a_failure_that_goes_away(ctx: WorkflowContext, n: int) -> None:
    await ctx.step(note, n)
    if next(numbers) < 10**9 and len(calls) == 1:
        calls.append("failed")
        raise Discard("the first time only")


UNSTABLE = {
    a_random_argument: r"it gives step note \(\d+\), and gave it \(\d+\) before",
    a_random_branch: "it begins number .*, a step that is not in its record",
    a_step_that_is_left_out: "it completes; it does not get to note",
    another_result: "with 1 of 1 results recorded, it completes; the job completed",
    an_order_that_changes: r"it gives step note \('.'\), and gave it \('.'\) before",
    a_failure_that_goes_away: "it completes; the job failed with the first time only",
}


@pytest.mark.parametrize("function", UNSTABLE)
def test_another_way_is_found(tester: QueueTester, queue: Queue, function: Any):
    run = queue.workflow(function).enqueue(30)
    tester.fast_forward()

    with pytest.raises(
        AssertionError, match=f"(?s)workflow {function.__name__} takes another way.*{UNSTABLE[function]}"
    ):
        tester.assert_replays(run)


def test_jobs_that_can_not_be_checked_are_refused(tester: QueueTester, queue: Queue):
    plain = queue.task(name="plain")(note).enqueue(1)
    waiting = queue.workflow(steps_and_waits).enqueue(1)

    tester.run_due()

    for job, text in ((plain, "none of a workflow"), (waiting, "is delayed")):
        with pytest.raises(UsageError, match=text):
            tester.assert_replays(job)
    with pytest.raises(UsageError, match="nothing is stored"):
        tester.assert_replays(queue.job("nosuch"))


async def large_results(ctx: WorkflowContext, n: int) -> int:
    page = await ctx.step(note, "x" * n)
    sent = await ctx.receive("page")
    pages = await ctx.gather(ctx.step(note, "y" * n), ctx.step(note, page + sent))
    return len(await ctx.step(note, "".join(pages)))


async def a_random_end_of_large_results(ctx: WorkflowContext, n: int) -> int:
    page = await ctx.step(note, "x" * n)
    return await ctx.step(note, page[: n - next(numbers) % 2])


@pytest.mark.parametrize("size", [1_000, 2_000, 100_000])
def test_results_of_any_size_that_a_record_can_hold_are_replayed(tester: QueueTester, queue: Queue, size: int):
    """A run that completes drops values of more than 1 KiB; the process that completed it still has them."""
    run = queue.workflow(large_results).enqueue(size)
    run.send("page", "z" * 50_000)
    tester.fast_forward()

    assert run.result(0) == size * 2 + 50_000
    tester.assert_replays(run)


def test_another_way_is_found_in_large_results_too(tester: QueueTester, queue: Queue):
    run = queue.workflow(a_random_end_of_large_results).enqueue(5_000)
    tester.fast_forward()

    with pytest.raises(AssertionError, match="it gives step note"):
        tester.assert_replays(run)


def test_large_results_of_a_run_that_was_completed_elsewhere_are_not_known(
    tester: QueueTester, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    run = queue.workflow(large_results).enqueue(2_000)
    run.send("page", "z")
    monkeypatch.setattr(large_memos, "keep", lambda *_: None)
    tester.fast_forward()

    with pytest.raises(UsageError, match="was not completed by run_due or fast_forward of this process"):
        tester.assert_replays(run)


def test_so_many_large_results_are_kept_at_most(monkeypatch: pytest.MonkeyPatch):
    memo = f'["step","ok","{"x" * 2000}",1,2,1,1]'
    monkeypatch.setattr("schedq.testing.large_memos._MOST_KEPT", 10 * len(memo))
    kept = LargeMemos()
    for number in range(12):
        kept.keep(f"job-{number}", {"step:a": memo, "step:b": '["step","ok",1,1,2,1,2]'})
    short = {"a": Memo("step", "ok", None, 1, 2, 1, 1)}

    known = [number for number in range(12) if kept.values_of(f"job-{number}", short)]
    assert known == [*range(2, 12)]
    assert not kept.values_of("job-5", {"a": Memo("step", "ok", None, 1, 3, 1, 1)}), "a run of another test"
