"""What the processes of `scripts/chaos --workflows` record, written by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

from scripts.tools.chaos.batches_verdict import judge_batches, judge_leftovers
from scripts.tools.chaos.workflows_plan import Plan
from scripts.tools.chaos.workflows_records import read
from scripts.tools.chaos.workflows_undo_verdict import judge_undos
from scripts.tools.chaos.workflows_verdict import FAULTS, Findings, judge_runs
from tests.state import Key, State

LEASE_MS = 4000


class Job(NamedTuple):
    """A job: its id, its group, or `run` or `then`, the key of its records, and its number."""

    id: str
    gate: str
    key: str
    number: int


class Journal:
    """What the processes of a run have recorded, and what is in Redis at its end."""

    def __init__(self, *plans: Plan) -> None:
        self.plans = {plan.number: plan for plan in plans}
        self.lines: list[tuple[str, list[Any]]] = [("worker-1-1", ["clock", 0.0, 0.0])]
        self.keys: dict[str, Key] = {}

    def write(self, *line: Any, process: str = "worker-1-1") -> None:
        self.lines.append((process, list(line)))

    def did(self, plan: Plan, number: int, at: float = 0, reply: Any = True) -> None:
        self.write("asks", at, plan.number, number, process="producer-0-1")
        if reply is not None:
            self.write("did", at + 1, plan.number, number, reply, process="producer-0-1")

    def attempt(
        self, job: Job, token: str, claimed: float, left: float = 0, *, how: str = "done", move: str = "complete"
    ) -> None:
        """An attempt at a job, which ended in this way; without a move its end was not confirmed."""
        job_id, gate, key, number = job
        left = left or claimed + 10
        self.write("begin", claimed + 1, job_id, token, gate, key, 1, claimed, number, "")
        if how:
            self.write("left", left, job_id, token, how)
        if move:
            self.write("settle", left / 1000, len(self.lines), [[move, job_id, token, 0]])
            self.write("settled", left / 1000, len(self.lines) - 1, ["OK"], 1)

    def ended(self, name: str, **fields: Any) -> None:
        self.keys[name] = Key("hash", -1, {field: str(value) for field, value in fields.items()})

    def faults(self) -> dict[str, int]:
        """The faults that are found."""
        found, records, state = Findings(), read(self.lines, LEASE_MS), State(self.keys)
        judge_runs(self.plans, records, state, found)
        judge_undos(self.plans, records, state, found)
        judge_batches(self.plans, records, state, found)
        judge_leftovers(state, 0, found)
        assert len(found.complaints) == sum(getattr(found, fault) for fault in FAULTS)
        return {fault: count for fault in FAULTS if (count := getattr(found, fault))}
