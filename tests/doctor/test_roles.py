"""Users created by the lines of `schedq doctor --acl` can do what their role allows, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from schedq import Progress, Queue, UsageError
from schedq.doctor.roles import ROLES, VIEWER, setuser
from schedq.errors import SchedqError
from schedq.transitions import heartbeat
from tests.cli.conftest import Run, run
from tests.cli.scenes import claimed
from tests.doctor.acl import called
from tests.laws.test_scripts import SCRIPTS
from tests.roles import EXEMPT, FILES, VERBS
from tests.servers import Server
from tests.waiting import until

__all__ = ["run"]

OPERATORS = {
    "audit",
    "control_schedule",
    "delete",
    "drop_group",
    "hold_gate",
    "pause",
    "purge",
    "requeue",
    "reschedule",
    "resume",
    "retry_group",
    "pause_task",
    "resume_task",
    "stop_worker",
    "trigger",
}
"""Moves that no role is for: operators are users who may do everything to their queues."""
ROOT = Path(__file__).parents[2]
AsUser = Callable[[str], Queue]


@pytest.fixture(scope="module")
def gated() -> Iterator[Server]:
    """A server that accepts only the tests' user."""
    with Server(users={}, topology="single") as server:
        yield server


@pytest.fixture
def boss(gated: Server) -> Iterator[redis.Redis]:
    """A client with full access to the server, which is empty."""
    with gated.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def queue(gated: Server, boss: Any) -> Iterator[Queue]:
    """The queue, as who may do everything has it."""
    with Queue("mail", redis=gated.own_url) as queue:
        yield queue


@pytest.fixture
def login(run: Run, boss: Any, gated: Server) -> Callable[..., str]:
    """Makes a role's user by what the command prints; the URL to log in with."""

    def login(role: str, queue: str = "mail") -> str:
        (line,) = run("doctor", "--acl", "--role", role, "--queue", queue, "--user", role).out.splitlines()
        assert boss.execute_command(*line.split()) == "OK"
        assert boss.execute_command("ACL", "SETUSER", role, f">{role}") == "OK"
        return gated.url_as(role)

    return login


@pytest.fixture
def as_role(login: Callable[..., str]) -> Iterator[AsUser]:
    """The queue as a role has it."""
    made: list[Queue] = []

    def as_role(role: str) -> Queue:
        made.append(Queue("mail", redis=login(role)))
        return made[-1]

    yield as_role
    for queue in made:
        queue.close()


# -- the lists


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
def test_a_role_names_what_its_scripts_call_and_nothing_more(role):
    needed = frozenset().union(*(called(script) for script in role.scripts))

    assert role.inside == needed, f"of {role.name}: missing {needed - role.inside}, superfluous {role.inside - needed}"


def test_every_script_is_somebodys():
    assert OPERATORS.union(*(role.scripts for role in ROLES.values())) == set(SCRIPTS)


@pytest.mark.parametrize("role", ROLES)
def test_no_role_may_do_anything_unrelated_to_queues(role: str):
    dangerous = {
        "acl",
        "config",
        "config|get",
        "debug",
        "eval_ro",
        "flushall",
        "flushdb",
        "keys",
        "monitor",
        "script",
        "script|flush",
    }

    assert not dangerous & set(ROLES[role].commands())


def test_a_viewer_of_one_queue_does_not_see_the_names_of_other_keys():
    assert "scan" in VIEWER.commands()
    assert "scan" not in VIEWER.commands("mail")


def test_a_cluster_has_other_keys(run: Run):
    line = run("doctor", "--acl", "--role", "worker", "--queue", "mail", "--redis", "redis+cluster://h:1").out

    assert "~queue:{mail}:* " in line
    assert "&queue:{mail}:* " in line


@pytest.mark.parametrize("name", ["a b", "a:b", "a*", "~*"])
def test_a_name_that_would_open_more_is_refused(name: str):
    with pytest.raises(UsageError, match="queue name"):
        setuser(VIEWER, name)


def test_the_part_of_the_suite_that_proves_a_role_is_there():
    assert FILES.keys() == EXEMPT.keys() == VERBS.keys() == ROLES.keys()
    for role, paths in FILES.items():
        assert all((ROOT / path).exists() for path in paths)
        for test, reason in EXEMPT[role].items():
            path, name = test.split("::")
            assert f"def {name}" in (ROOT / path).read_text()
            assert reason


# -- what the roles may do


def test_a_producer_enqueues_waits_for_results_and_cancels(as_role: AsUser, queue: Queue):
    producer = as_role("producer")

    now, later = producer.enqueue(1), producer.enqueue(2, delay=60)
    ids = producer.enqueue_many([3, 4], delay=60)
    assert producer.cancel(later) == "cancelled"
    assert [job.status for name in ids if (job := producer.get_job(name))] == ["delayed", "delayed"]
    assert producer.job(now).status() == "pending"
    assert not producer.wait(now, 0.01)
    queue.complete(claimed(queue), "done")
    assert producer.result(now, 30) == "done"


def test_a_producer_hears_how_far_its_job_has_come(as_role: AsUser, queue: Queue):
    producer, heard = as_role("producer"), list[float]()
    job = producer.job(producer.enqueue(1))
    held = claimed(queue)
    queue.renew(held, progress=Progress(3, 10))

    assert not job.wait(0, on_progress=lambda progress: heard.append(progress.done))
    progress = job.progress()

    assert (heard, progress and progress.fraction) == ([3], 0.3)


def test_a_producer_is_notified_when_jobs_end(as_role: AsUser, queue: Queue):
    events = as_role("producer").events(timeout=60)
    job_id = queue.enqueue(1)
    seen: list[dict[str, Any]] = []

    def finish() -> None:
        time.sleep(0.05)
        while not seen:
            job = queue.claim(0)
            if job is None:
                queue.enqueue(2)
            else:
                queue.complete(job)

    thread = threading.Thread(target=finish, daemon=True)
    thread.start()
    seen.append(next(events))
    events.close()
    thread.join(60)

    assert seen[0]["status"] == "completed"
    assert job_id


@pytest.mark.processes
def test_a_worker_process_does_all_of_its_work(login: Callable[..., str], queue: Queue, boss: Any, tmp_path: Path):
    """A job now, one later, one that fails and is tried again, one whose worker has died."""
    (tmp_path / "app.py").write_text(
        "import os\nfrom schedq import Fixed, Queue\n"
        "queue = Queue('mail', redis=os.environ['URL'], visibility_ms=3000, backoff=Fixed(0.1))\n"
        "@queue.handler\n"
        "def handle(payload):\n"
        "    from schedq import current_job\n"
        "    if payload == 'again' and current_job().attempts == 1:\n"
        "        raise ValueError('once')\n"
        "    if payload == 'more':\n"
        "        queue.enqueue('child', job_id='child')\n"
        "    return payload\n"
    )
    queue.enqueue("dead", job_id="dead")
    assert queue.claim(0) is not None  # and never ended
    boss.zadd(queue.settings.keys.leases, {"dead": 1})
    for payload in ("now", "again", "more"):
        queue.enqueue(payload, job_id=payload)
    queue.enqueue("later", job_id="later", delay=0.3)
    environment = os.environ | {"URL": login("worker"), "PYTHONPATH": f"{ROOT}:{tmp_path}"}

    worker = subprocess.Popen(
        [sys.executable, "-m", "schedq", "worker", "app:queue"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for job_id in ("now", "again", "more", "child", "later", "dead"):
            queue.wait(job_id, 60)
        record = queue.get_job("dead")
        alive = until(queue.list_workers)
    finally:
        worker.terminate()
        _, log = worker.communicate(timeout=60)

    assert record.status == "completed", log
    assert [worker.pid for worker in alive] == [worker.pid]
    assert queue.stats()["completed_total"] == 6
    assert worker.returncode == 0
    assert "may not" not in log
    assert "NOPERM" not in log
    until(lambda: queue.list_workers() == [], within=60)  # it could say that it goes


def test_a_worker_can_claim_manually_too(as_role: AsUser):
    worker = as_role("worker")
    for end in (worker.complete, worker.fail, worker.release, lambda job: worker.snooze(job, 60)):
        worker.enqueue(1)
        job = worker.claim(timeout_ms=1000)
        assert job is not None
        assert worker.renew(job, progress=Progress(1, 2))
        assert end(job)

    assert worker.stats()["enqueued_total"] == 4
    assert worker.promote_due() == 0
    assert worker.reclaim_stuck() == []


def test_a_viewer_sees_everything(login: Callable[..., str], run: Run, queue: Queue):
    job_id = queue.enqueue({"task": "send"})
    queue.enqueue(2, delay=300)
    url = login("viewer")

    with Queue.for_operator("mail", redis=url) as viewer:
        assert viewer.stats()["pending_depth"] == 1
        assert viewer.get_job(job_id).payload == {"task": "send"}
        for place in ("pending", "delayed", "processing", "completed", "failed", "cancelled", "broken", "workers"):
            assert len(getattr(viewer, f"list_{place}")()) == (place in ("pending", "delayed"))
        assert viewer.list_queues() == ["mail"]
        assert list(viewer.events(timeout=0.05)) == []
    for words in (["stats"], ["stats", "mail"], ["jobs", "mail"], ["job", job_id]):
        said = run(*words, "--redis", url)
        assert (said.code, said.err) == (0, ""), words


def test_a_viewer_of_one_queue_finds_its_jobs_among_other_queues(
    login: Callable[..., str], run: Run, queue: Queue, gated: Server
):
    queue.enqueue(1, job_id="mine")
    for name in ("other", "third"):
        with Queue(name, redis=gated.own_url) as other:
            other.enqueue(1, job_id="theirs")
    url = login("viewer")

    found = run("job", "mine", "--redis", url)
    hidden = run("job", "theirs", "--redis", url)

    assert (found.code, found.err) == (0, "")
    assert hidden.code == 1
    assert "in the queues that this user may read; 2 queues can't be read" in hidden.complaint


def test_a_viewer_can_use_everything_of_an_operator_that_reads(login: Callable[..., str], run: Run, queue: Queue):
    job_id = queue.enqueue({"task": "send"})
    queue.enqueue(2, job_id="failed")
    queue.enqueue(3, delay=300)
    queue.pause()
    url = login("viewer")

    with Queue.for_operator("mail", redis=url) as queue:
        viewer = queue.inspector
        assert [job.id for job in viewer.find("pending", text="send").jobs] == [job_id]
        assert viewer.act_on("cancel", "pending", dry_run=True).matched == 2
        assert viewer.why(job_id).reason == "paused"
        assert viewer.timeline(job_id) is not None
        assert viewer.forecast(3600).delayed == 1
        assert viewer.pulse().depths["pending"] == 2
        assert viewer.samples() == []
        assert viewer.errors().groups == ()
        assert [entry.move for entry in viewer.log()] == ["pause"]
        assert list(viewer.follow(0.05)) == []
    for words in (
        ["why", "failed"],
        ["forecast", "1h", "--queue", "mail"],
        ["workers", "mail"],
        ["top", "mail", "--once"],
    ):
        said = run(*words, "--redis", url)
        assert said.err == "", words
        assert said.out, words


def test_a_viewer_can_examine(login: Callable[..., str], run: Run, queue: Queue):
    queue.enqueue(1)

    found = run("doctor", "mail", "--json", "--redis", login("viewer")).json["findings"]

    (refused,) = [finding for finding in found if finding["code"] == "not-permitted"]
    assert refused["says"] == "the Redis user may not use config|get, scan"
    assert {"no-worker", "conformance-untried"} <= {finding["code"] for finding in found}


# -- what the roles may not do


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as error:
        call()
    assert "the Redis user may not do this on unix://" in str(error.value)
    assert "`schedq doctor --acl` prints what it needs" in str(error.value)
    return str(error.value)


def contents(client: Any) -> dict[str, object]:
    return {key: client.hgetall(key) if client.type(key) == "hash" else client.dump(key) for key in client.scan_iter()}


BEYOND: dict[str, dict[str, Callable[[Queue], object]]] = {
    "producer": {
        "claim": lambda queue: queue.claim(0),
        "stats": lambda queue: queue.stats(),
        "promote": lambda queue: queue.promote_due(),
        "reclaim": lambda queue: queue.reclaim_stuck(),
        "pause": lambda queue: queue.pause(),
        "resume": lambda queue: queue.resume(),
        "list workers": lambda queue: queue.list_workers(),
    },
    "worker": {
        "list queues": lambda queue: queue.list_queues(),
    },
    "viewer": {
        "enqueue": lambda queue: queue.enqueue(1),
        "enqueue later": lambda queue: queue.enqueue(1, delay=5),
        "claim": lambda queue: queue.claim(0),
        "cancel": lambda queue: queue.cancel("pending"),
        "requeue": lambda queue: queue.requeue("failed"),
        "run now": lambda queue: queue.run_now("delayed"),
        "reschedule": lambda queue: queue.reschedule("delayed", delay=5),
        "pause": lambda queue: queue.pause(),
        "resume": lambda queue: queue.resume(),
        "purge": lambda queue: queue.purge(),
        "promote": lambda queue: queue.promote_due(),
        "reclaim": lambda queue: queue.reclaim_stuck(),
        "stop worker": lambda queue: queue.inspector.stop_worker("w-1"),
        "import": lambda queue: queue.inspector.import_jobs([{"id": "new", "payload": 1}]),
        "act, requeue": lambda queue: queue.inspector.act("requeue", ["failed"]),
        "act, run now": lambda queue: queue.inspector.act("run_now", ["delayed"]),
        "act, delete": lambda queue: queue.inspector.act("delete", ["pending"]),
        "act on many, cancel": lambda queue: queue.inspector.act_on("cancel", "pending"),
        "act on many, requeue": lambda queue: queue.inspector.act_on("requeue", "failed"),
        "act on many, reschedule": lambda queue: queue.inspector.act_on("reschedule", "delayed", delay=5),
        "act on many, delete": lambda queue: queue.inspector.act_on("delete", "failed"),
    },
}


@pytest.mark.parametrize(("role", "what"), [(role, what) for role, verbs in BEYOND.items() for what in verbs])
def test_forbidden_actions_are_refused_and_change_nothing(
    role: str, what: str, login: Callable[..., str], queue: Queue, boss: Any
):
    queue.enqueue(1, job_id="failed", max_attempts=1)
    queue.fail(claimed(queue), "no")
    queue.enqueue(1, job_id="pending")
    queue.enqueue(2, job_id="delayed", delay=60)
    if what == "resume":
        queue.pause()
    if what == "promote":
        boss.zadd(queue.settings.keys.delayed, {"delayed": 1})  # which is due
    if what == "stop worker":
        queue._ask(heartbeat.beat(queue.settings, "w-1", {"pid": 1}))
    url = login(role)
    before = contents(boss)

    with Queue.for_operator("mail", redis=url) as theirs:
        said = refused(lambda: BEYOND[role][what](theirs))

    assert contents(boss) == before
    # Redis 6.2 does not name the command that a script may not call.
    assert re.search(r"permissions to run the '[a-z]+' command", said) or "can't run this command" in said


@pytest.mark.parametrize("role", ROLES)
def test_another_queue_is_refused(role: str, login: Callable[..., str], queue: Queue, boss: Any):
    with Queue("other", redis=queue.address.label.replace("unix://", "unix://tests:tests@")) as other:
        job_id = other.enqueue(1)
    before = contents(boss)

    with Queue.for_operator("other", redis=login(role)) as theirs:
        refused(lambda: theirs.get_job(job_id))
        with pytest.raises(SchedqError):
            theirs.enqueue(1)

    assert contents(boss) == before


@pytest.mark.parametrize("command", ["KEYS *", "FLUSHALL", "CONFIG GET requirepass", "ACL LIST", "GET secret"])
@pytest.mark.parametrize("role", ROLES)
def test_the_rest_of_the_server_is_closed(role: str, command: str, login: Callable[..., str], boss: Any):
    boss.set("secret", "x")

    with redis.Redis.from_url(login(role)) as client, pytest.raises(redis.ResponseError):
        client.execute_command(*command.split())


def test_updating_a_user_keeps_the_password(login: Callable[..., str], boss: Any):
    url = login("producer")
    boss.execute_command(*setuser(ROLES["worker"], "mail", user="producer").split())

    with Queue("mail", redis=url) as queue:
        queue.enqueue(1)
        assert queue.claim(0)
