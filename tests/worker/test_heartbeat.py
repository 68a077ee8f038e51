"""A worker's heartbeats."""

from __future__ import annotations

import json
import os
import time
from collections import Counter

import pytest

import schedq
from schedq import JobFailed, current_job
from schedq.model.graph import FLOW_TASK
from schedq.model.keys import QUEUES_KEY
from schedq.model.settings import Settings
from schedq.model.tasks import TaskOptions
from schedq.transitions import announce, heartbeat, scripts
from schedq.worker.heartbeat import until_next_beat
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.proxy import Proxy
from tests.servers import Server
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, Post, beat_every, broken_laws, renew_every


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers send ten heartbeats a second."""
    beat_every(0.1, monkeypatch)


def facts(queue: Handle, post: Post) -> dict[str, str]:
    """A worker's record of itself."""
    found: dict[str, str] = queue.redis.hgetall(queue.keys.worker(post.worker.id))
    return found


def until_beaten(queue: Handle, post: Post) -> None:
    """Wait until the worker has sent a heartbeat and handled the reply to it: then it sends the next one."""

    def beat_after(last: float) -> float:
        beat: float = queue.redis.zscore(queue.keys.workers, post.worker.id) or 0.0
        return beat if beat > last else 0.0

    before = beat_after(0.0)
    sent = until(lambda: beat_after(before))
    until(lambda: beat_after(sent))


def test_a_worker_says_which_of_its_tasks_are_workflows(queue: Handle, crew: Crew) -> None:
    @queue.queue.workflow
    async def order(ctx: schedq.WorkflowContext) -> None: ...

    queue.task(name="ok")(lambda: "ok")
    post = crew.start(queue)
    until(lambda: facts(queue, post))

    assert json.loads(facts(queue, post)["workflows"]) == ["order", FLOW_TASK]


def test_a_worker_describes_itself(queue: Handle, crew: Crew) -> None:
    queue.task(name="ok")(lambda: "ok")
    post = crew.start(queue, concurrency=3)
    until(lambda: facts(queue, post))

    found = facts(queue, post)
    assert found["id"] == post.worker.id
    assert found["pid"] == str(os.getpid())
    assert found["concurrency"] == "3"
    assert found["version"] == schedq.__version__
    assert json.loads(found["tasks"]) == ["ok", FLOW_TASK]
    assert not queue.list_workers()[0].has_handler
    assert abs(int(found["started_at_ms"]) - time.time() * 1000) < 5000
    assert 25_000 < queue.redis.pttl(queue.keys.worker(post.worker.id)) <= 30_000
    assert queue.redis.zrange(queue.keys.workers, 0, -1) == [post.worker.id]
    assert queue.stats()["workers"] == 1


def test_a_worker_reports_the_jobs_that_it_runs(queue: Handle, crew: Crew, gate: Gate, hasty: None) -> None:
    gate.task(queue, in_thread=True)
    post = crew.start(queue)
    job_id = queue.enqueue({"task": "hold"})

    until(lambda: facts(queue, post).get("running") == "1")
    (job,) = json.loads(facts(queue, post)["jobs"])
    started_at_ms = int(queue.fields(job_id)["started_at_ms"])
    assert job == {"id": job_id, "task": "hold", "started_at_ms": started_at_ms, "attempts": 1}
    gate.open()
    until(lambda: facts(queue, post).get("running") == "0")


def test_a_claim_in_progress_does_not_count_as_a_running_job(
    make_queue: MakeQueue, crew: Crew, gate: Gate, hasty: None, server: Server, spare: Handle
) -> None:
    with Proxy(server) as proxy:
        queue = make_queue(url=proxy.url, visibility_ms=5000)
        gate.task(queue, in_thread=True)
        post = crew.start(queue, spare, concurrency=4)
        until(lambda: facts(queue, post), within=60)
        until(lambda: not post.do(lambda: post.worker.capacity.is_any_ready), within=60)
        proxy.hold_reply(scripts.load("claim").sha)
        queue.enqueue_many([{"task": "hold"}] * 9)
        until(lambda: proxy.faults == 1, within=60)

        beat = queue.redis.zscore(queue.keys.workers, post.worker.id)
        until(lambda: queue.redis.zscore(queue.keys.workers, post.worker.id) > beat + 200, within=60)

        assert post.do(lambda: post.worker.capacity.free) == 0
        assert facts(queue, post)["running"] == "0"
        proxy.let_go()
        until(lambda: facts(queue, post)["running"] == "4", within=60)
        gate.open()
        crew.end()


@pytest.mark.usefixtures("long_goodbyes")
def test_a_stopped_worker_is_deregistered(queue: Handle, crew: Crew) -> None:
    queue.task(name="ok")(lambda: "ok")
    post = crew.start(queue)
    until(lambda: facts(queue, post))

    post.stop()
    post.join()

    assert facts(queue, post) == {}
    assert queue.redis.zcard(queue.keys.workers) == 0


def test_a_stop_request_in_its_hash_stops_the_worker_gracefully(
    queue: Handle, crew: Crew, gate: Gate, hasty: None
) -> None:
    hold = gate.task(queue)

    post = crew.start(queue)
    job = hold.enqueue()
    gate.until_held()
    until(lambda: facts(queue, post))

    queue.redis.hset(queue.keys.worker(post.worker.id), "stop", 1)

    with pytest.raises(AssertionError, match="has not gone"):
        post.join(0.5)  # five heartbeats: one request counts once
    gate.open()
    post.join()
    assert job.status() == "completed"


def test_the_settings_are_written_for_processes_that_lack_them(make_queue: MakeQueue, crew: Crew) -> None:
    queue = make_queue(visibility_ms=2500, max_attempts=7, completed_history=5)
    queue.task(name="ok")(lambda: "ok")
    crew.start(queue)

    until(lambda: queue.redis.hlen(queue.keys.settings))
    stored = queue.redis.hgetall(queue.keys.settings)
    found = Settings("other").without_application().with_fields(stored)
    assert (found.visibility_ms, found.max_attempts, found.completed_history) == (2500, 7, 5)


def test_deleted_settings_are_written_again(queue: Handle, crew: Crew, hasty: None) -> None:
    queue.task(name="ok")(lambda: "ok")
    crew.start(queue)
    until(lambda: queue.redis.hlen(queue.keys.settings))
    written = queue.redis.hgetall(queue.keys.settings)

    queue.redis.delete(queue.keys.settings, queue.keys.workers)

    until(lambda: queue.redis.hlen(queue.keys.settings))
    until(lambda: queue.redis.zcard(queue.keys.workers))
    assert queue.redis.hgetall(queue.keys.settings) == written


def test_a_worker_continues_after_everything_was_deleted(make_queue: MakeQueue, crew: Crew, gate: Gate) -> None:
    with Server() as server:
        queue = make_queue(at=server, visibility_ms=3000)
        ended = []

        @queue.task
        async def hold() -> None:
            try:
                await gate.passed()
            finally:
                ended.append(1)

        queue.task(name="ok")(lambda: "ok")
        crew.start(queue)
        hold.enqueue()
        gate.until_held()

        queue.redis.flushall()

        until(lambda: ended)
        assert queue.result(queue.enqueue({"task": "ok"}), 60) == "ok"
        crew.end()
        assert broken_laws(queue) == {}


@pytest.mark.parametrize("loss", ["emptied", "rolled back"])
def test_a_replaced_store_gets_schedules_settings_and_the_name_again(
    make_queue: MakeQueue, crew: Crew, hasty: None, logs: Logs, loss: str
) -> None:
    with Server() as server:
        queue = make_queue(at=server)
        ticks = []
        queue.queue.every(1, id="tick")(lambda: ticks.append(current_job().id))
        post = crew.start(queue)
        until(lambda: facts(queue, post) and ticks and queue.redis.hlen(queue.keys.settings))
        beat = queue.redis.zscore(queue.keys.workers, post.worker.id)
        until(lambda: queue.redis.zscore(queue.keys.workers, post.worker.id) > beat)
        assert not [line for line in logs() if "WARNING" in line]

        with queue.redis.pipeline() as transaction:
            transaction.flushall()
            if loss == "rolled back":
                transaction.zadd(queue.keys.workers, {post.worker.id: beat})
            transaction.execute()

        until(lambda: queue.redis.zcard(queue.keys.schedules))
        until(lambda: queue.redis.hlen(queue.keys.settings))
        until(lambda: queue.name in queue.list_queues())
        fired = len(ticks)
        until(lambda: len(ticks) > fired)
        assert len(set(ticks)) == len(ticks), "a slot was fired twice"
        crew.end()

    (said,) = [line for line in logs() if line.startswith("WARNING queue")]
    assert f"queue {queue.name}: its data in Redis " in said
    assert ("is gone" if loss == "emptied" else "was replaced by older data") in said


def test_a_worker_that_was_silent_for_long_writes_everything_again_without_a_warning(
    queue: Handle, crew: Crew, logs: Logs
) -> None:
    before = heartbeat.Beat(is_asked=False, has_settings=True, last_ms=None, now_ms=1_000_000)
    forgotten = before._replace(now_ms=1_400_000)
    went_back = before._replace(last_ms=900_000, now_ms=900_100)
    kept = before._replace(last_ms=1_000_000, now_ms=1_010_000)
    sent_twice = before._replace(last_ms=1_009_000, now_ms=1_010_000)
    emptied = before._replace(last_ms=None, now_ms=1_010_000)

    assert [
        (later.is_of_another_store(before), later.is_in_time(before))
        for later in (forgotten, went_back, kept, sent_twice, emptied)
    ] == [(True, False), (True, False), (False, True), (False, True), (True, True)]


@pytest.mark.parametrize("is_allowed", [False, True])
def test_running_workers_log_that_eviction_was_turned_on(
    make_queue: MakeQueue, crew: Crew, hasty: None, logs: Logs, is_allowed: bool
) -> None:
    with Server() as server:
        queue = make_queue(at=server, allow_eviction=is_allowed)
        queue.task(name="ok")(lambda: "ok")
        post = crew.start(queue)
        until(lambda: any(one["cmd"] == "bzpopmin" for one in queue.redis.client_list()))
        until(lambda: not post.do(lambda: post.worker.capacity.is_any_ready))
        assert not [line for line in logs() if "evict" in line]
        queue.enqueue({"task": "ok"}, delay=0.5)

        queue.redis.config_set("maxmemory-policy", "allkeys-lru")
        with server.requests() as requests:
            until(lambda: any(request.name == "INFO" for request in requests))
        until_beaten(queue, post)

        until(lambda: queue.redis.llen(queue.keys.completed))  # the worker continues
        said = [line for line in logs() if "may evict keys (maxmemory-policy allkeys-lru)" in line]
        assert [line.split(":")[0] for line in said] == ([] if is_allowed else [f"ERROR queue {queue.name}"])
        crew.end()


def test_most_heartbeats_are_a_single_request(queue: Handle, crew: Crew, hasty: None) -> None:
    queue.task(name="ok")(lambda: "ok")
    post = crew.start(queue)
    until_beaten(queue, post)
    beat = scripts.load("heartbeat").sha

    with queue.server.requests() as requests:
        until(lambda: sum(beat in request.words for request in requests) > 20)

    beats = sum(beat in request.words for request in requests)
    found = Counter(request.name for request in requests)
    assert [1 <= found[command] <= 1 + beats / 10 for command in ("INFO", "SADD")] == [True, True]


def test_turning_eviction_on_costs_no_lease(make_queue: MakeQueue, crew: Crew, gate: Gate, logs: Logs) -> None:
    with Server() as server:
        queue = make_queue(at=server, visibility_ms=30_000)
        renew_every(1, queue)
        gate.task(queue, in_thread=True)
        post = crew.start(queue)
        until(lambda: facts(queue, post))
        job_id = queue.enqueue({"task": "hold"}, delay=0.5)

        queue.redis.config_set("maxmemory-policy", "allkeys-lru")
        first = until(lambda: queue.redis.zscore(queue.keys.leases, job_id))
        until(lambda: (queue.redis.zscore(queue.keys.leases, job_id) or first) > first)
        gate.open()

        until(lambda: queue.redis.llen(queue.keys.completed))
        assert queue.fields(job_id)["attempts"] == "1"
        assert not [line for line in logs() if "renewed" in line or "lease ended" in line]
        crew.end()


def test_turning_eviction_on_stops_no_worker_that_reconnects(
    make_queue: MakeQueue, crew: Crew, gate: Gate, logs: Logs
) -> None:
    with Server() as server:
        queue = make_queue(at=server, visibility_ms=30_000)
        renew_every(1, queue)
        gate.task(queue, in_thread=True)
        post = crew.start(queue)
        until(lambda: facts(queue, post))
        held = queue.enqueue({"task": "hold"})
        until(lambda: queue.redis.zscore(queue.keys.leases, held))
        later = queue.enqueue({"task": "hold"}, delay=0.5)

        queue.redis.config_set("maxmemory-policy", "allkeys-lru")
        queue.redis.client_kill_filter(_type="normal", skipme=True)
        first = until(lambda: queue.redis.zscore(queue.keys.leases, later))
        until(lambda: (queue.redis.zscore(queue.keys.leases, later) or first) > first)
        gate.open()

        until(lambda: queue.redis.llen(queue.keys.completed) == 2)
        assert [queue.fields(job_id)["attempts"] for job_id in (held, later)] == ["1", "1"]
        assert not [line for line in logs() if "evict" in line and not line.startswith("ERROR queue")]
        crew.end()


@pytest.mark.parametrize("topology", ["single", "cluster"])
def test_the_name_of_a_queue_is_written_again_while_its_workers_are_alive(
    make_queue: MakeQueue, crew: Crew, hasty: None, monkeypatch: pytest.MonkeyPatch, topology: str
) -> None:
    monkeypatch.setattr("schedq.connection.topology._ENLIST_AGAIN_S", 0.1)
    with Server(topology=topology) as server:
        queue = make_queue(at=server)
        queue.task(name="ok")(lambda: "ok")
        post = crew.start(queue)
        until(lambda: facts(queue, post))

        queue.redis.delete(QUEUES_KEY)

        until(lambda: queue.redis.exists(QUEUES_KEY))
        assert queue.redis.smembers(QUEUES_KEY) == {queue.name}
        crew.end()


def test_the_settings_are_written_again_after_an_outage(make_queue: MakeQueue, crew: Crew, hasty: None) -> None:
    with Server() as server:
        queue = make_queue(at=server, visibility_ms=3000)
        queue.task(name="ok")(lambda: "ok")
        crew.start(queue)
        until(lambda: queue.redis.hlen(queue.keys.settings))

        server.kill()
        server.start()

        def again() -> bool:
            with server.client() as client:
                return bool(client.hlen(queue.keys.settings))

        until(again)
        crew.end()
        assert broken_laws(queue) == {}


def test_the_options_of_tasks_are_written_and_written_again_after_they_were_deleted(
    queue: Handle, crew: Crew, hasty: None
) -> None:
    queue.task(name="charge", max_attempts=1, timeout=5)(lambda: None)
    queue.task(name="plain")(lambda: None)
    crew.start(queue)
    said = {"charge": '{"max_attempts":1,"timeout_ms":5000}'}
    assert until(lambda: queue.redis.hgetall(queue.keys.tasks)) == said

    queue.redis.delete(queue.keys.tasks)

    assert until(lambda: queue.redis.hgetall(queue.keys.tasks)) == said


def test_a_worker_of_the_previous_release_does_not_restore_a_removed_task_option(
    queue: Handle, crew: Crew, hasty: None
) -> None:
    queue.task(name="charge", max_attempts=1)(lambda: None)
    post = crew.start(queue)
    until(lambda: queue.redis.hlen(queue.keys.tasks) and queue.list_workers())

    queue.execute([announce.announce(queue.settings, {"charge": TaskOptions()})])  # the next release has none
    until_beaten(queue, post)

    assert queue.redis.hgetall(queue.keys.tasks) == {"charge": "{}"}


def test_settings_are_written_even_if_the_options_of_tasks_cannot_be(queue: Handle, crew: Crew) -> None:
    queue.redis.set(queue.keys.tasks, "not a hash")
    queue.task(name="charge", max_attempts=1)(lambda: None)
    crew.start(queue)

    until(lambda: queue.redis.hlen(queue.keys.settings))
    assert queue.redis.get(queue.keys.tasks) == "not a hash"
    queue.redis.delete(queue.keys.tasks)


def test_a_job_enqueued_by_name_is_not_started_again_when_its_only_attempt_is_lost(
    make_queue: MakeQueue, crew: Crew
) -> None:
    queue = make_queue(visibility_ms=1000, max_attempts=3)
    begun = []
    queue.task(name="charge", max_attempts=1)(lambda: begun.append(1))
    elsewhere = Handle(
        type(queue.queue)(queue.name, redis=queue.server.unix_url, visibility_ms=1000), queue.server, queue._loop
    )
    job_id = elsewhere.enqueue({"task": "charge"})
    assert elsewhere.claim(0).id == job_id  # and this program dies

    crew.start(queue)

    with pytest.raises(JobFailed, match="lease expired 1 time"):
        elsewhere.result(job_id, 60)
    assert begun == []
    elsewhere.close()


def test_a_job_taken_back_by_a_worker_without_the_task_is_not_started_again_either(
    make_queue: MakeQueue, crew: Crew, clock: Clock
) -> None:
    queue = make_queue(max_attempts=3, clock=clock)
    begun = []
    job_id = queue.enqueue({"task": "charge"})
    queue.claim(0)
    clock.pass_time(11)
    assert queue.reclaim_stuck() == [job_id]  # as a release would that did not know options of tasks
    assert queue.places() == {"pending": [job_id]}

    queue.task(name="charge", max_attempts=1)(lambda: begun.append(1))
    crew.start(queue)

    with pytest.raises(JobFailed, match="lease expired 1 time, and max_attempts is 1"):
        queue.result(job_id, 60)
    assert begun == []


def test_workers_that_start_together_do_not_keep_sending_heartbeats_together():
    beats = {}
    for phase in (0.0, 0.25, 0.5, 0.999):
        now, at = 1234.5, []
        for _ in range(4):
            now += until_next_beat(phase, now)
            at.append(round(now % 10, 6))
        beats[phase] = at[1:]

    assert beats == {0.0: [0.0] * 3, 0.25: [7.5] * 3, 0.5: [5.0] * 3, 0.999: [0.01] * 3}


def test_the_time_between_two_heartbeats_is_1_to_10_seconds():
    rests = [until_next_beat(phase / 100, now / 7) for phase in range(100) for now in range(100)]

    assert 1.0 <= min(rests) <= max(rests) <= 10.0
