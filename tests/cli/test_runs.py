"""Workflows on the command line: messages, and what a run has done and waits for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from schedq import Queue
from schedq.model import outcome
from schedq.model.runs import RunWait
from schedq.queue.task import Task
from schedq.transitions import run as requests
from tests.cli.conftest import Run
from tests.cli.scenes import beat, claimed
from tests.state import State
from tests.transitions.run_scenes import begun, step

Look = Callable[[], State]


def suspended(queue: Queue) -> str:
    """A run that has charged a card and waits for a message, with one on another topic."""
    queue.enqueue(1, job_id="order-17")
    job = begun(claimed(queue))
    queue._ask(requests.step(queue.settings, job, "charge", step({"paid": 12})))
    queue._ask(requests.receive(queue.settings, job, "receive", "paid", None))
    queue.settle(outcome.suspended(job, [RunWait("receive", "receive", None, "paid")]))
    queue.job(job.id).send("news", 1)
    return job.id


def test_a_message_wakes_a_run(run: Run, queue: Queue, state: Look):
    job_id = suspended(queue)

    said = run("send", job_id, "paid", '{"amount": 12}', "--id", "payment-99")

    assert said.lines == ["job order-17 of queue mail: message sent to topic paid"]
    assert state().ids("pending") == [job_id]
    assert state().job(job_id)["inbox:paid"].endswith(' {"amount":12}')
    assert run("send", job_id, "paid", "8", "--id", "payment-99", "--json").json["sent"] is True
    assert state().job(job_id)["inbox:paid"].endswith(' {"amount":12}')


def test_a_message_may_be_empty_or_come_from_standard_input(run: Run, queue: Queue, state: Look):
    job_id = suspended(queue)

    run("send", job_id, "a")
    run("send", job_id, "b", "-", stdin='"yes"\n')

    assert [state().job(job_id)[f"inbox:{topic}"].split(" ")[1] for topic in "ab"] == ["null", '"yes"']


def test_a_job_that_has_ended_takes_no_messages(run: Run, queue: Queue):
    queue.enqueue(1, job_id="j1")
    queue.cancel("j1")

    said = run("send", "j1", "paid")

    assert (said.code, said.complaint) == (
        1,
        "schedq: job j1 of queue mail has ended or is not stored, and takes no messages",
    )
    assert run("send", "j1", "paid", "--json").json["sent"] is False
    assert run("send", "j1", "paid", "--json").code == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("a b", "1"), "topic"),
        (("paid", "yes"), "a string needs quotes"),
        (("paid", "1", "--id", "a b"), "printable ASCII"),
        (("paid", f'"{"x" * 60_000}"'), "max_payload"),
    ],
)
def test_a_mistake_in_a_message_is_named(run: Run, queue: Queue, words: tuple[str, ...], complaint: str):
    job_id = suspended(queue)

    said = run("send", job_id, *words)

    assert said.code == 2
    assert complaint in said.complaint


def test_a_job_shows_what_its_run_has_done_and_waits_for(run: Run, queue: Queue):
    out = run("job", suspended(queue)).out

    assert "for a message on topic" in out
    assert "messages on topic news" in out
    assert "charge" in out
    assert '{"paid": 12}' in out
    assert "step:charge" not in out
    timeline = [line[25:].split("  ")[0] for line in out.partition("timeline")[2].splitlines()]
    assert {"run began", "step charge: ok", "receive begins", "message on topic news, which nothing has taken"} <= {
        *timeline
    }


def flowing(queue: Queue) -> str:
    """A flow of three nodes: one has completed, one runs, one waits."""
    task: Task[[Any], int] = Task(len, queue.connections, name="count")
    flow = queue.flow("etl")
    listed = flow.call(task, ["a"])
    flow.call(task, flow.call(task, [listed.result]).result)
    flow.start(job_id="etl-1")
    job = begun(claimed(queue))
    job.run += " flow=1"
    queue._ask(requests.step(queue.settings, job, "plan", step(None).replace("step", "plan")))
    queue._ask(requests.step(queue.settings, job, "1.0/count", step(2).replace("step", "call")))
    queue.settle(outcome.suspended(job, [RunWait("call", "1.1/count 2", None, "", "run-17")]))
    return job.id


def test_a_flow_is_shown_node_by_node(run: Run, queue: Queue):
    job_id = flowing(queue)

    assert [line.split() for line in run("job", job_id, "--tree").lines[1:]] == [
        ["├──", "count", "completed", "10", "ms"],
        ["├──", "count", "2", "running"],
        ["└──", "count", "3", "waiting"],
    ]
    assert [each["state"] for each in run("job", job_id, "--tree", "--json").json["below"]] == [
        *("completed", "running", "waiting")
    ]


def test_a_flow_is_paused_and_resumed(run: Run, queue: Queue, state: Look):
    job_id = flowing(queue)

    assert run("pause", "mail", "--flow", job_id).lines == [
        "flow etl-1 of queue mail is paused: it starts no new nodes"
    ]
    assert state().job(job_id)["inbox:schedq.flow"].endswith(" [true,0]")
    assert run("resume", "mail", "--flow", job_id, "--json").json == {
        "queue": "mail",
        "flow": "etl-1",
        "is_paused": False,
    }
    assert state().job(job_id)["inbox:schedq.flow"].endswith(" [false,0]")


def test_what_is_no_flow_is_not_paused(run: Run, queue: Queue):
    job_id = suspended(queue)

    assert "is not one of a flow" in run("pause", "mail", "--flow", job_id).complaint
    assert "has ended, or does not exist" in run("resume", "mail", "--flow", "none").complaint
    assert "not both" in run("pause", "mail", "--flow", job_id, "--task", "send").complaint


def test_runs_are_listed_with_what_they_wait_for(run: Run, queue: Queue):
    job_id = suspended(queue)
    queue.enqueue({"task": "other"})

    title, row, summary = run("workflows", "ls").lines

    assert title.split() == ["id", "state", "task", "done", "took", "note"]
    assert re.match(rf"{job_id} +delayed +1 +\d+ m?s +it has waited \d+ m?s for a message on topic", row)
    assert summary == "queue mail: 1 run, 2 of 2 jobs looked at"


def test_runs_that_have_not_begun_are_known_by_their_task(run: Run, queue: Queue):
    queue.enqueue({"task": "import"}, job_id="later", delay=600)
    queue.enqueue({"task": "other"})
    assert run("workflows", "ls").lines == ["queue mail: 0 runs, 2 of 2 jobs looked at"]

    beat(queue, "w-1", tasks='["import", "other"]', workflows='["import", "é"]')

    assert run("workflows", "ls").lines[1].split()[:4] == ["later", "delayed", "import", "0"]
    (later,) = run("workflows", "ls", "--task", "import", "--json").json["runs"]
    assert later["waits"].startswith("it is due in")
    assert run("workflows", "ls", "--task", "other").lines == ["queue mail: 0 runs, 2 of 2 jobs looked at"]
    assert "did you mean import?" in run("workflows", "ls", "--task", "impot").err


def test_a_long_list_says_how_it_continues(run: Run, queue: Queue):
    beat(queue, "w-1", tasks='["import"]', workflows='["import"]')
    queue.enqueue_many([{"task": "import"}] * 3)

    *_, summary, ahead = run("workflows", "ls", "mail", "--limit", "2", "--task", "import").lines

    assert summary == "queue mail: 2 runs, 2 of 3 jobs looked at"
    said, _, command = ahead.partition(": schedq ")
    assert said == "there may be more pending ones"
    assert run(*command.split()).lines[-1] == "queue mail: 1 run, 1 of 3 jobs looked at"
    assert "cursor 'x' was not returned" in run("workflows", "ls", "--cursor", "x").complaint
