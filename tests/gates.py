"""The laws of gates: where their jobs wait, which have a place, and which can start."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from schedq.model.lifecycle import PENDING, PROCESSING

if TYPE_CHECKING:
    from schedq.transitions.claim import Claim
    from tests.state import State

_LANE: Final = 2147483648
_LANES_OF_TASKS: Final = 10_000


class Gates:
    """What a state says of gates.

    Attributes:
        waiting: "GATE KEY" -> ids of the jobs in its lane, in order.
        running: gate -> "KEY ID" of the jobs that have a place.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        held = sorted(state.holds("held", "zset").items(), key=lambda entry: float(entry[1]))
        self._numbers = {job_id: int(float(score) // _LANE) for job_id, score in held}
        self.lanes = {
            name.removeprefix("gate:"): int(number)
            for name, number in state.holds("lanes", "hash").items()
            if name.startswith("gate:")
        }
        names = {number: name for name, number in self.lanes.items()}
        self.waiting: dict[str, list[str]] = {}
        self.lost: list[str] = []
        for job_id, number in self._numbers.items():
            if number > _LANES_OF_TASKS:
                if number in names:
                    self.waiting.setdefault(names[number], []).append(job_id)
                else:
                    self.lost.append(job_id)
        self.running = {
            name.removeprefix("gate:").removesuffix(":running"): list(key.holds)
            for name, key in state.keys.items()
            if name.startswith("gate:") and name.endswith(":running")
        }
        self.resting = state.holds("resting", "zset")
        self.holds = {name: float(score) for name, score in state.holds("gate_holds", "zset").items()}

    def limits(self, gate: str) -> dict[str, Any]:
        """The limits in force."""
        found: dict[str, Any] = json.loads(self.state.holds("gates", "hash").get(gate) or "{}")
        if found.get("serial"):
            found["key_concurrency"] = 1
        return found

    def ready(self, gate: str) -> dict[str, str]:
        """The ready keys of a gate and the tags of their turns."""
        found: dict[str, str] = self.state.holds(f"gate:{gate}:ready", "zset")
        return found

    def runs(self, gate: str) -> Counter[str]:
        """How many jobs of each key have a place."""
        return Counter(member.rpartition(" ")[0] for member in self.running.get(gate, ()))

    def broken(self) -> Iterator[str]:
        """All violations. While limits are being changed, keys may stand where the old ones put them."""
        yield from (f"{job_id} waits in a lane of no gate" for job_id in self.lost)
        yield from self._waiting_jobs()
        yield from self._places()
        if " look" not in self.state.holds("gate_turns", "hash"):
            yield from self._conditions()

    def _waiting_jobs(self) -> Iterator[str]:
        """A job in a lane is pending, and names that gate and key; the gate is known."""
        for name, ids in self.waiting.items():
            gate, _, key = name.partition(" ")
            if gate not in self.state.holds("gates", "hash"):
                yield f"jobs wait in gate {gate}, which is not in `gates`"
            for job_id in ids:
                job = self.state.job(job_id)
                if job and (job.get("status"), job.get("gate"), job.get("key", "")) != (PENDING, gate, key):
                    yield f"{job_id} waits in gate {gate} with key {key!r}, and its record says {job}"

    def _places(self) -> Iterator[str]:
        """Exactly the jobs with a lease have places."""
        expected = {
            (job["gate"], f"{job.get('key', '')} {job_id}")
            for job_id in self.state.ids(PROCESSING)
            if (job := self.state.job(job_id)).get("gate")
        }
        found = {(gate, member) for gate, members in self.running.items() for member in members}
        yield from (f"{member!r} runs without a place in gate {gate}" for gate, member in expected - found)
        yield from (f"{member!r} has a place in gate {gate} and does not run" for gate, member in found - expected)

    def _conditions(self) -> Iterator[str]:
        """A key that waits is ready, or rests, or is full or paused; a gate with ready keys is open, or the like."""
        gates = {name.partition(" ")[0] for name in self.waiting} | set(self.running)
        for gate in gates:
            ready, limits, runs = self.ready(gate), self.limits(gate), self.runs(gate)
            for name in self.waiting:
                if name.partition(" ")[0] != gate:
                    continue
                key = name.partition(" ")[2]
                is_full = runs[key] >= (limits.get("key_concurrency") or math.inf)
                is_paused = self.holds.get(name) == math.inf
                if key not in ready and name not in self.resting and not is_full and not is_paused:
                    yield f"key {key!r} of gate {gate} has jobs, and nothing will start them"
            yield from (
                f"key {key!r} of gate {gate} is ready without jobs"
                for key in ready
                if f"{gate} {key}" not in self.waiting and f"{gate} {key}" not in self.resting
            )
            is_full = sum(runs.values()) >= (limits.get("concurrency") or math.inf)
            is_waiting = gate in self.resting or self.holds.get(gate) == math.inf or is_full
            if ready and gate not in self.state.holds("open_gates", "zset") and not is_waiting:
                yield f"gate {gate} has ready keys, and nothing will start them"


def claimed(found: Claim, asked: int, before: State, after: State, *, in_pages: bool = False) -> Iterator[str]:
    """What is wrong with a claim, from its reply and the states around it.

    `in_pages`: it may be cut short before it has taken as many as it was asked for, if it says so.
    """
    now = Gates(after)
    yield from _exceeded(found, after, now)
    yield from _turns(found, Gates(before), now)
    has_moved = any(before.job(job_id).get("gate") for job_id in before.holds("pending", "list"))
    if not (found.is_paused or has_moved):
        was_overdue = any(float(at) <= found.now_ms for at in Gates(before).resting.values())
        yield from _left(found, asked, after, now, goes_on=in_pages, was_overdue=was_overdue)


def _exceeded(found: Claim, after: State, now: Gates) -> Iterator[str]:
    """A claim starts nothing beyond the limits in force, and nothing that is held."""
    if found.jobs and len(after.ids(PROCESSING)) > (now.limits("").get("concurrency") or math.inf):
        yield "the queue runs more than its concurrency"
    for gate, key in {(job.gate, job.key) for job in found.jobs if job.gate}:
        limits, runs = now.limits(gate), now.runs(gate)
        if sum(runs.values()) > (limits.get("concurrency") or math.inf):
            yield f"gate {gate} runs {sum(runs.values())}, of {limits}"
        if runs[key] > (limits.get("key_concurrency") or math.inf):
            yield f"key {key!r} of gate {gate} runs {runs[key]}, of {limits}"
        for name in (gate, f"{gate} {key}"):
            if now.holds.get(name, 0) > found.now_ms:
                yield f"a job of {name} started, which is held until {now.holds[name]}"


def _turns(found: Claim, before: Gates, now: Gates) -> Iterator[str]:
    """Each start of a key moves its turn on."""
    for gate, key in {(job.gate, job.key) for job in found.jobs if job.gate}:
        tags = now.state.holds(f"gate:{gate}:tags", "zset")
        tag, was = now.ready(gate).get(key) or tags.get(key), before.ready(gate).get(key)
        present = float(now.state.holds("gate_turns", "hash").get(gate, "0 0 0").split()[0])
        if was is not None and float(tag or present) < float(was) + 1000:
            yield f"key {key!r} of gate {gate} started, and its turn is {tag}, after {was}, at {present}"


def _left(found: Claim, asked: int, after: State, now: Gates, *, goes_on: bool, was_overdue: bool) -> Iterator[str]:
    """A claim that took fewer than it was asked for leaves nothing that another one would take, or says so."""
    queue = now.limits("")
    is_full = len(after.ids(PROCESSING)) >= (queue.get("concurrency") or math.inf)
    is_full = is_full or ("rate" in queue and "" in now.resting)
    overdue = [name for name, at in now.resting.items() if float(at) <= found.now_ms]
    says_so = goes_on and (found.has_more or (found.next_due_ms or math.inf) <= found.now_ms)
    if len(found.jobs) < asked and not says_so:
        yield from (f"{name!r} could start, and the claim did not look" for name in overdue)
        if not is_full:
            yield from (f"gate {gate} is open, with {now.ready(gate)}" for gate in after.holds("open_gates", "zset"))
    is_cut = goes_on and (found.jobs or was_overdue)
    if found.has_more and (is_full or (len(found.jobs) < asked and not is_cut)):
        yield f"{len(found.jobs)} of {asked} started, but a claim is said to get more"
