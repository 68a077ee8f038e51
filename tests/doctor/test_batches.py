"""What the doctor says of batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from schedq import Queue
from schedq.doctor.batches import BATCHES
from schedq.transitions import heartbeat
from schedq.transitions.groups import advance_all
from tests.cli.scenes import claimed
from tests.doctor.conftest import Examine, Found
from tests.servers import Server


def test_the_keys_of_a_batch_are_no_queue(mail: Queue, diagnosis: Examine, client: Any) -> None:
    """One of them ends as a list of failed jobs does."""
    mail.enqueue(1)
    client.lpush("queue:mail:group:b:failed", "0 0 no")

    assert "name-invalid" not in diagnosis().codes


def test_a_queue_of_that_name_is_named_otherwise(mail: Queue, diagnosis: Examine, client: Any) -> None:
    client.lpush("queue:no name:failed", "1")

    assert diagnosis()["name-invalid"].examples == ("no name",)


# -- batches

PREFIX = "queue:mail:"
HOUR_MS = 3_600_000


def filled(mail: Queue, *, count: int = 3, close: bool = True, **options: Any) -> None:
    """A batch `b` whose children wait."""

    @mail.task
    def load(number: int) -> int:
        return number

    batch = mail.batch("b", load, **options)
    batch.add(range(count))
    if close:
        batch.close()


def age(client: Any, ms: int = HOUR_MS) -> None:
    """Let the batch, and what happened to its children, be older."""
    client.hset(PREFIX + "group:b", mapping={"filled_at_ms": now_ms() - ms, "began_at_ms": now_ms() - ms})
    for key in client.scan_iter(PREFIX + "job:*"):
        client.hset(key, "enqueued_at_ms", now_ms() - ms)


def now_ms() -> int:
    return int(time.time() * 1000)


BATCH_CODES = {code.code for code in BATCHES}


def about_batches(found: Found) -> set[str]:
    return (found.codes | found.notes) & BATCH_CODES


@pytest.mark.parametrize("is_chain", [False, True])
def test_a_batch_in_order_is_not_mentioned(mail: Queue, diagnosis: Examine, client: Any, is_chain: bool) -> None:
    """Fresh, old with jobs that run, and ended."""
    filled(mail, count=5, concurrency=2)
    if is_chain:
        task = mail.task(name="link")(lambda *numbers: 1)
        mail.chain(task, task, task, id="c")
    assert about_batches(diagnosis()) == set()

    jobs = [claimed(mail) for _ in range(2)]
    age(client)
    assert about_batches(diagnosis()) == set()

    for job in jobs:
        mail.complete(job, 1)
    while (last := mail.claim(0)) is not None:
        mail.complete(last, 1)
    age(client)
    assert mail.batch("b").progress().status == "completed"
    assert about_batches(diagnosis()) == set()


DAMAGE: dict[str, tuple[Any, str]] = {
    "status": (lambda it: it.hset(PREFIX + "group:b", "status", "runing"), "its status is 'runing'"),
    "no status": (lambda it: it.hdel(PREFIX + "group:b", "status"), "its status is None"),
    "total": (lambda it: it.hset(PREFIX + "group:b", "total", "many"), "total is 'many'"),
    "ended": (lambda it: it.hdel(PREFIX + "group:b", "ended"), "ended is None"),
    "counts": (
        lambda it: it.hset(PREFIX + "group:b", "ended", "7"),
        "7 of 3 children have ended, and 0 have completed",
    ),
    "items": (
        lambda it: it.rpush(PREFIX + "group:b:items", *"abcd"),
        "0 of 3 children have ended, and 6 are not jobs yet",
    ),
    "record": (lambda it: retyped(it, "group:b"), "its record is a set, not a hash"),
    "item list": (lambda it: retyped(it, "group:b:items"), "its items are a set"),
    "bits": (lambda it: retyped(it, "group:b:counted"), "its counted are a set"),
    "failures": (lambda it: retyped(it, "group:b:failed"), "its failed are a set"),
}


def retyped(client: Any, name: str) -> None:
    client.delete(PREFIX + name)
    client.sadd(PREFIX + name, "x")


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_record_is_named(mail: Queue, diagnosis: Examine, client: Any, what: str) -> None:
    filled(mail, concurrency=1)
    damage, text = DAMAGE[what]
    damage(client)

    found = diagnosis()["batch-damaged"]

    assert (found.says, found.examples) == ("1 batch whose record is damaged", ("b",))
    assert found.means.startswith(f"of batch b, {text}")
    assert "schedq batches delete ID --queue mail" in found.remedy
    mail.batch("b").delete() if what != "record" else client.delete(PREFIX + "group:b")
    assert about_batches(diagnosis()) == set()


def test_an_open_batch_that_lost_its_entry_is_named(mail: Queue, diagnosis: Examine, client: Any) -> None:
    filled(mail)
    client.zrem(PREFIX + "groups", "b")

    found = diagnosis()["batch-unlisted"]

    assert found.examples == ("b",)
    assert "redis-cli ZADD queue:mail:groups 0 ID" in found.remedy
    client.zadd(PREFIX + "groups", {"b": 0})
    assert about_batches(diagnosis()) == set()


def test_an_open_batch_whose_next_look_lies_far_ahead_is_named(mail: Queue, diagnosis: Examine, client: Any) -> None:
    filled(mail)
    client.zadd(PREFIX + "groups", {"b": now_ms() + HOUR_MS})

    assert "batch b is due in 60 min; every 10 s is usual" in diagnosis()["batch-unattended"].means


def test_an_open_batch_at_which_the_promoter_does_not_look_is_named(
    mail: Queue, diagnosis: Examine, client: Any
) -> None:
    filled(mail)
    client.zadd(PREFIX + "groups", {"b": now_ms() - HOUR_MS})
    assert about_batches(diagnosis()) == set(), "no promoter is alive, which is a finding of its own"
    client.set(PREFIX + "promoter", "p-1", px=60_000)

    assert "batch b does not come" in diagnosis()["batch-unattended"].means


def test_an_open_batch_whose_jobs_are_gone_is_named(mail: Queue, diagnosis: Examine, client: Any) -> None:
    """No promoter is alive, which would count them as failed."""
    filled(mail)
    age(client)
    client.delete(*client.scan_iter(PREFIX + "job:*"), PREFIX + "pending")

    found = diagnosis()["batch-without-jobs"]

    assert found.level == "error"
    assert "of batch b, 3 children that have not ended were looked at" in found.means
    client.zadd(PREFIX + "groups", {"b": 0})
    mail._drive(advance_all(mail.settings))
    assert mail.batch("b").progress().status == "failed"
    assert about_batches(diagnosis()) == set()


def test_jobs_of_a_batch_that_no_list_holds_are_named(mail: Queue, diagnosis: Examine, client: Any) -> None:
    filled(mail)
    age(client)
    client.delete(PREFIX + "pending")
    client.zadd(PREFIX + "groups", {"b": now_ms() + 10_000})

    found = diagnosis()

    assert found["batch-without-jobs"].level == "error"
    assert "orphan" in found.codes


def worked(queue: Queue) -> None:
    """As if a worker was alive: it sends heartbeats, and takes nothing."""
    queue._ask(heartbeat.beat(queue.settings, "w-1", {"tasks": '["load"]', "has_handler": "1"}))


def test_a_batch_that_is_stalled_is_named(mail: Queue, diagnosis: Examine, client: Any) -> None:
    filled(mail)
    age(client)
    assert about_batches(diagnosis()) == set(), "no worker is alive, which is a finding of its own"
    worked(mail)

    found = diagnosis()["batch-stalled"]

    assert found.level == "warning"
    assert found.means.startswith("nothing has happened to batch b for 60 min, although workers are alive")
    client.hset(PREFIX + "job:" + client.lindex(PREFIX + "pending", -1), "enqueued_at_ms", now_ms())
    assert about_batches(diagnosis()) == set()


def hold(queue: Queue) -> None:
    """The claim that comes to the jobs of a paused task puts them out of the way."""
    queue.pause(task="load")
    assert queue.claim(0) is None


REASONS: dict[str, Callable[[Queue], object]] = {
    "one of its jobs runs": claimed,
    "one is retried later": lambda queue: queue.fail(claimed(queue), ValueError("again")),
    "the queue is paused": lambda queue: queue.pause(),
    "the task is paused": lambda queue: queue.pause(task="load"),
    "its jobs are held": hold,
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_batch_that_is_stalled_for_a_reason_is_not_mentioned(
    mail: Queue, diagnosis: Examine, client: Any, reason: str
) -> None:
    worked(mail)
    filled(mail)
    age(client)
    REASONS[reason](mail)

    assert about_batches(diagnosis()) == set()


def test_a_batch_that_waits_behind_other_jobs_or_in_a_gate_is_not_mentioned(
    mail: Queue, diagnosis: Examine, client: Any
) -> None:
    worked(mail)
    mail.enqueue(1)
    filled(mail)
    mail.gates.set("api", concurrency=1)

    @mail.task(gate="api")
    def call(number: int) -> int:
        return number

    with mail.batch("gated", call) as batch:
        batch.add([1])
    age(client)
    client.hset(PREFIX + "group:gated", "filled_at_ms", now_ms() - HOUR_MS)

    assert about_batches(diagnosis()) == set()


def test_a_batch_that_is_never_closed_is_named(mail: Queue, diagnosis: Examine, client: Any) -> None:
    filled(mail, close=False, close_within=None)
    assert about_batches(diagnosis()) == set()
    age(client, 2 * HOUR_MS)

    assert "nothing was added to batch b for 2 h" in diagnosis()["batch-unclosed"].means
    mail.batch("b").cancel()
    mail._drive(advance_all(mail.settings))
    assert about_batches(diagnosis()) == set()


def test_many_batches_are_read_by_pages(mail: Queue, diagnosis: Examine, client: Any, ward: Server) -> None:
    """Of 100,000, the first 1,000 are read."""
    pipe = client.pipeline(transaction=False)
    for number in range(100_000):
        pipe.zadd(PREFIX + "groups", {f"b{number}": now_ms() + number})
        if number < 1500:
            pipe.hset(
                f"{PREFIX}group:b{number}",
                mapping={"status": "running", "total": 1, "ended": 0, "succeeded": 0, "closed": 1},
            )
        if number % 10_000 == 0:
            pipe.execute()
    pipe.execute()

    with ward.requests() as requests:
        found = diagnosis("mail", sample=1000)

    said = [words for words in found.report.limits if "batches" in words]
    assert said == [
        "queue mail: only 1,000 of 100,000 batches were read, those that have not ended first; --sample N reads more"
    ]
    ours = [request for request in requests if request.client != "lua"]
    assert len(ours) < 14_000
    pages = [request.words for request in ours if request.name == "ZRANGE" and request.words[1].endswith("groups")]
    assert len(pages) == 2
