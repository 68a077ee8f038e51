"""`scripts/chaos --limits`: the faults of a run, while jobs wait in gates of all kinds and limits change.

A process that changes limits, pauses and holds in several steps is killed, too. The limits are judged from what
handlers, workers and that process have recorded; see `limits_verdict`.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any, Final, cast

import redis

from scripts.tools.chaos import limits_app as app
from scripts.tools.chaos import record
from scripts.tools.chaos.app_stage import LEFT_OUT, AppStage, drain, judge_laws, look_at_logs
from scripts.tools.chaos.attempts import VISIBILITY_MS
from scripts.tools.chaos.faults import INTERVALS_S
from scripts.tools.chaos.limits_records import Records, read
from scripts.tools.chaos.limits_verdict import FAULTS, Findings, judge_holds, judge_limits, judge_unique
from scripts.tools.chaos.stage import ROOT, Stage
from scripts.tools.chaos.storm import Storm
from scripts.tools.chaos.timetable import Timetable
from tests.state import State

MOST_RATE: Final = 30.0
_CHANGER_LIVES_S: Final = 5.0


class Changer:
    """The process that changes limits, and its killer.

    Attributes:
        kills: how often it was killed.
    """

    def __init__(self, stage: Stage, draw: random.Random) -> None:
        self._stage, self._draw = stage, draw
        self._process: subprocess.Popen[bytes] | None = None
        self._due, self._lives, self._replies, self.kills = 0.0, 0, 0, 0

    def turn(self) -> None:
        """Kill it when it is due, and start another one once Redis has executed what it sent."""
        if time.monotonic() < self._due:
            return
        if self._process is not None:
            self.kill()
        self._replies += self._is_redis_there()
        self._due = time.monotonic() + 0.05
        if self._replies >= 2:
            self._start(str(self._draw.random()))
            self._due = time.monotonic() + self._draw.uniform(0.3, 2) * _CHANGER_LIVES_S

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process, self._replies = None, 0
            self.kills += 1

    def end(self) -> None:
        """Reset all limits, and resume everything."""
        self.kill()
        while self._replies < 2:
            self._replies += self._is_redis_there()
        process = self._start("end")
        assert process.wait(60) == 0, "the limits can't be reset"

    def _start(self, seed: str) -> subprocess.Popen[bytes]:
        self._lives += 1
        environment = {"CHAOS_FOLDER": str(self._stage.folder), "CHAOS_KEY": f"changer-{self._lives}"}
        environment |= {"CHAOS_REDIS": self._stage.server.url, "PYTHONPATH": str(ROOT)}
        with (self._stage.folder / "changer.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scripts.tools.chaos.limits_changer", seed],
                cwd=ROOT,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self._process

    def _is_redis_there(self) -> bool:
        with suppress(redis.RedisError, OSError), self._stage.server.client(socket_timeout=0.2) as client:
            return bool(client.ping())
        return False


def run(seconds: float, seed: int, rate: float, *, keeps: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Run; return the result and a sentence for each fault."""
    found = Findings()
    with AppStage(rate, seed, keeps=keeps, app=app.__name__, queue=app.NAME) as stage:
        storm = Storm(stage, seed, seconds, cast(Timetable, None), LEFT_OUT)
        changer = Changer(stage, random.Random(seed))
        stage.start_all()
        storm.begin()
        try:
            while not storm.is_over:
                storm.turn()
                changer.turn()
                time.sleep(0.02)
            stage.stop_producer(storm)
            changer.end()
            drained_s = drain(stage, storm, app.queue.settings.keys.prefix)
        finally:
            changer.kill()
        with stage.server.client() as client:
            state = State.of(client, app.queue.settings.keys)
        records = read(record.read(stage.folder), VISIBILITY_MS)
        judge(records, state, found)
        look_at_logs(stage.folder, found)
        if found.complaints and keeps:
            found.complaints.append(f"the records are in {stage.folder}")
    found.complaints += storm.deaths
    faults = {kind: count for kind, count in storm.counts.items() if count and kind in INTERVALS_S}
    return {
        "seed": seed,
        "seconds": seconds,
        "jobs": len(records.accepted),
        "starts": len(records.attempts),
        "changes": dict(Counter(it.kind for it in records.changes)),
        **{name: getattr(found, name) for name in (*FAULTS, "beyond_leases")},
        "deaths": len(storm.deaths),
        "judged": dict(found.judged),
        "drained_s": round(drained_s, 1),
        "faults": faults | {"changer_kill": changer.kills},
    }, found.complaints


def judge(records: Records, state: State, found: Findings) -> None:
    """Judge a run from its records and the final contents of Redis."""
    code = {name: json.loads(text) for name, text in app.queue.settings.gates.items()}
    judge_limits(records.attempts, code, records.changes, found)
    judge_unique(records.attempts, found)
    judge_holds(records.attempts, records.holds, found)
    for place, ids in state.places().items():
        if place != "completed":
            found.say("waiting", f"{len(ids)} jobs are {place}: {', '.join(ids[:5])}")
    completed = set(state.ids("completed"))
    for job_id in records.accepted - (completed & records.done):
        found.say("lost", f"{job_id} was accepted and is {state.job(job_id)}")
    judge_laws(state, found)
