"""A mistyped name: every command says that it is unknown and suggests the closest name."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from schedq import Queue
from schedq.doctor.roles import PRODUCER
from tests.cli.conftest import Run
from tests.servers import Server

READING = (
    "stats mial",
    "stats mial --json",
    "jobs mial",
    "jobs mial --task send",
    "jobs mial --json",
    "top mial --once",
    "top mial --once --json",
    "workers mial",
    "export mial",
    "purge mial --yes",
    "purge mial --state failed --yes",
    "resume mial",
    "pause mial",
    "doctor mial",
    "forecast 1h --queue mial",
    "schedules ls mial",
    "schedules show nightly --queue mial",
    "requeue --failed --yes --queue mial",
    "cancel never-was --queue mial",
    "reschedule never-was --delay 5 --queue mial",
    "job never-was --queue mial",
    "why never-was --queue mial",
)


@pytest.fixture
def queues(desk: Server) -> None:
    """Two queues, each with a job; a worker of `mail` that knows two tasks."""
    for name in ("mail", "reports"):
        with Queue(name, redis=desk.unix_url) as queue:
            queue.enqueue(1, job_id="there")
    with desk.client() as client:
        client.zadd("queue:mail:workers", {"w-1": 4e12})
        client.hset("queue:mail:worker:w-1", "tasks", json.dumps(["send_mail", "send_report"]))


@pytest.mark.parametrize("command", READING)
def test_an_unknown_queue_is_refused_with_the_closest_name(command: str, run: Run, desk: Server, queues: None):
    said = run(*command.split())

    assert said.code == 1
    assert said.complaint == (
        "schedq: nothing is stored about queue mial; there are 2 queues here: mail, reports; did you mean mail?"
        + (" (--force pauses mial anyway)" if command.startswith("pause") else "")
    )
    with desk.client() as client:
        assert client.keys("queue:mial:*") == []


def test_a_job_for_a_queue_that_is_not_there_is_stored_with_a_warning(run: Run, desk: Server, queues: None):
    said = run("enqueue", "mial", "1", "--id", "mine")

    assert (said.code, said.out) == (0, "mine\n")
    assert said.complaint.endswith("queue mial; there are 2 queues here: mail, reports; did you mean mail?")
    assert run("enqueue", "mial", "1", "--id", "mine").err == ""


def test_so_are_many_with_one_warning(run: Run, queues: None):
    said = run("enqueue", "mial", "--lines", stdin="1\n2\n")

    assert (said.code, len(said.out.splitlines())) == (0, 2)
    assert "did you mean mail?" in said.complaint


def test_the_first_queue_of_a_redis_causes_no_warning(run: Run):
    assert run("enqueue", "mail", "1").err == ""


def test_a_queue_with_nothing_but_a_pause_a_schedule_or_a_worker_is_there(run: Run, desk: Server, queues: None):
    with desk.client() as client:
        client.set("queue:mai:paused", "1")
        client.hset("queue:mat:paused_tasks", "send", "1")
        client.zadd("queue:mil:schedules", {"nightly": 4e12})
        client.zadd("queue:mall:workers", {"w-1": 4e12})
        client.sadd("schedq:queues", "mai", "mat", "mil", "mall")

    for name in ("mai", "mat", "mil", "mall"):
        assert (run("stats", name).code, run("stats", name).err) == (0, "")


def test_pausing_before_the_first_job_needs_force_only_if_another_queue_has_a_similar_name(run: Run, queues: None):
    assert run("pause", "mial", "--force").code == 0
    new = run("pause", "billing")

    assert new.code == 0
    assert (
        new.complaint == "schedq: nothing is stored about queue billing; there are 3 queues here: mail, mial, reports"
    )


def test_a_pause_at_an_empty_redis_says_that_nothing_is_stored(run: Run):
    first = run("pause", "mail").lines
    again = run("pause", "mail").lines

    assert first == ["queue mail is paused (it is new: nothing else is stored about it); 0 running, 0 waiting"]
    assert "nothing is stored" not in again[0]


def test_an_import_into_a_queue_that_is_not_there_warns(run: Run, queues: None):
    said = run("import", "mial", stdin='{"id": "mine", "payload": 1}\n')

    assert (said.code, said.out) == (0, "queue mial: 1 job stored\n")
    assert said.complaint.endswith("did you mean mail?")


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["enqueue", "mail", "--task", "send_mial"], ""),
        (["enqueue", "mail", '{"task": "send_mial"}'], ""),
        (["enqueue", "mail", "--lines"], '{"task": "send_mail"}\n{"task": "send_mial"}\n'),
        (["jobs", "mail", "--task", "send_mial"], ""),
        (["export", "mail", "--task", "send_mial"], ""),
        (["cancel", "--state", "pending", "--task", "send_mial", "--queue", "mail", "--yes"], ""),
        (["purge", "mail", "--task", "send_mial", "--dry-run"], ""),
    ],
    ids=str,
)
def test_a_task_that_no_worker_has_prints_a_warning_with_the_closest_name(
    words: list[str], stdin: str, run: Run, queues: None
):
    said = run(*words, stdin=stdin)

    assert said.code == 0
    assert said.complaint == "schedq: no live worker of queue mail has a task 'send_mial'; did you mean send_mail?"


def test_for_a_task_that_resembles_none_the_known_tasks_are_printed(run: Run, queues: None):
    said = run("enqueue", "mail", "--task", "x")

    assert said.complaint.endswith("has a task 'x'; they have send_mail, send_report")


def test_without_a_live_worker_no_task_is_unknown(run: Run, queues: None):
    assert run("enqueue", "reports", "--task", "anything").err == ""


def test_a_schedule_that_is_not_there_is_refused_with_the_nearest_name(run: Run, desk: Server, queues: None):
    with Queue("mail", redis=desk.unix_url) as queue:
        queue.schedules.upsert("nightly", cron="0 3 * * *", task="send_mail")

    for command in ("show", "next", "pause", "trigger"):
        said = run("schedules", command, "nigthly", "--queue", "mail")

        assert (said.code, said.complaint) == (
            1,
            "schedq: queue mail has no schedule nigthly; did you mean nightly?",
        )


def test_a_promoter_of_an_unknown_queue_logs_a_warning(desk: Server, queues: None):
    command = [sys.executable, "-m", "schedq", "promoter", "mial", "--redis", desk.unix_url]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    first = process.stderr.readline()
    process.terminate()
    process.communicate(timeout=60)

    assert "WARNING nothing is stored about queue mial; " in first
    assert first.endswith("did you mean mail?\n")
    assert process.returncode == 0


def test_a_user_who_may_only_enqueue_can(run: Run, desk: Server, queues: None):
    with desk.client() as client:
        client.execute_command(f"ACL SETUSER producer on >secret {PRODUCER.rules()}")
    url = desk.unix_url.replace("unix://", "unix://producer:secret@")

    said = run("enqueue", "mial", "--task", "send", "--redis", url)

    assert (said.code, said.err) == (0, "")
