"""Where durability can be set: for a queue, a task or a job; the most specific setting applies."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import NewJob, NotAcknowledged, Queue, UsageError
from schedq.connection.address import Address
from schedq.connection.request import Request
from schedq.model.durability import Wait
from schedq.model.records import Options
from schedq.model.settings import Settings
from schedq.transitions import Operation, enqueue
from tests.conftest import MakeQueue
from tests.connection.test_request import from_server
from tests.stories.durability.conftest import Pair

REPLICAS = Wait.of("replicated", 2, 5)
DISK = Wait.of("fsync", 2, 0)


def test_it_defines_the_command_and_its_timeout():
    assert REPLICAS.command == ("WAIT", 2, 5000)
    assert DISK.command == ("WAITAOF", 1, 0, 1000)  # 0 would wait forever
    assert REPLICAS.shortfall(2) == REPLICAS.shortfall(3) == ""
    assert REPLICAS.shortfall(1) == "1 of 2 replicas confirmed it within 5 s (durability='replicated')"


@pytest.mark.parametrize("wrong", ["disk", "", "Memory", 1, True, ["fsync"]], ids=repr)
def test_an_invalid_value_is_refused_wherever_it_is_set(wrong: Any):
    queue = Queue("mail", redis="redis://localhost")
    for call in (
        lambda: Queue("mail", redis="redis://localhost", durability=wrong),
        lambda: queue.enqueue(1, durability=wrong),
        lambda: queue.enqueue_many([1], durability=wrong),
        lambda: queue.enqueue_many([NewJob(1, durability=wrong)]),
        lambda: queue.task(durability=wrong)(print),
        lambda: queue.task(print).options(durability=wrong).enqueue(),
    ):
        with pytest.raises(UsageError, match=r"durability must be 'memory', 'replicated' or 'fsync', got "):
            call()


def waits(queue: Settings, *jobs: enqueue.EncodedJob) -> list[tuple[str | int, ...]]:
    step = next(enqueue.enqueue_many(queue, jobs))
    assert isinstance(step, list)
    return [wait.command for wait in step[0].waits]


def test_a_jobs_own_setting_overrides_the_queues():
    queue = Settings("mail", durability="replicated", replicas=3, retry_for=2)

    def job(**options: Any) -> enqueue.EncodedJob:
        return enqueue.prepare(queue, 1, Options(**options))

    assert waits(queue, job()) == [("WAIT", 3, 2000)]
    assert waits(queue, job(durability="memory")) == []
    assert waits(queue, job(durability="fsync")) == [("WAITAOF", 1, 0, 2000)]
    assert waits(queue, job(durability="fsync"), job(), job()) == [("WAITAOF", 1, 0, 2000), ("WAIT", 3, 2000)]


def test_tasks_and_new_jobs_can_set_it_too(make_queue: MakeQueue, pair: Pair):
    queue = make_queue(at=pair.primary, retry_for=30)
    sure = queue.task(durability="replicated")(print)
    queue.enqueue("known to work", durability="replicated")

    with pair.primary.requests() as seen:
        if isinstance(queue.queue, Queue):
            sure.enqueue(1)
            sure.options(delay=5).enqueue(1)
            sure.options(durability="memory").enqueue(1)
        queue.enqueue_many([1, NewJob(2, durability="replicated")])
        queue.enqueue_many([1, NewJob(2, durability="memory")], durability="replicated")

    count = 4 if isinstance(queue.queue, Queue) else 2
    assert len([request for request in seen if request.words[:2] == ("WAIT", "1")]) == count


def test_other_processes_read_it():
    stored = Settings("mail", durability="replicated", replicas=2).to_fields()

    found = Settings("mail").with_fields(stored)

    assert (found.durability, found.replicas) == ("replicated", 2)
    assert Settings("mail", durability="fsync").with_fields({"durability": "no such"}).durability == "fsync"


# -- how replies are processed, without Redis


def operation(*waits: Wait) -> Operation[Any]:
    return Operation(
        "enqueue",
        None,
        (),
        ("PING",),
        lambda reply: f"read {reply}",
        waits=waits,
        unconfirmed=lambda answer, missing: NotAcknowledged(missing, [answer]),
    )


def request(*operations: Operation[Any]) -> Request:
    return Request(operations, Address("redis://example.org"), Settings("mail"), 5)


def test_one_wait_covers_everything_sent_before_it():
    three = request(operation(REPLICAS), operation(), operation(REPLICAS))

    assert len(three.commands()) == 3
    assert three.waits() == (REPLICAS,)
    three.on_replies(["1", "2", "3", 2])

    assert three.answers == ["read 1", "read 2", "read 3"]


def test_a_failed_wait_is_reported_to_the_callers_that_asked_for_it():
    two = request(operation(REPLICAS), operation())

    two.on_replies(["1", "2", 0])

    assert not two.left
    assert isinstance(two.answers[0], NotAcknowledged)
    assert two.answers[0].stored == ("read 1",)
    assert two.answers[1] == "read 2"


def test_what_was_not_executed_is_not_reported_as_stored():
    one = request(operation(REPLICAS))

    one.on_replies([from_server("OOM command not allowed when used memory > 'maxmemory'"), 2])

    assert "memory" in str(one.answers[0])
    assert not isinstance(one.answers[0], NotAcknowledged)


def test_an_unknown_script_is_sent_again_and_waited_for_again():
    queue = Settings("mail")
    one = request(enqueue.enqueue(queue, enqueue.prepare(queue, 1, Options(job_id="a", durability="fsync"))))

    one.on_replies([from_server("NOSCRIPT No matching script"), [1, 0]])
    assert one.commands()[0][0] == "EVAL"
    assert len(one.waits()) == 1
    one.on_replies([["STORED"], [1, 0]])

    assert one.answers == ["a"]


def test_a_wait_on_a_server_that_stops_being_the_primary_starts_again():
    one = request(operation(REPLICAS))

    unblocked = from_server("UNBLOCKED force unblock from blocking operation, instance state changed")
    assert one.on_replies(["1", unblocked]) > 0
    assert len(one.commands()) == len(one.waits()) == 1
    one.on_replies(["1 again", 2])

    assert one.answers == ["read 1 again"]


def test_a_rejected_wait_is_reported_with_the_id():
    one = request(operation(REPLICAS))

    one.on_replies(["1", from_server("NOPERM this user has no permissions to run the 'wait' command")])

    assert isinstance(one.answers[0], NotAcknowledged)
    assert "may not do this" in str(one.answers[0])
