"""Every key of a queue with every wrong type, while a worker works on that queue and on another one.

The cases are counted in the line printed by `tally.py`, like those of `test_corruptions.py`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from schedq import Conflict
from schedq.model.keys import QUEUES_KEY
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import Server
from tests.state import LAYOUT
from tests.stories.bad_input.damage import put
from tests.stories.bad_input.tally import PROPERTY
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate

TYPES = ("string", "list", "set", "hash", "zset", "stream")
KEYS = {name: kind for name, kind in LAYOUT.items() if not name.startswith(("job", "schedule", "group:"))}
NEEDED = {"pending", "processing", "completed", "failed", "cancelled", "broken", "delayed", "leases"}
"""Without these keys no script that moves jobs can work."""
READ_BY_CLAIMS = {"paused_tasks", "held", "gates"}
"""Keys that only claims need."""
STOPPING = NEEDED | READ_BY_CLAIMS | {"paused"}
"""While one of these is damaged, no job of the queue is claimed."""
SAID = {*NEEDED, *READ_BY_CLAIMS, "workers", "worker:*", "settings", "wake", "wake_held", "wake:*"}
"""Keys whose damage a worker logs."""
SEEN = {
    "stats": "refused by a verb",
    "paused": "shown as a pause",
    "promoter": "taken over",
    "log": "served without",
    "samples": "served without",
    "task_stats": "served without",
    "tasks": "served without",
    "standbys": "served without",
    "asleep": "served without",
    "suspects": "served without",
    "lanes": "served without",
    "unique_keys": "served without",
    "open_gates": "served without",
    "resting": "served without",
    "gate_holds": "served without",
    "gate_turns": "served without",
    "gate:*": "served without",
    "groups": "refused by a verb",
    "undos": "served without",
} | dict.fromkeys(SAID, "said in the log")


class Case:
    """A queue with a running job and a job in every state, one of whose keys gets another type."""

    def __init__(self, name: str, kind: str, queue: Handle, gate: Gate) -> None:
        self.name, self.kind, self.queue = name, kind, queue
        self.key = queue.keys.prefix + name

        @queue.task(name="hold")
        async def hold() -> str:
            await gate.passed()
            return "held"

        queue.task(name="ok")(lambda: "ok")
        queue.complete(self._claimed(), "done")
        queue.fail(self._claimed(max_attempts=1), "gone wrong")
        queue.cancel(queue.enqueue({"task": "ok"}))
        queue.redis.lpush(queue.keys.broken, '{"id":"b","reason":"made by hand","at_ms":1}')
        queue.enqueue({"task": "ok"}, delay=3600)
        self.held = queue.enqueue({"task": "hold"})

    def __repr__(self) -> str:
        return f"{self.name} as a {self.kind}"

    def _claimed(self, **options: Any) -> Any:
        self.queue.enqueue({"task": "ok"}, **options)
        return self.queue.claim(0)

    @property
    def is_ready(self) -> bool:
        """The job is running, and the worker has finished starting."""
        return bool(
            self.queue.redis.llen(self.queue.keys.processing) and self.queue.redis.hlen(self.queue.keys.settings)
        )

    def damage(self) -> None:
        """Set the key aside, and put something else in its place."""
        with self.queue.redis.pipeline() as together:  # the worker may create it again at any time
            together.copy(self.key, f"aside:{self.key}")
            put(together, self.key, self.kind)
            together.execute()

    def mend(self, way: str) -> None:
        """Delete the key, or restore it; if the damage has already been repaired, newer data is kept."""
        if self.queue.redis.type(self.key) == self.kind:
            self.queue.redis.delete(self.key)
            if way == "restored" and self.queue.redis.exists(f"aside:{self.key}"):
                self.queue.redis.rename(f"aside:{self.key}", self.key)
        self.queue.redis.delete(f"aside:{self.key}")

    @property
    def is_taken_over(self) -> bool:
        """The key has been written again, with another type."""
        return bool(self.queue.redis.type(self.key) != self.kind)

    def seen(self, logged: str) -> str:
        """How the damage is visible, in the words of `SEEN`; from the log, if a line names the key."""
        if self.key in logged:
            return "said in the log"
        if self.is_taken_over:
            return "taken over"
        try:
            return "served without" if self.queue.stats()["paused_since_ms"] is None else "shown as a pause"
        except Conflict as conflict:
            return "refused by a verb" if self.key in str(conflict) else str(conflict)


def all_named(lines: list[str], cases: set[Case]) -> bool:
    """The log names the key of each case."""
    logged = "\n".join(lines)
    return all(case.key in logged for case in cases)


def unserved(queues: list[Handle]) -> list[str]:
    """The queues that do not run a new job."""
    new = [(queue, queue.enqueue({"task": "ok"})) for queue in queues]
    return [queue.name for queue, job_id in new if queue.result(job_id, 60) != "ok"]


@pytest.fixture
def door() -> str:
    """A worker serves queues of either client."""
    return "blocking"


@pytest.mark.parametrize("way", ["restored", "deleted"])
def test_a_key_of_another_type_stops_no_loop_and_no_neighbor(
    make_queue: MakeQueue,
    crew: Crew,
    gate: Gate,
    logs: Logs,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Any,
    way: str,
) -> None:
    for routine in ("model.settings.HEARTBEAT_S", "background.reclaimer._ROUTINE_S", "worker.wake_listener._BLOCK_S"):
        monkeypatch.setattr(f"schedq.{routine}", 1)
    monkeypatch.setattr("schedq.background.reconnecting_client._AGAIN_S", 3600)  # not once a minute
    cases: list[Case] = []
    neighbors: list[Handle] = []
    for kind in TYPES:
        here = [Case(name, kind, make_queue(visibility_ms=3000), gate) for name in KEYS if KEYS[name] != kind]
        neighbors.append(make_queue(visibility_ms=3000))
        neighbors[-1].task(name="ok")(lambda: "ok")
        limited = [case for case in here if case.name == "wake:*"]
        others = [case for case in here if case not in limited]
        if limited:
            crew.start(*(case.queue for case in limited), debug=False, concurrency=64, only=["hold", "ok"])
        post = crew.start(*(case.queue for case in others), neighbors[-1], debug=False, concurrency=64)
        for case in here:
            case.key = case.key.replace("worker:*", f"worker:{post.worker.id}").replace("wake:*", "wake:ok")
        cases += here
    until(lambda: all(case.is_ready for case in cases), within=60)

    for case in cases:
        case.damage()
        if case.name in READ_BY_CLAIMS:
            case.queue.enqueue({"task": "ok"})

    must_say = {case for case in cases if case.name in SAID}
    until(lambda: all_named(logs(), must_say), within=60)
    until(lambda: all(case.is_taken_over for case in cases if SEEN[case.name] == "taken over"))
    logged = "\n".join(logs())
    assert {repr(case): case.seen(logged) for case in cases if case.seen(logged) != SEEN[case.name]} == {}
    assert unserved([*neighbors, *(case.queue for case in cases if case.name not in STOPPING)]) == []

    for case in cases:
        case.mend(way)
    gate.open()
    assert unserved([*neighbors, *(case.queue for case in cases)]) == []
    for case in cases:
        assert case.queue.result(case.held, 60) == "held", case
        assert case.queue.stats()["paused_since_ms"] is None, case

    assert crew.all_are_working
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    lines = Counter(line for line in logs() if "WRONGTYPE" in line)
    assert set(lines.values()) == {1}, "each problem is logged once"
    for case in cases:
        assert len([line for line in lines if case.key in line]) <= 5, lines
        case.queue.forget()
    record_property(PROPERTY, dict(Counter(SEEN[case.name] for case in cases)))


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "set"])
def test_queues_serve_without_the_list_of_queues(make_queue: MakeQueue, crew: Crew, kind: str) -> None:
    with Server() as server:
        with server.client() as client:
            put(client, QUEUES_KEY, kind)
        queue = make_queue(at=server)
        queue.task(name="ok")(lambda: "ok")
        crew.start(queue)

        assert unserved([queue]) == []

        crew.end()
