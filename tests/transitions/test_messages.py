"""Messages to runs: which of them a wait takes, and which are accepted at all."""

from __future__ import annotations

from typing import Final

import pytest

from schedq import Discard, QueueFull, UsageError, WorkflowContext
from schedq.model.runs import Memo, RunWait
from schedq.transitions import heartbeat, run
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.run_scenes import HOUR, begun, message, running, suspend, taken, waits_until
from tests.transitions.scenes import one_door


@pytest.fixture
def timed(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock, max_attempts=3)


def test_a_message_counts_by_its_arrival_not_by_the_time_at_which_somebody_looks(timed: Handle, clock: Clock):
    """The queue is paused for a day; the message came in time."""
    job = running(timed)
    waits_until(timed, job, HOUR)
    suspend(timed, job, RunWait("receive", "receive", clock.now_ms + HOUR, "paid"))
    clock.pass_time(3600)
    arrived = clock.now_ms
    message(timed, job.id, value="in time")
    clock.pass_time(86_400)

    memo = taken(timed, timed.claim(0), timeout_ms=HOUR)

    assert (memo.outcome, memo.value, memo.ended_ms) == ("ok", "in time", arrived)


def test_a_message_that_came_too_late_is_left_for_the_next_wait(timed: Handle, clock: Clock):
    job = running(timed)
    ends = waits_until(timed, job, HOUR)
    clock.pass_time(3600.001)
    message(timed, job.id, value="late")
    clock.pass_time(60)

    first, second = taken(timed, job, timeout_ms=HOUR), taken(timed, job, "receive#2", timeout_ms=HOUR)

    assert (first.outcome, first.ended_ms) == ("timeout", ends)
    assert (second.outcome, second.value) == ("ok", "late")
    assert timed.fields(job.id)["inbox:paid"] == ""


def test_messages_are_taken_in_the_order_of_their_arrival_before_and_after_the_run_began(queue: Handle):
    job_id = queue.enqueue("work")
    for number in range(3):
        message(queue, job_id, value=number)
    job = begun(queue.claim(0))

    found = [taken(queue, job, f"receive#{number + 2}").value for number in range(3)]

    assert found == [0, 1, 2]
    assert waits_until(queue, job) is None


@pytest.mark.parametrize("value", [None, "a\nb", "\u2028", {"a": [1, "]"]}, '",1,2,3,4,"x"]', "", 0, False, [], "ü"])
def test_a_message_is_received_as_it_was_sent(queue: Handle, value: object):
    job = running(queue)
    message(queue, job.id, value="before")
    message(queue, job.id, value=value)
    taken(queue, job)

    memo = taken(queue, job, "receive#2")

    assert memo.value == value


# -- a race


def test_what_a_losing_branch_had_taken_goes_back_to_its_box_in_its_place(timed: Handle, clock: Clock):
    job = running(timed)
    for value in ("first", "second", "third"):
        message(timed, job.id, value=value)
        clock.pass_time(1)
    box = timed.fields(job.id)["inbox:paid"]
    taken(timed, job, "1.a/receive")
    taken(timed, job, "1.a/receive#2")
    timed._ask(run.until(timed.settings, job, "1.b/sleep", "in", 1000))

    losers = ["1.a/receive", "1.a/receive#2", "1.b/sleep"]
    timed._ask(run.step(timed.settings, job, "first", '["first","ok","c",1,2,1]', losers))

    fields = timed.fields(job.id)
    assert fields["inbox:paid"] == box
    left = {name: Memo.read(fields[name]) for name in fields if name.startswith(("step:", "until:"))}
    assert sorted(left) == ["step:1.a/receive", "step:1.a/receive#2", "step:first"]
    assert sorted(memo.outcome for memo in left.values() if memo) == ["ok", "returned", "returned"]
    assert taken(timed, job).value == "first"


# -- what is accepted


def test_a_message_with_an_id_is_accepted_once_also_when_it_was_taken(queue: Handle):
    job = running(queue)
    assert message(queue, job.id, value=1, message_id="scan-1")
    taken(queue, job)
    before = queue.dump()

    assert message(queue, job.id, value=1, message_id="scan-1")

    assert queue.dump() == before


def test_a_message_sent_again_after_the_run_has_ended_gets_the_first_answer(queue: Handle):
    job = running(queue)
    message(queue, job.id, message_id="scan-1")
    queue.complete(job)

    assert message(queue, job.id, message_id="scan-1")
    assert not message(queue, job.id, message_id="scan-2")


@pytest.mark.parametrize("end", ["complete", "fail", "cancel", "unknown", "deleted"])
def test_a_message_to_a_job_that_has_ended_is_not_accepted(queue: Handle, end: str):
    job = running(queue)
    if end == "complete":
        queue.complete(job)
    elif end == "fail":
        queue.fail(job, Discard())
    else:
        queue.release(job)
        queue.cancel(job.id)
    before = queue.dump()

    assert not message(queue, "unknown" if end == "unknown" else job.id)

    assert queue.dump() == before


def test_ids_of_messages_are_known_for_a_hundred_messages_and_a_topic_may_have_any_number(queue: Handle):
    job = running(queue)
    for number in range(150):
        assert message(queue, job.id, value=number, message_id=f"m{number}")
        assert taken(queue, job, f"receive#{number}").value == number

    assert queue.fields(job.id)["sent:paid"].split("\n") == [f"m{number}" for number in range(50, 150)]


@one_door
def test_a_topic_has_room_for_100_messages_that_nothing_has_taken(queue: Handle):
    job = running(queue)
    for number in range(100):
        assert message(queue, job.id, value=number)
    before = queue.dump()

    with pytest.raises(QueueFull, match="100 messages of topic paid"):
        message(queue, job.id)

    assert queue.dump() == before
    taken(queue, job)
    assert message(queue, job.id)


def test_a_topic_has_room_for_64_kib(queue: Handle):
    job = running(queue)
    assert message(queue, job.id, value="x" * 50_000)

    with pytest.raises(QueueFull):
        message(queue, job.id, value="x" * 20_000)
    with pytest.raises(UsageError, match="message is 60,002 bytes"):
        message(queue, job.id, value="x" * 60_000)

    assert message(queue, job.id, "other", value="x" * 50_000)


@one_door
def test_a_job_has_room_for_100_topics(queue: Handle):
    job = running(queue)
    for number in range(100):
        assert message(queue, job.id, f"topic-{number}")

    with pytest.raises(QueueFull):
        message(queue, job.id, "one-more")

    assert message(queue, job.id, "topic-7")


@pytest.mark.parametrize("topic", ["", "a b", "a:b", "x" * 65, "ü", None])
def test_a_topic_is_a_short_plain_name(queue: Handle, topic: object):
    job = running(queue)

    with pytest.raises(UsageError, match="topic"):
        message(queue, job.id, topic)  # type: ignore[arg-type]


@pytest.mark.parametrize("message_id", ["", "a b", "a\nb", "x" * 129, 7])
def test_the_id_of_a_message_is_a_text_without_spaces(queue: Handle, message_id: object):
    job = running(queue)

    with pytest.raises(UsageError, match="of a message must be"):
        message(queue, job.id, message_id=message_id)  # type: ignore[arg-type]


def test_a_handle_of_a_job_sends(queue: Handle):
    job = queue.job(running(queue).id)

    sent = queue.run(job.asend("paid", 7, id="scan-1")), job.send("paid", 7, id="scan-1"), job.send("paid")

    assert sent == (True, True, True)
    lines = queue.fields(job.id)["inbox:paid"].split("\n")
    assert [line.split(" ")[1] for line in lines] == ["7", "null"]


# -- jobs that take no messages


def test_a_job_of_a_plain_task_takes_no_messages(queue: Handle):
    """Nothing would ever read them. Until now `send` returned True."""
    queue.queue.task(name="ship")(abs)
    job = queue.job(queue.enqueue({"task": "ship"}))
    before = queue.dump()

    with pytest.raises(UsageError, match=r"is one of task 'ship', which is no workflow.*@queue\.workflow"):
        job.send("paid", 7)
    with pytest.raises(UsageError, match="which is no workflow"):
        queue.run(job.asend("paid", 7))

    assert queue.dump() == before


def test_a_job_of_a_workflow_takes_messages_before_it_has_begun(queue: Handle):
    @queue.queue.workflow(name="order")
    async def order(ctx: WorkflowContext) -> None: ...

    assert queue.job(queue.enqueue({"task": "order"})).send("paid", 7)


KNOWN: Final = [
    # what live workers know of the task, and whether a message is taken
    ([], True),
    ([{"tasks": '["ship"]', "workflows": '["order"]'}], False),
    ([{"tasks": '["order"]', "workflows": '["order"]'}], True),
    ([{"tasks": '["ship","order"]', "workflows": '["ship"]'}], True),
    ([{"tasks": '["ship"]', "workflows": "[]"}, {"tasks": '["ship"]', "workflows": '["ship"]'}], True),
    ([{"tasks": '["ship"]'}], True),  # of an older release
    ([{"tasks": "[", "workflows": '{"a":1}'}], True),
]


@pytest.mark.parametrize(("records", "is_taken"), KNOWN)
def test_workers_say_whether_a_task_takes_messages(queue: Handle, records: list[dict[str, str]], is_taken: bool):
    """For the command line, and programs without the application's code."""
    for number, fields in enumerate(records):
        queue._ask(heartbeat.beat(queue.settings, f"w-{number}", fields))
    job_id = queue.enqueue({"task": "ship"})

    if is_taken:
        assert message(queue, job_id)
    else:
        with pytest.raises(UsageError, match="no workflow"):
            message(queue, job_id)


def test_a_dead_worker_says_nothing_of_a_task(timed: Handle, clock: Clock):
    timed._ask(heartbeat.beat(timed.settings, "w-1", {"tasks": '["ship"]', "workflows": "[]"}))
    clock.pass_time(60)

    assert message(timed, timed.enqueue({"task": "ship"}))


def test_a_run_that_has_begun_takes_messages_whatever_is_said_of_its_task(queue: Handle):
    queue.enqueue({"task": "ship"}, job_id="j1")
    job = begun(queue.claim(0))
    waits_until(queue, job)
    queue._ask(heartbeat.beat(queue.settings, "w-1", {"tasks": '["ship"]', "workflows": "[]"}))

    assert message(queue, job.id)
