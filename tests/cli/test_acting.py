"""requeue, cancel, reschedule, pause, resume, purge: what they do, and what they print about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schedq import Queue
from schedq.transitions import announce
from tests.cli.conftest import Run
from tests.cli.scenes import beat, failed_jobs, one_of_each
from tests.state import State

Look = Callable[[], State]

# -- requeue


def test_failed_and_cancelled_jobs_are_requeued_by_id(run: Run, queue: Queue, state: Look):
    one_of_each(queue)

    assert run("requeue", "failed", "cancelled").lines == ["failed: requeued", "cancelled: requeued"]

    assert state().ids("pending") == ["pending", "failed", "cancelled"]


def test_one_that_refuses_does_not_stop_the_others(run: Run, queue: Queue, state: Look):
    one_of_each(queue)

    said = run("requeue", "completed", "failed", "--json")

    assert said.code == 1
    assert said.json == {
        "queue": "mail",
        "jobs": [{"id": "completed", "answer": "no", "state": "completed"}, {"id": "failed", "answer": "requeued"}],
    }


def test_all_failed_jobs_are_requeued_oldest_first_in_batches(run: Run, queue: Queue, state: Look):
    ids = failed_jobs(queue, 1100)

    assert run("requeue", "--failed", "--yes").lines == ["queue mail: 1,100 jobs requeued"]

    assert state().places() == {"pending": ids}


def test_nothing_is_requeued_unasked(run: Run, queue: Queue, state: Look):
    ids = failed_jobs(queue, 3)

    said = run("requeue", "--failed")

    assert said.code == 1
    assert "add --yes; nothing was done" in said.complaint
    assert state().places() == {"failed": ids}


def test_without_failed_jobs_there_is_no_question(run: Run, queue: Queue):
    queue.enqueue(1)

    assert run("requeue", "--failed", "--json").json.items() >= {"queue": "mail", "requeued": 0}.items()


# -- cancel


def test_cancel_says_what_became_of_each(run: Run, queue: Queue, state: Look):
    one_of_each(queue)

    said = run("cancel", "pending", "delayed", "processing", "completed", "--yes")

    assert said.code == 1
    assert said.out.splitlines() == ["pending: cancelled", "delayed: cancelled", "processing: asked to stop"]
    assert said.complaint == "schedq: job completed is completed; only a waiting or running job can be cancelled"
    assert state().ids("cancelled") == ["cancelled", "pending", "delayed"]


def test_one_job_is_cancelled_at_once_and_several_are_asked_about(run: Run, queue: Queue, state: Look):
    one_of_each(queue)

    assert run("cancel", "pending", "delayed").code == 1
    assert run("cancel", "pending").lines == ["pending: cancelled"]

    assert state().ids("cancelled") == ["cancelled", "pending"]


def test_histories_are_capped_as_the_application_has_them(run: Run, make_queue: Callable[..., Queue]):
    """The library's own settings would keep 10,000; this application keeps 3."""
    ours = make_queue(failed_history=3, min_keep=0)
    ours._ask(announce.announce(ours.settings))
    for job_id in ours.enqueue_many(range(5)):
        run("cancel", job_id)

    assert ours.stats()["cancelled_depth"] == 3


# -- reschedule


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--delay", "1h30s"], "(in 1 h)"),
        (["--run-at", "2040-01-01T09:00"], "due 2040-01-01 09:00:00.000 +0100 (in "),
    ],
    ids=["delay", "run-at"],
)
def test_a_delayed_job_gets_another_time(words: list[str], says: str, run: Run, queue: Queue, state: Look):
    one_of_each(queue)

    (line,) = run("reschedule", "delayed", *words).lines

    assert line.startswith("delayed: due 20")
    assert says in line
    assert state().ids("delayed") == ["delayed"]


def test_a_delayed_job_is_brought_forward_to_now(run: Run, queue: Queue, state: Look):
    one_of_each(queue)

    assert run("reschedule", "delayed", "--now").lines == ["delayed: runs now"]

    assert state().ids("pending") == ["delayed", "pending"]


# -- pause, resume


def test_a_queue_is_paused_and_resumed(run: Run, queue: Queue, state: Look):
    one_of_each(queue)

    assert run("pause", "mail").lines == ["queue mail is paused; 1 running, 1 waiting"]
    assert queue.claim(0) is None
    (again,) = run("pause", "mail").lines
    assert again.startswith("queue mail is paused, and has been since 20")
    assert again.endswith(" ago); 1 running, 1 waiting")
    assert run("resume", "mail").lines == ["queue mail is resumed; 1 waiting"]
    assert run("resume", "mail").lines == ["queue mail was not paused; 1 waiting"]

    assert queue.claim(0).id == "pending"


def test_pausing_for_programs(run: Run, queue: Queue, state: Look):
    first = run("pause", "mail", "--json").json

    assert first == {
        "queue": "mail",
        "was_paused": False,
        "paused_since_ms": queue.stats()["paused_since_ms"],
    }
    assert run("pause", "mail", "--json").json == first | {"was_paused": True}
    assert run("resume", "mail", "--json").json == {"queue": "mail", "was_paused": True}


def test_tasks_are_paused_and_resumed_by_name(run: Run, queue: Queue):
    queue.enqueue({"task": "send"}, job_id="first")
    queue.enqueue({"task": "report"}, job_id="second")

    assert run("pause", "mail", "--task", "send", "--task", "resize").lines == [
        "task send of queue mail is paused",
        "task resize of queue mail is paused",
    ]
    (again,) = run("pause", "mail", "--task", "send").lines
    assert again.startswith("task send of queue mail is paused, and has been since 20")
    assert (queue.claim(0).id, queue.claim(0)) == ("second", None)
    assert run("resume", "mail").lines == [
        "queue mail was not paused; 1 waiting; still paused: task resize, task send",
    ]
    assert run("resume", "mail", "--task", "send", "--task", "other").lines == [
        "task send of queue mail is resumed",
        "task other of queue mail was not paused",
    ]

    assert queue.claim(0).id == "first"
    assert set(queue.list_paused_tasks()) == {"resize"}


def test_pausing_a_task_for_programs(run: Run, queue: Queue):
    first = run("pause", "mail", "--task", "send", "--json").json
    since_ms = queue.list_paused_tasks()["send"]

    assert first == {"queue": "mail", "tasks": {"send": {"was_paused": False, "paused_since_ms": since_ms}}}
    assert run("pause", "mail", "--task", "send", "--json").json["tasks"]["send"]["was_paused"] is True
    assert run("resume", "mail", "--task", "send", "--json").json == {
        "queue": "mail",
        "tasks": {"send": {"was_paused": True}},
    }


def test_pausing_a_task_that_no_worker_has_is_warned_about(run: Run, queue: Queue):
    beat(queue, "w-1", tasks='["send"]')

    said = run("pause", "mail", "--task", "sned")

    assert said.code == 0
    assert said.complaint == "schedq: no live worker of queue mail has a task 'sned'; did you mean send?"


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_name_that_no_task_can_have_is_refused(verb: str, run: Run, queue: Queue):
    queue.enqueue(1)

    said = run(verb, "mail", "--task", "send", "--task", "")

    assert (said.code, "task must be" in said.complaint) == (2, True)
    assert queue.list_paused_tasks() == {}


def test_a_queue_may_be_paused_before_its_first_job(run: Run, queue: Queue):
    run("pause", "mail")

    assert run("stats", "--json").json["queues"][0]["paused_since_ms"]


# -- purge


def test_a_purge_leaves_no_job_and_keeps_a_pause(run: Run, queue: Queue, state: Look):
    one_of_each(queue)
    queue.pause()

    assert run("purge", "mail", "--yes").lines == ["queue mail: 6 jobs deleted"]

    assert state().jobs() == {}
    assert queue.stats()["paused_since_ms"]
    assert run("purge", "mail").lines == ["queue mail holds no jobs"]


def test_nothing_is_purged_unasked(run: Run, queue: Queue, state: Look):
    one_of_each(queue)
    before = state().places()

    said = run("purge", "mail", "--json")

    assert (said.code, said.out) == (1, "")
    assert state().places() == before


def test_a_purge_for_programs(run: Run, queue: Queue):
    queue.enqueue_many(range(1500))

    assert run("purge", "mail", "--yes", "--json").json == {"queue": "mail", "purged": 1500}


# -- server


def test_the_embedded_server_is_started_and_ended(run: Run, tmp_path: object):
    folder = f"{tmp_path}/data"

    started = run("server", folder, "--json").json
    try:
        assert started["directory"] == folder
        run("enqueue", "mail", "1", "--redis", started["url"])
        assert run("stats", "mail", "--json", "--redis", f"embedded://{folder}").json["pending_depth"] == 1
    finally:
        assert run("server", "--stop", folder).lines == [f"{folder}: stopped"]
    assert run("server", "--stop", folder, "--json").json == {"directory": folder, "was_running": False}


# -- on record


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["requeue", "failed"], ("requeue", "failed")),
        (["cancel", "pending"], ("cancelled", "pending")),
        (["cancel", "processing"], ("stop", "processing")),
        (["reschedule", "delayed", "--delay", "5m"], ("reschedule", "delayed")),
        (["reschedule", "delayed", "--now"], ("reschedule", "delayed")),
        (["pause", "mail"], ("pause", "")),
        (["purge", "mail", "--yes"], ("act purge", "")),
        (["purge", "mail", "--state", "failed", "--yes"], ("act delete", "")),
        (["requeue", "--failed", "--yes"], ("act requeue", "")),
    ],
    ids=" ".join,
)
def test_each_act_is_one_line_of_the_log(run: Run, queue: Queue, words: list[str], line: tuple[str, str]):
    one_of_each(queue)
    before = queue.inspector.log()

    assert run(*words).code == 0

    assert [(entry.move, entry.id) for entry in queue.inspector.log()[len(before) :]] == [line]


def test_a_resume_is_one_line_of_the_log(run: Run, queue: Queue):
    queue.pause()

    run("resume", "mail")

    assert [entry.move for entry in queue.inspector.log()] == ["pause", "resume"]


def test_a_refused_action_is_not_logged(run: Run, queue: Queue):
    one_of_each(queue)
    before = queue.inspector.log()

    assert run("requeue", "pending").code == 1

    assert queue.inspector.log() == before


def test_one_thing_of_a_schedule_is_changed(run: Run, queue: Queue):
    queue.schedules.upsert("poll", every=60, task="poll", args=["eu"])

    assert run("schedules", "update", "poll", "--every", "30s", "--version", "1").lines == ["poll: changed"]
    again = run("schedules", "update", "poll", "--every", "30s", "--json").json

    assert again == {"queue": "mail", "id": "poll", "result": "unchanged"}
    record = queue.schedules.get("poll")
    assert record is not None
    assert (record.every_ms, record.version) == (30_000, 1)
    assert record.fields["payload"] == '{"task":"poll","args":["eu"]}'
