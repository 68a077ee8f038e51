"""`scripts/chaos --workflows`: the faults of a run, while workflows, batches and chains of all kinds are at work.

The producer, which sends messages, cancels and retries, is killed, too. All is judged from what handlers and the
producer have recorded; see `workflows_verdict`.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any, Final, cast

import redis

from scripts.tools.chaos import record
from scripts.tools.chaos import workflows_app as app
from scripts.tools.chaos.app_stage import LEFT_OUT, AppStage, drain, judge_laws, look_at_logs
from scripts.tools.chaos.attempts import VISIBILITY_MS, clock_steps, now_ms
from scripts.tools.chaos.batches_verdict import judge_batches, judge_leftovers
from scripts.tools.chaos.faults import INTERVALS_S
from scripts.tools.chaos.storm import Storm
from scripts.tools.chaos.timetable import Timetable
from scripts.tools.chaos.workflows_draw import drawn
from scripts.tools.chaos.workflows_plan import Plan
from scripts.tools.chaos.workflows_records import Records, read
from scripts.tools.chaos.workflows_undo_verdict import judge_undos
from scripts.tools.chaos.workflows_verdict import FAULTS, Findings, is_acknowledged, judge_runs
from tests.state import State

MOST_RATE: Final = 5.0
"""Runs, batches and chains that are started per second."""
_PRODUCER_LIVES_S: Final = 9.0
_OPEN: Final = ("running", "cancelling")
_FIGURES: Final = ("repeated", "restarted", "beyond_leases", "cancelled_late_ms")


class Killer:
    """Kills the producer from time to time; the storm starts another one.

    Attributes:
        kills: how often it was killed.
    """

    def __init__(self, stage: AppStage, draw: random.Random) -> None:
        self._stage, self._draw, self.kills = stage, draw, 0
        self._due = time.monotonic() + _PRODUCER_LIVES_S

    def turn(self) -> None:
        """Kill it when it is due."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._draw.uniform(0.3, 1.7) * _PRODUCER_LIVES_S
            for part in self._stage.having("producer"):
                self._stage.kill(part)
                self.kills += 1


def run(seconds: float, seed: int, rate: float, *, keeps: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Run; return the result and a sentence for each fault."""
    found, steps = Findings(), clock_steps()
    keys, others = app.queue.settings.keys, app.elsewhere.settings.keys
    with AppStage(rate, seed, keeps=keeps, app=app.__name__, queue=app.NAME, second="elsewhere") as stage:
        storm = Storm(stage, seed, seconds, cast(Timetable, None), LEFT_OUT)
        stage.start_all()
        killer = Killer(stage, random.Random(seed))
        storm.begin()
        while not storm.is_over:
            storm.turn()
            killer.turn()
            time.sleep(0.02)
        began = time.monotonic()
        stage.stop_producer(storm)
        drain(stage, storm, keys.prefix, others.prefix, is_over=_have_groups_ended)
        drained_s = time.monotonic() - began
        with stage.server.client() as client:
            state, other, now = State.of(client, keys), State.of(client, others), now_ms()
        records = read(record.read(stage.folder), VISIBILITY_MS)
        plans = {number: drawn(seed, number) for number in records.acts}
        judge(plans, records, state, now, found)
        judge_leftovers(other, now, found, _needed(state))
        judge_laws(other, found)
        look_at_logs(stage.folder, found)
        if found.complaints and keeps:
            found.complaints.append(f"the records are in {stage.folder}")
    found.complaints += storm.deaths
    faults = {kind: count for kind, count in storm.counts.items() if count and kind in INTERVALS_S}
    return {
        "seed": seed,
        "seconds": seconds,
        **_counts(plans, records),
        **{name: getattr(found, name) for name in (*FAULTS, *_FIGURES)},
        "deaths": len(storm.deaths),
        "clock_steps_ms": steps,
        "judged": dict(found.judged),
        "drained_s": round(drained_s, 1),
        "faults": faults | {"producer_kill": killer.kills},
    }, found.complaints


def judge(plans: dict[int, Plan], records: Records, state: State, now: float, found: Findings) -> None:
    """Judge a run from its records and the contents of Redis at the end, `now` in ms."""
    judge_runs(plans, records, state, found)
    judge_undos(plans, records, state, found)
    judge_batches(plans, records, state, found)
    judge_leftovers(state, now, found, _needed(state))
    judge_laws(state, found)


def _have_groups_ended(client: redis.Redis) -> bool:
    """Whether no group is left to be called off or to be counted again."""
    for keys in (app.queue.settings.keys, app.elsewhere.settings.keys):
        names: Any = client.zrange(keys.groups, 0, -1)
        for name in names:
            status, stands_for, run = cast(Any, client.hmget(keys.group(name), "status", "stands_for", "wake"))
            if status in _OPEN and not (stands_for and client.hget(keys.job(run), "status") == "failed"):
                return False
    return True


def _needed(state: State) -> set[str]:
    """What stands for groups of the other queue is kept, with these, as long as a run that may be requeued."""
    found = {name.removeprefix("group:"): state.holds(name, "hash") for name in state.keys if name.count(":") == 1}
    standing = {name: fields["wake"] for name, fields in found.items() if fields.get("stands_for")}
    return {name for name, run in standing.items() if state.job(run).get("status") == "failed"}


def _counts(plans: dict[int, Plan], records: Records) -> dict[str, Any]:
    begun = [plan for plan in plans.values() if is_acknowledged(plan, records)]
    attempts = records.attempts
    acts = [
        act for plan in begun for number, act in records.acts[plan.number].items() if plan.acts[number][1] == "send"
    ]
    return {
        "started": dict(Counter(plan.kind for plan in begun)),
        "kinds": dict(Counter(plan.name for plan in begun)),
        "run_attempts": sum(it.gate == "run" for it in attempts),
        "steps": len({place for place, tries in records.tries.items() if any(it.kind == "stepped" for it in tries)}),
        "step_calls": sum(it.kind == "step" for tries in records.tries.values() for it in tries),
        "undos": sum(it.kind == "undone" for undos in records.undos.values() for it in undos),
        "children": sum(gate.startswith(("run-", "batch-")) and n >= 0 for gate, n in records.by_place()),
        "links": sum(gate.startswith("chain-") for gate, _ in records.by_place()),
        "calls": len({it.job_id for it in attempts if it.gate == "then"}),
        "messages_sent": sum(act.reply is True for act in acts),
        "waits": len(records.waits),
    }
