"""`schedq workers`, and asking one to stop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from schedq import Queue
from tests.cli.conftest import Run
from tests.cli.scenes import beat
from tests.servers import Server

JOBS = json.dumps([{"id": "j-1", "task": "send", "started_at_ms": int(time.time() * 1000) - 65_000, "attempts": 2}])


def test_it_shows_what_each_worker_runs_and_since_when(run: Run, queue: Queue):
    queue.enqueue(1)
    beat(queue, "vm-7-abc", running=1, jobs=JOBS, version="1.2.3")

    lines = run("workers", "mail").lines

    assert lines[0] == "queue mail, as of each worker's last heartbeat (every 10 s)"
    assert "vm-7-abc" in lines[1]
    for fact in ("1 of 10 busy", "host vm, pid 7", "schedq 1.2.3", "heartbeat"):
        assert fact in lines[1]
    assert lines[3].split()[:3] == ["j-1", "send", "2"]
    assert "min" in lines[3]


def test_without_a_name_it_shows_those_of_all_queues(run: Run, make_queue: Callable[..., Queue]):
    for name in ("mail", "reports", "idle"):
        make_queue(name).enqueue(1)
    beat(make_queue("mail"), "w-1")
    beat(make_queue("reports"), "w-2")

    said = run("workers").lines

    assert [line.partition(",")[0] for line in said if line.startswith("queue")] == ["queue mail", "queue reports"]
    assert said[-1] == "no live worker: idle"


def test_json_is_one_object(run: Run, queue: Queue):
    queue.enqueue(1)
    beat(queue, "w-1", running=1, jobs=JOBS)

    one, everything = run("workers", "mail", "--json").json, run("workers", "--json").json

    assert everything == {"queues": [one]}
    (worker,) = one["workers"]
    assert (one["queue"], worker["id"], worker["jobs"][0]["task"]) == ("mail", "w-1", "send")
    assert worker["seen_at_ms"] > 0


def test_a_missing_queue_is_reported(run: Run):
    said = run("workers", "mali")

    assert said.out == "no live worker: mali\n"
    assert "nothing is stored about queue mali" in said.complaint


def test_one_can_be_asked_to_stop_by_its_id_alone(run: Run, make_queue: Callable[..., Queue]):
    make_queue("mail").enqueue(1)
    queue = make_queue("reports")
    queue.enqueue(1)
    beat(queue, "w-2")

    said = run("workers", "--stop", "w-2").lines

    assert said == ["worker w-2: asked to stop; it receives the request within 10 s"]
    assert queue.list_workers()[0].is_stopping
    assert "STOPPING" in run("workers", "reports").out


def test_a_missing_worker_is_named_and_the_others_are_asked(run: Run, queue: Queue):
    queue.enqueue(1)
    beat(queue, "w-1")

    said = run("workers", "mail", "--stop", "w-1", "--stop", "w-9", "--yes", "--json")

    assert said.code == 1
    assert json.loads(said.out) == {"asked": ["w-1"], "unknown": ["w-9"]}
    assert said.complaint == "schedq: no live worker of queue mail has the id w-9"
    assert queue.list_workers()[0].is_stopping


def test_several_are_asked_about_first(run: Run, queue: Queue):
    beat(queue, "w-1")
    beat(queue, "w-2")

    said = run("workers", "mail", "--stop", "w-1", "--stop", "w-2")

    assert (said.code, "add --yes" in said.complaint) == (1, True)
    assert not any(worker.is_stopping for worker in queue.list_workers())


@pytest.mark.parametrize("hostile", ["\x1b[31mred", "[bold]x[/bold]", "a\nb"])
def test_texts_of_a_worker_cannot_control_the_terminal(run: Run, queue: Queue, hostile: str):
    beat(queue, "w-1", host=hostile, running=1, jobs=json.dumps([{"id": hostile, "task": hostile}]))

    said = run("workers", "mail")

    assert "\x1b" not in said.out
    assert "a\nb" not in said.out


def test_a_damaged_queue_hides_no_workers_of_others(run: Run, make_queue: Callable[..., Queue], desk: Server):
    beat(make_queue("mail"), "w-1")
    make_queue("reports").enqueue(1)
    with desk.client() as client:
        client.set("queue:reports:workers", "what is this")

    said = run("workers")

    assert "w-1" in said.out
    assert said.code == 1
    assert "queue reports: workers: WRONGTYPE" in said.complaint
