"""Annotations that only type checkers can read: from Python 3.14 on, they need no quotes."""

import sys
from typing import TYPE_CHECKING, Annotated

import pytest

from schedq import Depends, Flow, Queue, UsageError
from schedq.testing import QueueTester

if TYPE_CHECKING:
    from shop import Order  # type: ignore[import-not-found]

    from schedq import WorkflowContext

pytestmark = pytest.mark.skipif(sys.version_info < (3, 14), reason="names in annotations must exist here")


def till() -> str:
    return "till"


def test_a_task_stays_plain_json(tester: QueueTester, caplog: pytest.LogCaptureFixture):
    queue = Queue("shop")

    @queue.task
    def pay(order: Order, times: int, *, at: Annotated[str, Depends(till)] = Depends(till)) -> list[Order]:
        return [order] * times

    job = pay.enqueue({"id": 7}, 2)
    tester.run_due()

    assert job.result(0) == [{"id": 7}, {"id": 7}]
    assert "the annotation of parameter order can't be evaluated (NameError" in caplog.text


def test_workflows_flows_hooks_and_middleware_are_taken(tester: QueueTester):
    queue = Queue("shop")
    seen: list[str] = []

    def note(attempt: Order, result: Order) -> None:
        seen.append("note")

    @queue.use
    async def through(attempt: Order, call_next: Order) -> Order:
        seen.append("through")
        return await call_next()

    @queue.task(on_success=note)
    def pay(order: Order) -> Order:
        return order

    @queue.workflow
    async def buy(ctx: WorkflowContext, order: Order) -> Order:
        return await ctx.call(pay, order)

    @queue.flow
    def declared(flow: Flow, order: Order) -> None:
        flow.call(pay, order)

    jobs = [buy.enqueue(1), declared.enqueue(2)]
    tester.run_due()

    assert [job.status() for job in jobs] == ["completed", "completed"]
    assert seen.count("note") == 2
    assert seen.count("through") >= 4


def test_a_context_of_another_type_is_named():
    queue = Queue("shop")

    with pytest.raises(UsageError, match="annotated as 'Order'"):

        @queue.workflow
        async def buy(order: Order) -> None: ...
