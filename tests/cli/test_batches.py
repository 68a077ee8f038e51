"""`schedq batches` shows batches and chains, and acts on them."""

from __future__ import annotations

import pytest

from schedq import Batch, Discard, Queue
from schedq.transitions import groups, stand_ins
from tests.cli.conftest import Run
from tests.servers import Server


@pytest.fixture
def batch(queue: Queue) -> Batch:
    """A batch of which one child failed and one completed, and a third one waits."""

    @queue.task
    def square(number: int) -> int:
        return number * number

    with queue.batch("squares", square) as made:
        made.add([2, -1, 3])
    for number in range(2):
        job = queue.claim(0)
        assert job is not None
        queue.fail(job, Discard("it is negative")) if number else queue.complete(job, 4)
    return made


def test_batches_are_listed_and_shown(run: Run, batch: Batch) -> None:
    title, row = (line.split() for line in run("batches", "ls").lines)
    assert title == ["batch", "task", "state", "children", "completed", "failed", "running", "waiting"]
    assert row == ["squares", "square", "running", "3", "1", "1", "1", "0"]
    assert [one["id"] for one in run("batches", "ls", "--json").json["batches"]] == ["squares"]

    shown = run("batches", "show", "squares").out
    assert "running" in shown
    assert "children" in shown
    timeline = [" ".join(line[25:].split()) for line in shown.partition("timeline")[2].splitlines()]
    assert {"began", "last children added", "child 1 failed it is negative"} <= {*timeline}
    found = run("batches", "show", "squares", "--json").json
    assert (found["completed"], found["timeline"]["failures"]) == (1, 1)


def test_failures_are_shown_with_their_arguments(run: Run, batch: Batch) -> None:
    title, row = (line.split(maxsplit=2) for line in run("batches", "failures", "squares").lines)
    assert title == ["child", "arguments", "error"]
    assert row[0] == "1"
    assert "-1" in row[1]
    assert "it is negative" in row[2]
    (one,) = run("batches", "failures", "squares", "--json").json["failures"]
    assert (one["number"], one["args"], one["error"]) == (1, [-1], "it is negative")


def test_a_batch_is_retried_cancelled_and_deleted(run: Run, batch: Batch, queue: Queue) -> None:
    said = run("batches", "retry", "squares").err
    assert "has not ended, so it can't be retried" in said
    job = queue.claim(0)
    assert job is not None
    queue.complete(job, 9)

    assert run("batches", "retry", "squares").lines == ["batch squares of queue mail: 1 run again"]
    assert run("batches", "cancel", "squares").lines == ["batch squares of queue mail is being cancelled"]
    queue.promote_due()
    said = run("batches", "cancel", "squares").err
    assert "queue mail has no batch squares that has not ended" in said
    assert run("batches", "delete", "squares", "--yes").lines == ["batch squares of queue mail is deleted"]
    assert run("batches", "ls").lines == ["queue mail has no batches"]


def test_a_damaged_batch_is_named_below_the_others_and_can_be_deleted(
    run: Run, batch: Batch, queue: Queue, desk: Server
) -> None:
    with queue.batch("odd", queue.task(print)) as odd:
        odd.add([1])
    with desk.client() as client:
        client.hdel("queue:mail:group:odd", "status")

    _, *rows, last = run("batches", "ls").lines
    assert sorted(row.split()[0] for row in rows) == ["odd", "squares"]
    assert last == "batch odd is damaged: its status is None"
    assert "its status is None" in run("batches", "show", "odd").out
    assert run("batches", "delete", "odd", "--yes").code == 0
    assert [one["id"] for one in run("batches", "ls", "--json").json["batches"]] == ["squares"]


def test_a_batch_that_is_not_there_is_named(run: Run, batch: Batch) -> None:
    assert "queue mail has no batch nothing" in run("batches", "show", "nothing").err
    assert "batch id" in run("batches", "show", "a b").err


def test_what_stands_for_a_batch_of_another_queue_is_not_said_to_be_deleted(run: Run, queue: Queue) -> None:
    standing = stand_ins.definition(queue.settings.of_queue("gpu"), "frames", "run", generation="00g1")
    queue._ask(groups.fill(queue.settings, standing, (), 0))

    said = run("batches", "delete", "frames", "--yes")

    assert (said.code, said.out) == (1, "")
    assert "is not deleted: its jobs are in queue gpu" in said.err
