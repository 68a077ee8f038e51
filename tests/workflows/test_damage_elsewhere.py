"""Damage to one run, or to the batch of one run in another queue, keeps no other run waiting."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import Fixed, Snooze, WorkflowContext
from schedq.testing import QueueTester
from schedq.transitions import groups
from tests.workflows.test_other_queues import TwoQueues, connected


@pytest.fixture
def queue(tester: QueueTester) -> TwoQueues:
    """The queue of the workflows."""
    return TwoQueues("shop", backoff=Fixed(60))


@pytest.fixture
def film(queue: TwoQueues) -> Any:
    """A workflow that waits for a job of the other queue, which is late."""

    @queue.gpu.task
    def late() -> int:
        raise Snooze(600)

    @queue.workflow(max_attempts=1)
    async def film(ctx: WorkflowContext) -> int:
        result: int = await ctx.call(late)
        return result

    return film


def test_a_run_whose_batch_is_damaged_fails_and_others_are_woken(tester: QueueTester, queue: TwoQueues, film: Any):
    jobs = [film.enqueue(), film.enqueue()]
    tester.run_due()
    damaged, gone = [batch.id for batch in queue.gpu.list_batches()]
    of = {job.record().fields["waits"].split('"')[-2]: job for job in jobs}
    with connected() as client:
        client.delete(queue.gpu.settings.keys.group(damaged))
        client.set(queue.gpu.settings.keys.group(damaged), "x")
    queue.gpu.batch(gone).delete()

    tester.fast_forward(30)

    assert of[damaged].status() == "failed"
    assert "WRONGTYPE" in of[damaged].record().last_error
    assert of[gone].status() == "delayed"
    assert len(queue.gpu.list_batches()) == 2  # the damaged one, and the one that was made again


def test_a_run_whose_record_is_damaged_keeps_no_other_asleep(tester: QueueTester, queue: TwoQueues, film: Any):
    jobs = [film.enqueue(), film.enqueue()]
    tester.run_due()
    names = {job.record().fields["waits"].split('"')[-2]: job.id for job in jobs}
    first, other = names
    key = queue.settings.keys.job(names[first])
    with connected() as client:
        client.rename(key, "elsewhere")
        client.set(key, "x")

        woken = queue.connections.blocking.execute([groups.wake(queue.settings, [first, other])])

        assert woken == [1]
        assert client.lrange(queue.settings.keys.pending, 0, -1) == [names[other]]
