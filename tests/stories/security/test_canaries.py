"""User name and password of a URL appear nowhere: not in a process's output or arguments, and not in Redis."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from schedq import AsyncQueue, Queue, UsageError
from schedq.testing import run_due
from tests.conftest import MakeQueue
from tests.doors import contents
from tests.servers import Server
from tests.stories.processes import app
from tests.stories.processes.scene import APP, FRESH, Process, living
from tests.stories.processes.stage import scenes

USER: Final = "k4n4ri-ada"
PASSWORD: Final = "k4n4ri-s3cret"
CANARY: Final = "k4n4ri"
ACCOUNT: Final = f"{USER} on >{PASSWORD} ~* &* +@all"


def url_of(server: Server, password: str = PASSWORD) -> str:
    return f"redis://{USER}:{password}@127.0.0.1:{server.port}/0"


def commands(failed: str, waiting: str) -> list[tuple[str, ...]]:
    """Every command that ends at once, and the ways to use each wrongly."""
    name = app.NAME
    return [
        ("stats",),
        ("stats", name, "--json"),
        ("jobs", name),
        ("jobs", name, "--state", "failed", "--json"),
        ("job", failed),
        ("job", failed, "--json"),
        ("job", "no-such-job"),
        ("enqueue", name, "1", "--delay", "1h", "--id", "mine"),
        ("enqueue", name, "2", "--id", "mine"),
        ("enqueue", name, "1", "--durability", "replicated"),
        ("enqueue", name, "1", "--durability", "fsync"),
        ("reschedule", waiting, "--delay", "2h"),
        ("cancel", waiting),
        ("requeue", failed),
        ("pause", name),
        ("resume", name),
        ("purge", name, "--yes"),
        ("worker", "tests.stories.processes.app:no_such_queue"),
    ]


def words_of(process: Process) -> str:
    """The command lines that `ps` shows of a process and its descendants."""
    found = []
    for pid, _, group in living():
        if group == process.pid:
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
    return "\n".join(found)


def page(url: str) -> str:
    """The body of a response, whatever its status."""
    try:
        answer = urllib.request.urlopen(url, timeout=60)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return str(answer.read().decode())


def stored(server: Server) -> str:
    """Everything that a server stores."""
    with server.client(encoding_errors="surrogateescape") as client:
        return repr(contents(client))


def told(**places: str) -> dict[str, str]:
    """The places whose text contains a canary, each with the end of its text."""
    return {where: text[-2000:] for where, text in places.items() if CANARY in text}


@pytest.mark.processes
def test_no_process_prints_the_canaries_or_stores_them_in_redis():
    with scenes() as make_scene:
        scene = make_scene(server={"user": ACCOUNT}, visibility_ms=5000)
        at: dict[str, Any] = {"SCHEDQ_REDIS_URL": url_of(scene.server)}
        watched = ("--metrics-port", "0", "--health-port", "0")
        roles = (
            ("worker", APP, "-vv", *watched),
            ("worker", APP, "-vv", "--processes", "2", "--log-format", "json", *watched),
            ("exporter", "--port", "0", "-vv"),
            ("promoter", app.NAME, "-vv"),
        )
        started_as_by_a_user = {"command": FRESH}  # their command lines are looked at
        lasting = [scene.start(*words, how=started_as_by_a_user, **at) for words in roles]
        failed, waiting = scene.add("fails", max_attempts=1), scene.add("brief", delay=3600)
        scene.until(lambda: scene.job(failed).status == "failed", within=60)
        said = re.compile(r'DEBUG|"debug"|exporter: ready')
        scene.until(lambda: all(said.search(process.log) for process in lasting), within=60)
        for process in lasting:
            assert process.is_running
            assert told(ps=words_of(process)) == {}
            for url in re.findall(r"http://127\S+/(?:metrics|healthz)", process.log):
                assert told(**{url: page(url)}) == {}

        brief = [scene.start(*words, **at) for words in commands(failed, waiting)]
        wrong = [scene.start("stats", SCHEDQ_REDIS_URL=url_of(scene.server, f"{PASSWORD}-no")) for _ in range(1)]
        wrong.append(scene.start("stats", SCHEDQ_REDIS_URL=url_of(scene.server).replace("redis://", "rediss://")))
        wrong.append(scene.start("stats", SCHEDQ_REDIS_URL=url_of(scene.server).replace("/0", "/9999")))
        assert [process.code(60) for process in wrong] == [1] * len(wrong)
        assert {process.code(60) for process in brief} <= {0, 1, 2}

        assert told(redis=stored(scene.server)) == {}
        for process in (*lasting, *brief, *wrong):
            assert process.log or process.output
            assert told(**{" ".join(process.arguments): process.log + process.output}) == {}


@pytest.fixture
def guarded() -> Iterator[Server]:
    """A server with that user."""
    with Server(topology="single", user=ACCOUNT) as server:
        yield server


def test_an_application_that_prints_everything_does_not_print_the_canaries(
    make_queue: MakeQueue, guarded: Server, caplog: pytest.LogCaptureFixture
):
    """Objects, tracebacks with their causes, and errors that handlers make from objects and that are stored."""
    caplog.set_level(logging.DEBUG)
    queue = make_queue(at=guarded, url=url_of(guarded), max_attempts=1)
    wrong = type(queue.queue)(queue.name, redis=url_of(guarded, f"{PASSWORD}-no"))

    @queue.task
    def tells() -> None:
        things = (queue.queue, queue.aio, queue.blocking, queue.address, queue.settings, queue.queue._client, tells)
        raise RuntimeError(f"{things!r} {[vars(thing) for thing in things[:2]]!r}")

    job_id = queue.enqueue({"task": "tells"})
    run_due(queue.queue)
    with pytest.raises(UsageError, match="rejects the user name or password") as refused:
        Queue.stats(wrong) if isinstance(wrong, Queue) else queue.run(AsyncQueue.stats(wrong))

    assert queue.get_job(job_id).status == "failed"
    shown = io.StringIO()
    traceback.print_exception(refused.value, file=shown)
    error = repr(refused.value.__context__)
    assert told(redis=stored(guarded), traceback=shown.getvalue(), log=caplog.text, error=error) == {}
    assert sys.exc_info() == (None, None, None)
    if isinstance(wrong, Queue):
        wrong.close()
    else:
        queue.run(wrong.aclose())


def test_the_search_finds_a_canary():
    assert told(log=f"connected to redis://{USER}@h", other="connected").keys() == {"log"}
