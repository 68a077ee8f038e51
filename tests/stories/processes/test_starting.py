"""How processes start: usage errors in one line, where they find Redis, and what they log."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from schedq import embedded
from tests.stories.processes import app
from tests.stories.processes.scene import APP, FRESH, Process, Scene
from tests.stories.processes.stage import MakeScene, Together

pytestmark = pytest.mark.processes
together = Together()
ATTACHED = "tests.stories.processes.attached"

MISTAKES = {
    ("worker", "no_such_module:queue"): "there is no module 'no_such_module'",
    ("worker", "tests.stories.processes.app:nothing"): "has no 'nothing'; its queues are bare, queue",
    ("worker", "tests.stories.processes.app:thing"): "is a dict, not a Queue",
    ("worker", "tests.stories.processes.app"): "must be MODULE:QUEUE",
    ("worker", "tests.stories.processes.broken_app:queue"): "can't be imported: ZeroDivisionError: ",
    ("worker", "tests.stories.processes.app:bare"): "has no task and no handler",
    ("worker", APP, APP): "each queue once",
    ("worker", APP, "--no-such-option"): "No such option",
    ("worker", APP, "--concurrency", "0"): "--concurrency",
    ("worker", APP, "--grace", "nan"): "grace",
    ("worker", APP, "--redis", "http://:s3cret@localhost"): "unknown Redis URL scheme",
    ("worker", APP, "--observer", "no_such_module:Watch"): "there is no module 'no_such_module'",
    ("worker", APP, "--observer", f"{ATTACHED}"): "must be MODULE:OBSERVER, such as app:observer",
    ("worker", APP, "--observer", f"{ATTACHED}:nothing"): f"module {ATTACHED} has no 'nothing'",
    ("worker", APP, "--observer", f"{ATTACHED}:plain"): f"{ATTACHED}:plain is a function, not a schedq.Observer",
    (
        "worker",
        APP,
        "--observer",
        f"{ATTACHED}:Named",
    ): "needs arguments (missing a required argument: 'name')",
    ("worker", APP, "--observer", f"{ATTACHED}:Broken"): f"{ATTACHED}:Broken() failed: LookupError: no such host",
    ("worker", APP, "--processes", "2", "--observer", f"{ATTACHED}:Broken"): "Broken() failed: LookupError",
    ("worker", APP, "--middleware", f"{ATTACHED}"): "must be MODULE:MIDDLEWARE, such as app:middleware",
    ("worker", APP, "--middleware", f"{ATTACHED}:plain"): "plain is not async; write async def",
    ("worker", APP, "--middleware", f"{ATTACHED}:named"): f"--middleware {ATTACHED}:named takes an async function",
    ("promoter", "no:name"): "no:name",
    ("promoter", app.NAME, "--redis", "redis://:s3cret@localhost:port"): "redis://localhost",
    ("stats", "no:name"): "no:name",
    ("server", "here", "--stop", "there"): "either start here or stop there",
}


@together()
def test_usage_errors_are_named_without_a_traceback(scene: Scene):
    started = [(scene.start(*words), complaint) for words, complaint in MISTAKES.items()]
    codes = [process.code() for process, _ in started]

    assert codes == [2] * len(MISTAKES), started
    for process, complaint in started:
        (line,) = process.log.splitlines()
        assert line.startswith(f"schedq {process.arguments[0]}: "), process
        assert complaint in line, process
        assert "s3cret" not in process.log, process
        assert process.output == ""


@together()
def test_a_wrong_password_ends_a_process_with_one_line_that_does_not_contain_it(make_scene: MakeScene):
    scene = make_scene(server={"requirepass": "s3cret"})
    place = f"127.0.0.1:{scene.server.port}/0"
    roles = (("worker", APP), ("worker", APP, "--processes", "3"), ("promoter", app.NAME), ("stats", app.NAME))
    started = [
        scene.start(*words, SCHEDQ_REDIS_URL=f"redis://{credentials}{place}")
        for words in roles
        for credentials in (":wr0ng@", "")
    ]

    for process in started:
        assert process.code() == 1, process
        lines = [line for line in process.log.splitlines() if " INFO " not in line]
        assert len(lines) == 1, process
        assert f"redis://{place} rejects the user name or password" in lines[0], process
        assert "wr0ng" not in process.log, process


@together()
def test_a_missing_database_ends_a_process_with_one_line(scene: Scene):
    url = scene.server.url.removesuffix("0") + "99"
    roles = (("worker", APP), ("worker", APP, "--processes", "2"), ("promoter", app.NAME), ("stats", app.NAME))
    started = [scene.start(*words, SCHEDQ_REDIS_URL=url) for words in roles]

    for process in started:
        assert process.code() == 1, process
        (line,) = [line for line in process.log.splitlines() if " INFO " not in line]
        assert f"{url} has no such database" in line, process


@together()
def test_a_worker_can_start_its_own_server(scene: Scene):
    data = scene.folder / "data"
    worker = scene.start("worker", APP, "--redis", f"embedded://{data}", how={"command": FRESH})
    try:
        with app.made(f"embedded://{data}", scene.settings) as queue:
            job_id = queue.enqueue({"task": "brief"})
            assert queue.result(job_id, 90) == worker.pid
    finally:
        embedded.stop_server(data)


def words_and_pids(scene: Scene, *options: str, children: int = 0) -> tuple[list[str], set[int], set[int]]:
    """Return what a worker's observers and middleware record about one job, their process ids, and the worker's."""
    observers = ("--observer", f"{ATTACHED}:Watch", "--observer", f"{ATTACHED}:named")
    middleware = ("--middleware", f"{ATTACHED}:outer", "--middleware", f"{ATTACHED}:Inner")
    worker = scene.worker(*observers, *middleware, *options)
    job_id = scene.add("brief")
    scene.until(lambda: len(scene.notes()) == 6 and len(worker.children) == children)
    pids = {note.pid for note in scene.notes()}
    scene.until(lambda: scene.job(job_id).result == [[*pids]])
    return [note.word for note in scene.notes()], pids, worker.children or {worker.pid}


@together()
def test_observers_and_middleware_come_from_the_command_line(scene: Scene):
    words, pids, workers = words_and_pids(scene)

    assert words == ["+outer", "+inner", "start", "end", "watch completed", "named completed"]
    assert pids == workers


@together()
def test_every_process_has_the_observers_and_middleware(scene: Scene):
    words, pids, workers = words_and_pids(scene, "--processes", "2", children=2)

    assert words == ["+outer", "+inner", "start", "end", "watch completed", "named completed"]
    assert len(pids) == 1
    assert pids < workers


@together()
def test_a_json_log_has_one_object_on_each_line(scene: Scene):
    workers = [scene.worker("--log-format", "json", *more) for more in (["-v"], ["--processes", "2"])]
    promoter = scene.start("promoter", app.NAME, "--log-format", "json")
    scene.until(lambda: scene.client.zcard(scene.queue.settings.keys.workers) == 3)
    ids = [scene.add(task, max_attempts=1) for task in ("fails", "no_such_task", "rude")]
    scene.until(lambda: [scene.job(job_id).status for job_id in ids] == ["failed", "delayed", "failed"])
    scene.server.kill()
    scene.until(lambda: all("lost (" in process.log for process in (*workers, promoter)))
    scene.server.start()

    unwelcome = [
        scene.start(*words, "--log-format", "json", SCHEDQ_REDIS_URL=scene.server.url.replace("//", "//:wr0ng@"))
        for words in (("worker", APP), ("promoter", app.NAME))
    ]
    assert [process.code() for process in unwelcome] == [1, 1]

    for process in (*workers, promoter, *unwelcome):
        for line in complete(process):
            entry = json.loads(line)
            assert entry.keys() >= {"time", "level", "logger", "pid", "message"}
            assert datetime.fromisoformat(entry["time"]).utcoffset() is not None
        assert process.output == ""
    messages = [json.loads(line)["message"] for worker in workers for line in complete(worker)]
    assert any("always fails" in message for message in messages)
    assert any(r"two\nlines" in message and "ü" in message for message in messages)


def complete(process: Process) -> list[str]:
    """The lines of its log, without one that it has not written completely."""
    return [line for line in process.log.splitlines(keepends=True) if line.endswith("\n")]
