"""Runs that wait for jobs of other queues, in virtual time."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from schedq import BatchResults, Fixed, Flow, JobFailed, Queue, Snooze, StoreUnavailable, UsageError, WorkflowContext
from schedq.connection.address import Address
from schedq.connection.async_client import AsyncClient
from schedq.inspect.run_tree import tree
from schedq.testing import QueueTester, run_due
from schedq.transitions import groups, stand_ins
from schedq.transitions.stand_ins import StandIn, calls_off
from tests.conftest import MakeQueue
from tests.state import State
from tests.workflows.test_called_off import (
    test_a_later_attempt_calls_off_what_the_one_that_decided_could_not,
    test_a_map_that_loses_a_race_is_called_off_while_its_run_continues,
    test_a_map_whose_sibling_has_failed_is_called_off_if_the_run_continues,
)
from tests.workflows.test_children import (
    done,
    test_a_call_that_fails_raises_and_can_be_caught,
    test_a_call_with_other_arguments_each_time_is_found,
    test_a_map_of_nothing_is_over_at_once,
    test_a_map_returns_the_results_in_the_order_of_its_items,
    test_a_map_that_fails_says_how_many_and_where_they_are,
    test_an_imported_run_makes_its_jobs_again,
    test_branches_wait_for_jobs_at_the_same_time,
    test_the_jobs_of_a_requeued_run_that_failed_run_again,
    test_the_results_of_a_map_are_kept_as_long_as_the_run,
    test_the_way_of_a_run_with_jobs_is_replayed,
)
from tests.workflows.test_flow_cuts import Cuts, Died, cuts
from tests.workflows.test_flow_requeue import parts, test_what_follows_is_given_what_is_new
from tests.workflows.test_flows import broken, note, test_requeue_runs_again_what_failed_and_what_depends_on_it

__all__ = [
    "broken",
    "cuts",
    "done",
    "note",
    "parts",
    "test_a_call_that_fails_raises_and_can_be_caught",
    "test_a_call_with_other_arguments_each_time_is_found",
    "test_a_later_attempt_calls_off_what_the_one_that_decided_could_not",
    "test_a_map_of_nothing_is_over_at_once",
    "test_a_map_returns_the_results_in_the_order_of_its_items",
    "test_a_map_that_fails_says_how_many_and_where_they_are",
    "test_a_map_that_loses_a_race_is_called_off_while_its_run_continues",
    "test_a_map_whose_sibling_has_failed_is_called_off_if_the_run_continues",
    "test_an_imported_run_makes_its_jobs_again",
    "test_branches_wait_for_jobs_at_the_same_time",
    "test_requeue_runs_again_what_failed_and_what_depends_on_it",
    "test_the_jobs_of_a_requeued_run_that_failed_run_again",
    "test_the_results_of_a_map_are_kept_as_long_as_the_run",
    "test_the_way_of_a_run_with_jobs_is_replayed",
    "test_what_follows_is_given_what_is_new",
]
"""What holds for jobs of the same queue holds for those of another one."""
DEPTHS = ("pending_depth", "processing_depth", "delayed_depth")


class TwoQueues(Queue):
    """A queue of workflows whose plain tasks, and so their batches, are in another queue."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.gpu = Queue("gpu", **options)
        super().task(name="none")(lambda: None)  # a queue without a task is none whose jobs can run in a test

    def task(self, *args: Any, **options: Any) -> Any:
        """Make a task of the other queue."""
        return self.gpu.task(*args, **options)

    def batch(self, *args: Any, **options: Any) -> Any:
        """Return a batch of the other queue."""
        return self.gpu.batch(*args, **options)

    def list_batches(self, limit: int = 100) -> Any:
        """List the batches of the other queue."""
        return self.gpu.list_batches(limit)


@pytest.fixture
def queue(tester: QueueTester) -> TwoQueues:
    """The queue of the workflows; retries follow after a minute."""
    return TwoQueues("shop", backoff=Fixed(60))


def connected() -> redis.Redis:
    """A connection to the server of the tests."""
    connection: Any = Address(os.environ["SCHEDQ_REDIS_URL"]).find("").connection("tests")
    return redis.Redis(unix_socket_path=connection.path, decode_responses=True)


def open_ones(queue: TwoQueues) -> list[str]:
    """What is not over in either queue: jobs, batches, and what stands for those of the other queue."""
    found = [f"{queue.name}: {batch.id} {batch.status}" for batch in Queue.list_batches(queue)]
    found += [f"gpu: {batch.id} {batch.status}" for batch in queue.gpu.list_batches() if not batch.has_ended]
    for each in (queue, queue.gpu):
        stats = each.stats()
        found += [f"{each.name}: {stats[name]} {name}" for name in DEPTHS if stats[name]]
        with connected() as client:
            found += [str(law) for law in State.of(client, each.settings.keys).broken_laws().items()]
    return found


def run(tester: QueueTester, queue: TwoQueues) -> None:
    """Run what is due; a job whose worker died runs again once its lease is over."""
    while tester.fast_forward(11) or queue.reclaim_stuck() or queue.gpu.reclaim_stuck():
        pass


def test_flows_have_nodes_in_several_queues(tester: QueueTester, queue: TwoQueues):
    @queue.gpu.task
    def frames(count: int) -> list[int]:
        return list(range(count))

    cpu = Queue("cpu", backoff=Fixed(60))

    @cpu.task
    def render(frame: int) -> str:
        return f"frame {frame}"

    @queue.gpu.task
    def count(done: Any) -> int:
        return len(list(done))

    here = Queue("shop", backoff=Fixed(60))

    @here.task
    def publish(total: int, again: Any) -> list[Any]:
        return [total, sorted(again)]

    flow = here.flow("film")
    rendered = flow.map(render, flow.call(frames, 3).result)
    last = flow.call(publish, flow.call(count, rendered.result).result, rendered.result)
    job = flow.start(last)
    tester.run_due()

    assert job.result(0) == [3, ["frame 0", "frame 1", "frame 2"]]


@pytest.fixture
def film(queue: TwoQueues, ran: list[str]) -> Any:
    """A workflow that calls a task of the other queue, and maps over one."""

    @queue.gpu.task
    def render(frame: int) -> int:
        ran.append(f"render {frame}")
        return frame

    @queue.workflow(backoff=Fixed(0))
    async def film(ctx: WorkflowContext) -> int:
        count = await ctx.call(render, 2)
        return sum([each async for each in await ctx.map(render, range(count))])

    return film


@pytest.fixture
def ran() -> list[str]:
    """What ran."""
    return []


def test_a_worker_that_dies_anywhere_runs_each_job_once(
    tester: QueueTester, queue: TwoQueues, film: Any, ran: list[str], cuts: Cuts
):
    for place in cuts.each():
        ran.clear()
        job = film.enqueue()
        with suppress(Died):
            tester.run_due()
        run(tester, queue)

        assert job.result(0) == 1, place
        assert ran == ["render 2", "render 0", "render 1"], place
        tester.fast_forward(1000)
        assert open_ones(queue) == [], place


def test_a_worker_that_seems_dead_makes_no_jobs_for_a_run_that_was_cancelled(
    tester: QueueTester, queue: TwoQueues, film: Any, ran: list[str], cuts: Cuts
):
    for place in cuts.each():
        job = film.enqueue()
        try:
            tester.run_due()
        except Died:
            job.cancel()
            run(tester, queue)
            tester.fast_forward(30)
            before, (client, request) = len(ran), cuts.unsent
            asyncio.run(client.execute(request))  # the worker was only frozen
            tester.fast_forward(1000)

            assert job.status() == "cancelled", place
            assert len(ran) == before, place
            assert open_ones(queue) == [], place


@pytest.mark.parametrize("is_lost", [False, True], ids=["the request", "its reply"])
@pytest.mark.parametrize("kind", ["workflow", "flow"])
def test_that_the_other_queue_is_away_costs_no_attempt(
    tester: QueueTester, queue: TwoQueues, monkeypatch: pytest.MonkeyPatch, kind: str, is_lost: bool
):
    ran: list[int] = []

    @queue.gpu.task
    def render(frame: int) -> int:
        ran.append(frame)
        return frame

    @queue.gpu.task
    def join(frames: BatchResults[int]) -> list[int]:
        return list(frames)

    @queue.workflow(max_attempts=1)
    async def film(ctx: WorkflowContext) -> list[int]:
        frames = range(await ctx.call(render, 2))
        await ctx.map(render, frames)
        return list(frames)

    @queue.flow(max_attempts=1)
    def declared(flow: Flow) -> Any:
        rendered = flow.options(after=flow.call(render, 2)).map(render, [0, 1])
        return flow.call(join, rendered.result)

    away = Away(monkeypatch, is_lost=is_lost)
    for at in away.each():
        ran.clear()
        job: Any = film.enqueue() if kind == "workflow" else declared.enqueue()
        run(tester, queue)

        assert list(job.result(0)) == [0, 1], at
        assert ran == [2, 0, 1], at
        assert job.record().attempts <= 4, at


class Away:
    """The other queue can't be reached for its n-th request, or the reply to that is lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_lost: bool) -> None:
        self.at = self.seen = 0
        real, away = AsyncClient.execute, self

        async def execute(client: AsyncClient, operations: Any) -> Any:
            is_other = "queue:gpu:" in str(operations)
            away.seen += is_other
            if not is_other or away.seen != away.at:
                return await real(client, operations)
            if is_lost:
                await real(client, operations)
            raise StoreUnavailable("no server")

        monkeypatch.setattr(AsyncClient, "execute", execute)
        monkeypatch.setattr("schedq.workflows.children._PAUSE_S", 0)

    def each(self) -> Iterator[int]:
        """The numbers of all requests."""
        while self.seen >= self.at:
            self.at, self.seen = self.at + 1, 0
            yield self.at


def test_the_end_of_jobs_is_published_in_the_queue_of_the_run(tester: QueueTester, queue: TwoQueues, film: Any):
    with connected() as client:
        listener = client.pubsub(ignore_subscribe_messages=True)
        listener.subscribe(queue.settings.keys.due)
        film.enqueue()
        tester.run_due()
        heard = [message["data"] for _ in range(50) if (message := listener.get_message(timeout=0.01))]
        listener.close()

    ends = [text for text in heard if text.startswith("ended ")]
    assert [queue.gpu.batch(text.partition(" ")[2]).progress().total for text in ends] == [1, 2]


def test_the_task_of_another_redis_is_refused(make_queue: MakeQueue):
    far = Queue("far", redis="redis://127.0.0.1:1")
    here = make_queue()

    @far.task
    def away() -> None: ...

    @here.workflow(max_attempts=1)
    async def wrong(ctx: WorkflowContext) -> None:
        await ctx.call(away)

    job = wrong.enqueue()
    run_due(here.beyond)

    with pytest.raises(
        JobFailed, match="is one of queue far at redis://127.0.0.1:1/0, and queue .*given as the same redis="
    ):
        job.result(0)
    with pytest.raises(UsageError, match="is one of queue far at redis://127.0.0.1:1"):
        here.flow("f").call(away)


@pytest.mark.parametrize("what", ["the batch", "the whole queue"])
def test_a_run_makes_jobs_anew_that_their_queue_has_forgotten(
    tester: QueueTester, queue: TwoQueues, film: Any, ran: list[str], what: str
):
    job = film.enqueue()
    run_due(queue)
    (batch,) = queue.gpu.list_batches()
    if what == "the batch":
        queue.gpu.batch(batch.id).delete()
    else:
        with connected() as client:
            client.delete(*client.keys("queue:gpu:*"))
    tester.fast_forward(30)

    assert job.result(0) == 1
    assert Counter(ran) == {"render 2": 1 + (what == "the batch"), "render 0": 1, "render 1": 1}


def test_a_run_says_where_its_jobs_are(tester: QueueTester, queue: TwoQueues):
    @queue.gpu.task
    def late(number: int) -> int:
        raise Snooze(600)

    @queue.workflow
    async def waiting(ctx: WorkflowContext) -> None:
        await ctx.map(late, [1, 2])

    job = waiting.enqueue()
    tester.run_due()
    (batch,) = queue.gpu.list_batches()

    assert f"for the jobs of map late, batch {batch.id} of queue gpu" in job.why().text
    assert [each.stands_for for each in Queue.list_batches(queue)] == ["gpu"]
    found = queue._drive(tree(queue.settings, job.id))
    assert found is not None
    assert found.below[0].note == f"0 of 2 completed; batch {batch.id} of queue gpu"


def test_what_is_purged_calls_off_its_jobs_elsewhere(tester: QueueTester, queue: TwoQueues, film: Any, ran: list[str]):
    film.enqueue()
    run_due(queue)
    queue.purge()
    run_due(queue)  # someone of this queue is alive
    tester.fast_forward(1000)

    assert ran == []
    assert open_ones(queue) == []


def test_what_a_job_elsewhere_returned_is_there_whenever_its_run_looks(
    tester: QueueTester, queue: TwoQueues, film: Any, ran: list[str]
):
    job = film.enqueue()
    run_due(queue)
    queue.pause(task="film")
    tester.fast_forward(100_000)
    queue.resume(task="film")
    tester.fast_forward(1000)

    assert job.result(0) == 1
    assert ran == ["render 2", "render 0", "render 1"]


def test_jobs_elsewhere_that_wait_for_good_are_nothing_to_wait_for(tester: QueueTester, queue: TwoQueues):
    @queue.gpu.workflow
    async def approval(ctx: WorkflowContext) -> str:
        return str(await ctx.receive("signed"))

    @queue.workflow
    async def contract(ctx: WorkflowContext) -> str:
        return await ctx.call(approval)

    job = contract.enqueue()
    assert tester.fast_forward() == 2
    (batch,) = queue.gpu.list_batches()
    queue.gpu.job(f"{batch.id}-0-{generation(queue, batch.id)}").send("signed", "yes")
    tester.run_due()

    assert job.result(0) == "yes"


def generation(queue: TwoQueues, batch_id: str) -> str:
    """The last part of the ids of a batch's jobs."""
    with connected() as client:
        return str(client.hget(queue.gpu.settings.keys.group(batch_id), "generation"))


def test_the_job_elsewhere_of_a_cancelled_run_does_not_run_to_its_end(
    tester: QueueTester, queue: TwoQueues, ran: list[str]
):
    @queue.gpu.workflow
    async def slow(ctx: WorkflowContext) -> None:
        await ctx.sleep(100)
        ran.append("the end")

    @queue.workflow
    async def main(ctx: WorkflowContext) -> None:
        await ctx.call(slow)

    job = main.enqueue()
    tester.fast_forward(10)
    job.cancel()
    tester.fast_forward(1000)
    tester.run_due()

    assert ran == []
    assert open_ones(queue) == []


def test_a_failed_run_without_jobs_elsewhere_leaves_nothing(tester: QueueTester, queue: TwoQueues):
    small = Queue("small", max_payload=100)

    @small.task
    def keep(text: str) -> None: ...

    @queue.workflow(max_attempts=1)
    async def main(ctx: WorkflowContext) -> None:
        await ctx.call(keep, "x" * 1000)

    job = main.enqueue()
    tester.fast_forward(1000)

    assert job.status() == "failed"
    assert Queue.list_batches(queue) == []


def test_a_look_that_is_lost_is_made_again_soon_if_the_run_is_over(tester: QueueTester, queue: TwoQueues, film: Any):
    job = film.enqueue()
    tester.run_due()
    standing = stand_ins.definition(queue.gpu.settings, "map", job.id, generation="00g1")
    looks: Any = [groups.look_at(queue.settings, ["map"]), groups.advance(queue.settings)]

    *_, advance = queue.connections.blocking.execute([groups.fill(queue.settings, standing, (), 0, close=True), *looks])

    (found,) = (StandIn(*each) for each in advance.stand_ins)
    assert found.run == "done"
    with connected() as client:
        assert client.zscore(queue.settings.keys.groups, "map") == found.now_ms + 10_000
    tester.fast_forward(11)
    assert open_ones(queue) == []


@pytest.mark.parametrize("damage", [{"stands_for": "no queue: *"}, {"closed": "1", "kept_ms": "x"}, {"kept_ms": ""}])
def test_a_damaged_stand_in_is_looked_at_now_and_then(queue: TwoQueues, film: Any, damage: dict[str, str]):
    film.enqueue()
    run_due(queue)
    (stand_in,) = Queue.list_batches(queue)
    with connected() as client:
        client.hset(queue.settings.keys.group(stand_in.id), mapping=damage)
    queue._ask(groups.look_at(queue.settings, [stand_in.id]))
    found = queue._ask(groups.advance(queue.settings))

    assert found.next_ms is not None
    assert found.next_ms >= found.stand_ins[0][-1] + 10_000
    if "stands_for" in damage:
        with pytest.raises(UsageError, match="queue name"):
            queue.connections.of_queue(found.stand_ins[0][1])


def test_a_failed_flow_leaves_nothing_that_stands_for_its_jobs(tester: QueueTester, queue: TwoQueues):
    @queue.gpu.task(max_attempts=1)
    def refuse() -> None:
        raise ValueError("sold out")

    flow = queue.flow("sale")
    job = flow.start(flow.call(refuse))
    tester.run_due()

    assert job.status() == "failed"
    assert Queue.list_batches(queue) == []


@pytest.mark.parametrize(
    ("run", "requeued", "group", "is_called_off"),
    [
        ("over", 0, ("running", "00abcd"), True),
        ("over", 1, ("running", "00abcd"), True),  # it was cancelled before it came to its jobs again
        ("over", 0, ("running", "01abcd"), False),  # they run again since this look began
        ("over", 255, ("filling", "00abcd"), False),
        ("over", 3, ("filling", "zzabcd"), True),
        ("over", 0, ("cancelling", "00abcd"), False),
        ("waits", 0, ("running", "00abcd"), False),
        ("failed", 0, ("running", "00abcd"), False),
    ],
)
def test_only_groups_of_the_run_that_is_over_are_called_off(
    run: str, requeued: int, group: tuple[str, str], is_called_off: bool
):
    assert calls_off(StandIn("g", "gpu", run, requeued, 0), *group) == is_called_off
