"""One queue object shared by threads, carried over a fork, and closed."""

from __future__ import annotations

import faulthandler
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from schedq import ClosedError, Queue
from tests.doors import Clock, in_thread
from tests.pages import ROOT
from tests.servers import Server
from tests.state import State

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def queue(server: Server, request: pytest.FixtureRequest) -> Iterator[Queue]:
    name = f"threads-{os.getpid()}-{time.monotonic_ns()}"
    with Queue(name, redis=server.unix_url) as queue:
        yield queue
        with server.client() as client:
            state = State.of(client, queue.settings.keys)
            client.unlink(*[queue.settings.keys.prefix + name for name in state.keys] or ["none"])
    assert state.broken_laws() == {}


def places(queue: Queue, server: Server) -> dict[str, list[str]]:
    with server.client() as client:
        return State.of(client, queue.settings.keys).places()


def in_child(work: object) -> int:
    """Run a function in a forked child; returns the exit code, 0 if the function returned True."""
    pid = os.fork()
    if pid == 0:
        code = 1
        faulthandler.dump_traceback_later(60, exit=True)  # a child that hangs says where
        try:
            code = 0 if work() else 2  # type: ignore[operator]
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_threads_share_a_queue_and_every_job_is_done_once(queue: Queue, server: Server):
    def produce() -> list[str]:
        return [queue.enqueue(n) for n in range(50)]

    are_made = threading.Event()

    def consume() -> list[str]:
        done: list[str] = []
        while True:
            is_last = are_made.is_set()
            if job := queue.claim(300):
                assert queue.complete(job)
                done.append(job.id)
            elif is_last:
                return done

    with ThreadPoolExecutor(8) as pool:
        producers = [pool.submit(produce) for _ in range(4)]
        consumers = [pool.submit(consume) for _ in range(4)]
        try:
            made = sorted(job_id for future in producers for job_id in future.result())
        finally:
            are_made.set()
        done = sorted(job_id for future in consumers for job_id in future.result())

    assert len(made) == len(set(made)) == 200
    assert done == made
    assert sorted(places(queue, server)["completed"]) == made


def test_while_claims_wait_everything_else_is_served(queue: Queue):
    waiting = [in_thread(queue.claim, 60_000) for _ in range(20)]
    time.sleep(0.1)

    began = time.monotonic()
    for _ in range(20):
        queue.stats()
    assert time.monotonic() - began < 30

    queue.enqueue_many(range(20))
    for future in waiting:
        queue.complete(future.result(60))


def test_few_connections_stay_open_after_many_were_needed(queue: Queue, server: Server):
    for future in [in_thread(queue.claim, 50) for _ in range(30)]:
        assert future.result(60) is None

    with server.client() as client:
        mine = [entry for entry in client.client_list() if entry["name"] == f"schedq-{queue.name}"]
    assert 1 <= len(mine) <= 8


FORKING = """
import ctypes, json, os, sys, threading, time
from schedq import Queue

def connection():
    with queue._client._pool.connection() as line:  # the one that is used next
        return int(line.ask([("CLIENT", "ID")])[0])

queue = Queue(sys.argv[1], redis=sys.argv[2])
first = queue.enqueue("parent")
parents = connection()
while threading.active_count() > 1:  # a child that C forks may wait for threads that it does not have
    time.sleep(0.01)
child = {fork}()
if not child:
    job = connection() != parents and queue.claim(0)
    os._exit(0 if job and queue.complete(job, os.getpid()) and queue.enqueue("child") else 2)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
second = queue.enqueue("parent again")
print(json.dumps([code, first, second]))
"""


@pytest.mark.parametrize("fork", ["os.fork", "ctypes.PyDLL(None).fork"], ids=["by Python", "by a server written in C"])
def test_a_forked_child_and_its_parent_do_not_disturb_each_other(queue: Queue, server: Server, fork: str):
    program = [sys.executable, "-c", FORKING.format(fork=fork), queue.name, server.unix_url]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""

    code, first, second = json.loads(done.stdout)

    assert code == 0
    assert places(queue, server)["completed"] == [first]
    assert len(places(queue, server)["pending"]) == 2
    assert queue.list_pending()[-1].id == second


def test_a_fork_while_another_thread_talks_does_not_hang_the_child(queue: Queue):
    done = threading.Event()

    def talk() -> None:
        while not done.is_set():
            queue.stats()

    talking = [in_thread(talk) for _ in range(3)]
    try:
        codes = [in_child(lambda: queue.stats()["pending_depth"] == 0) for _ in range(10)]
    finally:
        done.set()
        for future in talking:
            future.result(60)

    assert codes == [0] * 10


def test_a_child_that_closes_its_queue_leaves_the_parents_open(queue: Queue):
    queue.stats()

    def child() -> bool:
        queue.close()
        return True

    assert in_child(child) == 0
    assert queue.enqueue(1)


def test_parent_and_children_never_make_the_same_id(queue: Queue, server: Server):
    queue.enqueue("before")

    def child() -> bool:
        return len(queue.enqueue_many(range(200))) == 200

    codes = [in_child(child) for _ in range(3)]
    queue.enqueue_many(range(200))

    assert codes == [0, 0, 0]
    assert len(set(places(queue, server)["pending"])) == 801


# -- closed


VERBS: dict[str, list[Any]] = {
    "enqueue": [1],
    "enqueue_many": [[1]],
    "claim": [0],
    "stats": [],
    "get_job": ["a"],
    "cancel": ["a"],
    "purge": [],
    "wait": ["a", 1],
    "result": ["a", 0],
    "pause": [],
}


@pytest.mark.parametrize("verb", VERBS)
def test_using_a_closed_queue_raises_a_clear_error(server: Server, verb: str):
    queue = Queue("closed", redis=server.unix_url)
    queue.stats()
    queue.close()
    queue.close()

    with pytest.raises(ClosedError, match="closed"):
        getattr(queue, verb)(*VERBS[verb])


def test_a_claim_that_waits_while_its_queue_is_closed_ends(server: Server):
    queue = Queue("closed-later", redis=server.unix_url)
    waiting = in_thread(queue.claim, 60_000)
    time.sleep(0.1)

    queue.close()

    with pytest.raises(ClosedError):
        waiting.result(30)


def test_making_a_queue_connects_to_nothing():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        Queue("anywhere", redis=f"redis://127.0.0.1:{listening.getsockname()[1]}", clock=Clock()).close()

        assert not select.select([listening], [], [], 0)[0]
