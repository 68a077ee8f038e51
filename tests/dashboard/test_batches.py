"""The pages of batches and chains."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import redis

from schedq import Conflict, Discard, Queue, WorkflowContext
from schedq.inspect.runs import awaited
from schedq.testing import run_due
from schedq.transitions import groups, stand_ins
from tests.dashboard.conftest import Visitor
from tests.dashboard.test_api import Described
from tests.dashboard.test_pages import text_of
from tests.servers import Server

PAGE = "/queues/mail/batches"


def test_batches_their_failures_and_their_timeline_are_shown(visitor: Visitor, queue: Queue) -> None:
    @queue.task
    def square(number: int) -> int:
        return number * number

    assert PAGE not in visitor.page("/queues/mail")
    filled = queue.batch("filled", square)
    filled.__enter__().add([1, 2])
    with queue.batch("squares", square) as batch:
        batch.add([2, -1, 3, 4])
    for error in ("", "it is <negative>"):
        job = next(job for job in iter(lambda: queue.claim(0), None) if job.id.startswith("squares"))
        queue.fail(job, Discard(error)) if error else queue.complete(job, 4)

    assert f'href="{PAGE}">Batches' in visitor.page("/queues/mail")
    page = visitor.page(PAGE)
    assert re.search(r"squares square running 4 1 1 2 0 50 % [\d.]+ m?s ago –", text_of(page)), text_of(page)
    assert "filled square running, being filled 2 0 0 2 0 0 %" in text_of(page)
    assert '<progress max="1" value="0.5"' in page

    page = visitor.page(f"{PAGE}/squares")
    assert f'href="/queues/mail/jobs/{job.id}"' in page
    assert f"{job.id} 1 (-1) it is <negative>" in text_of(page), text_of(page)
    assert re.search(r"Timeline began .* child 1 failed .* it is <negative>", text_of(page)), text_of(page)
    assert f'href="{PAGE}/squares">squares</a>' in visitor.page(f"/queues/mail/jobs/{job.id}")
    assert visitor.get(f"{PAGE}/none").status_code == 404
    batch.cancel()
    queue.promote_due()
    assert re.search(r"squares square cancell(ing|ed) 4", text_of(visitor.page(PAGE)))


def test_many_batches_have_pages(visitor: Visitor, queue: Queue) -> None:
    for n in range(51):
        with queue.batch(f"b{n:02}", queue.task(print)) as batch:
            batch.add([n])

    first, second = visitor.page(PAGE), visitor.page(f"{PAGE}?offset=50")

    assert len(re.findall(r'<td class="first">', first)) == 50 and "?offset=50" in first
    assert len(re.findall(r'<td class="first">', second)) == 1 and "Next page" not in second


# -- what can be done with one


@pytest.fixture
def failing(queue: Any) -> str:
    """A batch of which one child has failed, one runs, and one waits for its turn."""
    with queue.batch("squares", queue.task(print), concurrency=2) as batch:
        batch.add([-1, 2, 3])
    queue.fail(queue.claim(0), Discard("it is negative"))
    assert queue.claim(0) is not None
    return f"{PAGE}/{batch.id}"


def offered(visitor: Visitor, page: str) -> list[str]:
    """What the buttons of a page do."""
    return re.findall(r'name="do" value="(\w+) batch', visitor.page(page))


def test_a_batch_is_cancelled_and_deleted(visitor: Visitor, queue: Queue, failing: str) -> None:
    assert offered(visitor, PAGE) == []
    assert offered(visitor, failing) == ["cancel_batch", "delete_batch"]

    assert "Cancel batch squares?" in visitor.ask("cancel_batch batch squares")[0]
    assert "Batch squares is being cancelled." in visitor.do("cancel_batch batch squares", back=failing)
    assert offered(visitor, failing) == ["delete_batch"], "it is called off already"

    question, _ = visitor.ask("delete_batch batch squares", back=failing)
    assert "grave" in question and "Its jobs stay" in question
    page = visitor.do("delete_batch batch squares", back=failing)
    assert "Batch squares is deleted." in page and "No batches." in page, "its own page is gone"
    assert queue.stats()["processing_depth"] == 1
    log = [(entry.move, entry.fields["who"]) for entry in queue.inspector.log() if "who" in entry.fields]
    assert log == [("act cancel_batch", "dashboard"), ("act delete_batch", "dashboard")]


def test_what_failed_is_retried_once_the_batch_has_ended(visitor: Visitor, queue: Any) -> None:
    with queue.batch("squares", queue.task(print)) as batch:
        batch.add([-1, 2])
    for error in ("it is negative", ""):
        job = queue.claim(0)
        queue.fail(job, Discard(error)) if error else queue.complete(job, 4)
    assert offered(visitor, f"{PAGE}/squares") == ["retry_batch", "delete_batch"]

    page = visitor.do("retry_batch batch squares", back=f"{PAGE}/squares")

    assert "Batch squares: 1 child runs again." in page
    assert batch.progress().status == "running"
    queue._drive(groups.advance_all(queue.settings))
    queue.complete(queue.claim(0), 1)
    assert offered(visitor, f"{PAGE}/squares") == ["delete_batch"]
    assert "Batch squares does not exist, or nothing of it failed." in visitor.do("retry_batch batch squares")


def test_a_retry_that_is_refused_says_why(visitor: Visitor, queue: Queue) -> None:
    with queue.batch("squares", queue.task(print), concurrency=1) as batch:
        batch.add([1, 2])

    def refused() -> str:
        answer = visitor.post("/queues/mail/act", {"do": "retry_batch batch squares"})
        assert answer.status_code == 400
        return text_of(answer.text)

    assert "batch squares of queue mail has not ended, so it can't be retried" in refused()

    batch.cancel()
    queue._drive(groups.advance_all(queue.settings))
    assert batch.progress().status == "cancelled"
    assert "batch squares of queue mail was called off before all of its children were made" in refused()
    assert offered(visitor, f"{PAGE}/squares") == ["delete_batch"]


def test_a_batch_that_is_not_there_is_named(visitor: Visitor, queue: Queue) -> None:
    queue.enqueue(1)

    assert "Batch none does not exist, or has ended." in visitor.do("cancel_batch batch none")
    assert visitor.post("/queues/mail/confirm", {"do": "cancel_batch batch a:b"}).status_code == 400


def test_what_stands_for_jobs_of_another_queue_leads_there(visitor: Visitor, queue: Queue, store: Server) -> None:
    """There the same actions apply at once; here a retry would do nothing, and it is deleted with its run."""
    with Queue("gpu", redis=store.own_url) as gpu, gpu.batch("r-1", gpu.task(print)) as batch:
        batch.add([1])
        made = stand_ins.definition(gpu.settings, "r-1", "r", generation="000000")
        queue._ask(groups.fill(queue.settings, made, (), 0))

    for page in (PAGE, f"{PAGE}/r-1"):
        assert '<a href="/queues/gpu/batches/r-1">its jobs are in queue gpu</a>' in visitor.page(page)
        assert offered(visitor, page) == []
    assert offered(visitor, "/queues/gpu/batches/r-1") == ["cancel_batch", "delete_batch"]
    said = visitor.do("delete_batch batch r-1", back=f"{PAGE}/r-1")
    assert "Batch r-1 stands for jobs of another queue; it is deleted when its run is over." in said


# -- damaged ones

DAMAGE: dict[str, tuple[Callable[[redis.Redis, str], Any], str]] = {
    "record": (lambda raw, key: raw.delete(key) and raw.set(key, "x"), "its record is a string, not a hash"),
    "items": (lambda raw, key: raw.delete(f"{key}:items") or raw.set(f"{key}:items", "x"), "its items are a string"),
    "total": (lambda raw, key: raw.hset(key, "total", "many"), "total is 'many'"),
    "ended": (lambda raw, key: raw.hdel(key, "ended"), "ended is None"),
    "status": (lambda raw, key: raw.hset(key, "status", "runing"), "its status is 'runing'"),
    "no status": (lambda raw, key: raw.hdel(key, "status"), "its status is None"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_batch_hides_no_other_and_says_what_is_wrong(
    visitor: Visitor, queue: Any, raw: redis.Redis, what: str
) -> None:
    """In the list of batches, in that of the runs that wait for one, and on the page of such a run."""
    square = queue.task(name="square")(lambda number: number)

    @queue.workflow
    async def add(ctx: WorkflowContext) -> Any:
        return await ctx.map(square, [1, 2])

    queue.pause(task="square")
    run, _ = add.enqueue(), add.enqueue()
    run_due(queue)
    damage, says = DAMAGE[what]
    (bad,) = awaited(queue.get_job(run.id).fields)
    damage(raw, f"queue:mail:group:{bad}")

    found = {batch.id: batch for batch in queue.list_batches()}
    assert (found.pop(bad)[1], [it.status for it in found.values()]) == ("damaged", ["running"])
    page = text_of(visitor.page(PAGE))
    assert f"{bad} {says}" in page and all(name in page for name in found)
    runs = text_of(visitor.page("/queues/mail/workflows"))
    assert f"batch {bad}, which is damaged ({says})" in runs, runs
    assert ": 0 of 2 have completed" in runs
    assert f"batch {bad}, which is damaged ({says})" in text_of(visitor.page(f"/queues/mail/jobs/{run.id}"))
    listed = visitor.get("/api/queues/mail/batches").json()
    assert {it["id"]: it["error"] for it in listed["batches"]} == {bad: says, **dict.fromkeys(found, "")}
    assert Described(visitor).errors("/api/queues/mail/batches", listed) == []
    if what in ("record", "items"):
        assert "WRONGTYPE" in text_of(visitor.get(f"{PAGE}/{bad}").text)
        with pytest.raises(Conflict, match="WRONGTYPE"):
            queue.batch(bad).progress()
    else:
        assert f"{bad} {says}" in text_of(visitor.page(f"{PAGE}/{bad}"))
        assert queue.batch(bad).progress().error == says


@pytest.mark.parametrize("field", ["head", "began_at_ms", "closed", "generation", "options", "kept_ms"])
def test_what_does_not_matter_is_shown_as_far_as_it_can_be_read(
    visitor: Visitor, queue: Queue, raw: redis.Redis, field: str
) -> None:
    with queue.batch("b", queue.task(print)) as batch:
        batch.add([1])
    raw.hset("queue:mail:group:b", field, "?")

    assert (batch.progress().total, batch.progress().status) == (1, "running")
    assert "running" in text_of(visitor.page(f"{PAGE}/b"))
