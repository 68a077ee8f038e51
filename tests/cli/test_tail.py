"""`schedq tail`: live events in a terminal or a pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from schedq import Discard, Fixed, Queue
from schedq.cli.new_jobs import NewJobs
from tests.cli.conftest import Run
from tests.cli.scenes import claimed
from tests.servers import Server
from tests.waiting import until


@pytest.fixture
def when_listening(desk: Server, queue: Queue) -> Callable[[Callable[[], Any]], threading.Thread]:
    """Does something as soon as a client listens to the queue."""

    def begin(act: Callable[[], Any]) -> threading.Thread:
        def work() -> None:
            until(lambda: listeners(desk, queue))
            act()

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    return begin


def listeners(desk: Server, queue: Queue) -> int:
    with closing(desk.client()) as client:
        return int(client.execute_command("PUBSUB", "NUMSUB", queue.settings.keys.events)[1])


def some_of_each(queue: Queue) -> None:
    queue.enqueue(1, job_id="done")
    queue.complete(claimed(queue))
    queue.enqueue(2, job_id="again", backoff=Fixed(60))
    queue.fail(claimed(queue), "not yet")
    queue.enqueue(3, job_id="bad")
    queue.fail(claimed(queue), Discard("\x1b[31mno use"))


def test_it_shows_events_and_says_what_it_does_not_show(run: Run, queue: Queue, when_listening: Any):
    queue.enqueue("later", delay=3600)
    thread = when_listening(lambda: some_of_each(queue))

    said = run("tail", "mail", "--limit", "3")
    thread.join()

    done, again, bad = said.out.splitlines()
    assert done.split()[1:] == ["completed", "done", "attempt", "1"]
    assert "retry" in again
    assert again.endswith("attempt 1, due in 1 min, not yet")
    assert bad.endswith("[31mno use")
    assert "\x1b" not in said.out
    assert "enqueuing or starting a job sends no event (--all looks for them)" in said.complaint


def test_it_can_be_asked_for_some_only_as_json(run: Run, queue: Queue, when_listening: Any):
    queue.enqueue("later", delay=3600)
    thread = when_listening(lambda: some_of_each(queue))

    said = run("tail", "mail", "--status", "failed", "--status", "retry", "--id", "bad", "--json", "-n", "1")
    thread.join()

    assert said.json["id"] == "bad"
    assert said.json["status"] == "failed"


def test_a_status_that_there_is_not_is_refused(run: Run):
    assert run("tail", "mail", "--status", "done").code == 2


def started(desk: Server, queue: Queue, *words: str) -> subprocess.Popen[str]:
    queue.enqueue("later", delay=3600)
    environment = os.environ | {"SCHEDQ_REDIS_URL": desk.unix_url}
    process = subprocess.Popen(
        [sys.executable, "-m", "schedq", "tail", "mail", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    until(lambda: listeners(desk, queue), within=120)
    return process


def test_new_jobs_are_seen_once_when_enqueued_and_when_started(queue: Queue):
    queue.enqueue(0, job_id="before")
    new = NewJobs(queue)
    assert new.look() == []

    queue.enqueue(1, job_id="a")
    assert [(one["status"], one["id"]) for one in new.look()] == [("enqueued", "a")]
    assert new.look() == []

    claimed(queue)
    queue.enqueue(2, job_id="b")
    found = [(one["status"], one["id"], one["attempts"]) for one in new.look()]
    assert sorted(found) == [("enqueued", "b", 0), ("started", "before", 1)]
    assert new.look() == []


def test_all_excludes_what_it_can_not_keep(run: Run):
    assert run("tail", "mail", "--all", "--limit", "1").code == 2


@pytest.mark.processes
def test_all_shows_enqueues_starts_and_ends(desk: Server, queue: Queue):
    with started(desk, queue, "--all", "--json") as process:
        assert process.stdout is not None
        found: set[tuple[str, str]] = set()
        while not {"enqueued", "started"} <= {status for status, _ in found}:
            queue.enqueue(1)
            queue.claim(0)
            line = json.loads(process.stdout.readline())
            found.add((line["status"], line["id"]))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)

    assert process.returncode == 0


@pytest.mark.processes
def test_ctrl_c_ends_it_in_order(desk: Server, queue: Queue):
    with started(desk, queue) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)

    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err


@pytest.mark.processes
def test_it_stops_gracefully_when_its_reader_has_exited(desk: Server, queue: Queue):
    with started(desk, queue, "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        some_of_each(queue)
        assert json.loads(process.stdout.readline())["id"] == "done"
        process.stdout.close()

        def is_over() -> bool:
            queue.cancel(queue.enqueue(1))
            return process.poll() is not None

        until(is_over, within=120)
        assert (process.returncode, process.stderr.read()) == (0, "")


@pytest.mark.processes
def test_it_continues_after_a_lost_connection_and_says_so():
    with Server() as server, Queue("mail", redis=server.unix_url) as queue, started(server, queue, "--json") as process:
        assert process.stdout is not None
        server.kill()
        server.start()
        assert json.loads(process.stdout.readline()) == {"id": "", "status": "missed"}
        until(lambda: listeners(server, queue), within=120)
        queue.cancel(queue.enqueue(1, job_id="after"))
        assert json.loads(process.stdout.readline())["id"] == "after"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        assert process.returncode == 0
