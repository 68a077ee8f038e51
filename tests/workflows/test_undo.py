"""Steps of a workflow are undone, the newest first, when it fails for good or is cancelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from schedq import Discard, Fixed, Queue, Task, UsageError, WorkflowContext
from schedq.errors import StepFailed
from schedq.testing import QueueTester

DAY = timedelta(days=1)


class Shop:
    """An application whose workflow reserves, charges and waits for a message; it notes what was done."""

    def __init__(self) -> None:
        self.queue = Queue("shop", backoff=Fixed(0))
        self.done: list[str] = []
        self.fails: dict[str, list[Exception]] = {}
        self.release: Task[..., Any] = self.queue.task(name="release")(self.act_with)
        self.refund: Task[..., Any] = self.queue.task(name="refund", max_attempts=2)(self.act_later)

    def act(self, name: str) -> str:
        self.done.append(name)
        if self.fails.get(name):
            raise self.fails[name].pop(0)
        return name

    def act_with(self, number: object) -> str:
        return self.act(f"release {number}")

    async def act_later(self, name: str) -> str:
        return self.act(name)

    async def begin(self, ctx: WorkflowContext) -> None:
        await ctx.options(name="reserve", undo=self.release.with_args(1)).step(self.act, "reserve")
        await ctx.options(name="charge", undo=self.refund.with_args("refund")).step(self.act, "charge")

    def workflow(self, end: Callable[[WorkflowContext], Any], **options: Any) -> Task[[], Any]:
        async def order(ctx: WorkflowContext) -> Any:
            await self.begin(ctx)
            return await end(ctx)

        return self.queue.workflow(**options)(order)


UNDONE = ["reserve", "charge", "refund", "release 1"]


@pytest.fixture
def shop(tester: QueueTester) -> Shop:
    return Shop()


async def waits(ctx: WorkflowContext) -> None:
    await ctx.receive("go")


def run_order(shop: Shop, tester: QueueTester, end: Callable[[WorkflowContext], Any] = waits, **options: Any) -> Any:
    job = shop.workflow(end, **options).enqueue()
    tester.run_due()
    return job


def test_a_step_that_fails_for_good_is_undone_with_all_before_it(shop: Shop, tester: QueueTester):
    shop.fails["charge"] = [ValueError("no money")] * 3

    job = run_order(shop, tester)

    assert shop.done == ["reserve", "charge", "charge", "charge", "refund", "release 1"]
    assert job.status() == "failed"
    assert job.record().last_error.startswith("StepFailed: step charge: ValueError: no money")


def test_what_the_workflow_discards_is_undone_and_it_fails_with_that(shop: Shop, tester: QueueTester):
    async def discards(ctx: WorkflowContext) -> None:
        raise Discard("no one picked it")

    job = run_order(shop, tester, discards)

    assert shop.done == UNDONE
    assert (job.status(), job.record().last_error) == ("failed", "no one picked it")


def test_a_run_that_took_too_long_is_undone(shop: Shop, tester: QueueTester):
    job = run_order(shop, tester, run_timeout=DAY)
    tester.fast_forward(DAY)

    assert shop.done == UNDONE
    assert "run_timeout" in job.record().last_error


@pytest.mark.parametrize("state", ["suspended", "pending"])
def test_a_run_that_is_cancelled_is_undone_before_it_counts_as_cancelled(shop: Shop, tester: QueueTester, state: str):
    job = run_order(shop, tester)
    if state == "pending":
        job.send("go", 1)

    assert job.cancel() == "asked"
    assert job.cancel() == "asked"
    assert shop.done == ["reserve", "charge"]
    assert "it undoes its steps, because it was cancelled: charge, reserve" in job.why().text
    tester.run_due()

    assert shop.done == UNDONE
    assert (job.status(), job.record().last_error) == ("cancelled", "")


def test_a_run_that_completes_undoes_nothing(shop: Shop, tester: QueueTester):
    job = run_order(shop, tester)
    job.send("go", 1)
    tester.run_due()

    assert (job.status(), shop.done) == ("completed", ["reserve", "charge"])


def test_a_mistake_in_the_code_undoes_nothing_and_a_requeue_continues(shop: Shop, tester: QueueTester):
    wrong = [True]

    async def mistaken(ctx: WorkflowContext) -> str:
        if wrong:
            raise NameError("name 'shpi' is not defined")
        return "shipped"

    job = run_order(shop, tester, mistaken)
    assert (job.status(), shop.done) == ("failed", ["reserve", "charge"])
    assert "2 of its steps are not undone (charge, reserve): requeue it to continue, or undo it" in job.why().text
    wrong.clear()
    assert job.requeue()
    tester.run_due()

    assert (job.result(0), shop.done) == ("shipped", ["reserve", "charge"])


def test_what_a_mistake_has_left_can_be_undone_by_hand(shop: Shop, tester: QueueTester):
    async def mistaken(ctx: WorkflowContext) -> None:
        raise NameError("name 'shpi' is not defined")

    job = run_order(shop, tester, mistaken)
    assert job.undo()
    tester.run_due()

    assert shop.done == UNDONE
    assert job.record().last_error == "NameError: name 'shpi' is not defined"
    assert not job.undo()
    assert not shop.queue.undo("nothing")


def test_an_undo_is_tried_again_by_its_own_options_and_what_it_returns_is_not_kept(shop: Shop, tester: QueueTester):
    shop.fails["refund"] = [ConnectionError("the bank is away")]
    shop.refund = shop.refund.options(backoff=Fixed(60))
    job = run_order(shop, tester)
    job.cancel()
    tester.run_due()

    assert shop.done == ["reserve", "charge", "refund"]
    assert "step ~undo charge is tried again in 1 min" in job.why().text
    tester.fast_forward(60)
    assert (shop.done, job.status()) == ([*UNDONE[:3], *UNDONE[2:]], "cancelled")


def test_an_undo_that_fails_for_good_leaves_the_rest_and_a_requeue_undoes_it(shop: Shop, tester: QueueTester):
    shop.fails["refund"] = [ValueError("no such payment")] * 2
    job = run_order(shop, tester)
    job.cancel()
    tester.run_due()

    assert (shop.done, job.status()) == (["reserve", "charge", "refund", "refund"], "failed")
    assert "step charge could not be undone: ValueError: no such payment" in job.record().last_error
    assert "2 of its steps are not undone (charge, reserve): requeue it to undo the rest" in job.why().text
    shop.done.clear()
    assert job.requeue()
    tester.run_due()

    assert (shop.done, job.status()) == (["refund", "release 1"], "cancelled")


def test_a_run_that_was_undone_begins_anew_when_it_is_requeued(shop: Shop, tester: QueueTester):
    keys: list[str] = []

    async def ends(ctx: WorkflowContext) -> None:
        keys.append(ctx.key("payment"))
        if len(keys) == 1:
            raise Discard("no")

    job = run_order(shop, tester, ends)
    shop.done.clear()
    job.requeue()
    tester.run_due()

    assert (shop.done, job.status()) == (["reserve", "charge"], "completed")
    assert len(set(keys)) == 2


def test_what_is_kept_is_not_undone(shop: Shop, tester: QueueTester):
    async def ships(ctx: WorkflowContext) -> None:
        await ctx.keep()
        await ctx.options(name="ship", undo=shop.release.with_args(2)).step(shop.act, "ship")
        raise Discard("the review failed")

    job = run_order(shop, tester, ships)

    assert shop.done == ["reserve", "charge", "ship", "release 2"]
    assert job.status() == "failed"


def test_starting_over_needs_that_what_was_done_is_kept(shop: Shop, tester: QueueTester):
    turns: list[int] = []

    async def again(ctx: WorkflowContext) -> None:
        turns.append(1)
        if len(turns) > 1:
            await ctx.keep()
        if len(turns) < 3:
            await ctx.start_over()

    job = run_order(shop, tester, again, max_attempts=2)

    assert job.status() == "completed"
    assert shop.done == ["reserve", "charge"] * 2
    assert "call ctx.keep() first" in job.record().fields.get("history", "")


def test_steps_of_branches_are_undone_by_the_order_in_which_they_began(shop: Shop, tester: QueueTester):
    async def books(ctx: WorkflowContext, name: str, wait: float) -> None:
        await ctx.sleep(wait)
        await ctx.options(name="book", undo=shop.release.with_args(name)).step(shop.act, name)
        if name == "hotel":
            raise Discard("no flight")

    async def trip(ctx: WorkflowContext) -> None:
        await ctx.gather(books(ctx, "hotel", 120), books(ctx, "car", 60))

    job = run_order(shop, tester, trip)
    tester.fast_forward(180)

    assert shop.done == ["reserve", "charge", "car", "hotel", "release hotel", "release car", "refund", "release 1"]
    assert job.status() == "failed"


def test_a_child_that_is_called_off_undoes_its_own_steps(shop: Shop, tester: QueueTester):
    child = shop.workflow(waits)

    @shop.queue.workflow
    async def parent(ctx: WorkflowContext) -> None:
        await ctx.call(child)

    job = parent.enqueue()
    tester.run_due()
    assert job.cancel() == "cancelled"
    tester.fast_forward(60)

    assert shop.done == UNDONE


def test_a_purge_lets_runs_undo_their_steps_and_a_waiting_one_is_not_deleted(shop: Shop, tester: QueueTester):
    job, other = run_order(shop, tester), shop.queue.enqueue({"task": "release", "args": [9]}, delay=60)
    assert shop.queue.inspector.act("delete", [job.id]).refused == 1

    assert shop.queue.purge() == 1
    tester.run_due()

    assert (shop.done, job.status()) == (UNDONE, "cancelled")
    assert shop.queue.get_job(other) is None


@pytest.mark.parametrize(
    ("undo", "says"),
    [
        (lambda shop: shop.act, "undo must be a call of a task, as in undo=refund.with_args(5), got <bound method"),
        (lambda shop: shop.workflow(waits).with_args(), "task 'order' can't undo a step, because it is a workflow"),
        (lambda shop: shop.release.options(delay=5).with_args(1), "undo can't have delay="),
        (lambda shop: Queue("other").task(name="elsewhere")(print).with_args(), "a task of the run's queue"),
    ],
)
def test_what_can_not_be_an_undo_is_refused_before_the_step(
    shop: Shop, tester: QueueTester, undo: Callable[[Shop], Any], says: str
):
    given = undo(shop)

    @shop.queue.workflow(max_attempts=1, name="mistaken")
    async def mistaken(ctx: WorkflowContext) -> None:
        await ctx.options(undo=given).step(shop.act, "reserve")

    job = mistaken.enqueue()
    tester.run_due()

    assert shop.done == []
    assert says in job.record().last_error
    assert job.record().last_error.startswith(UsageError.__name__)


def test_jobs_of_a_run_have_no_undo(shop: Shop, tester: QueueTester):
    @shop.queue.workflow(max_attempts=1)
    async def calls(ctx: WorkflowContext) -> None:
        await ctx.options(undo=shop.release.with_args(1)).call(shop.release, 1)

    job = calls.enqueue()
    tester.run_due()

    assert (shop.done, job.status()) == ([], "failed")
    assert "only a step has an undo" in job.record().last_error


def test_a_failure_that_the_workflow_handles_undoes_nothing(shop: Shop, tester: QueueTester):
    async def handles(ctx: WorkflowContext) -> str:
        shop.fails["ship"] = [ValueError("no")]
        try:
            await ctx.options(name="ship", max_attempts=1).step(shop.act, "ship")
        except StepFailed:
            return "sent by mail"
        return "shipped"

    job = run_order(shop, tester, handles)

    assert (job.result(0), shop.done) == ("sent by mail", ["reserve", "charge", "ship"])


def test_an_undone_run_replays_as_it_failed(shop: Shop, tester: QueueTester):
    async def keeps(ctx: WorkflowContext) -> None:
        await ctx.keep()
        await ctx.options(name="ship", undo=shop.release.with_args(2)).step(shop.act, "ship")
        raise Discard("the review failed")

    job = run_order(shop, tester, keeps)

    assert shop.done[-1] == "release 2"
    tester.assert_replays(job)


def test_all_runs_of_a_task_are_cancelled_and_counted_once(shop: Shop, tester: QueueTester):
    task = shop.workflow(waits)
    jobs = [task.enqueue() for _ in range(3)]
    tester.run_due()

    assert shop.queue.cancel_task(task) == 3
    tester.run_due()

    assert [job.status() for job in jobs] == ["cancelled"] * 3
    assert Counter(shop.done) == dict.fromkeys(UNDONE, 3)
