"""Whether the steps of runs were undone as promised; `workflows_verdict` lists what is judged.

An undo of an attempt that has lost its lease may begin late, as a step may. So the order is judged by causes: an older
step is undone once an undo of the newer one has returned, and is recorded by whoever holds the lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schedq.model.lifecycle import CANCELLED, COMPLETED, FAILED
from schedq.model.runs import Run
from scripts.tools.chaos.workflows_plan import Program, older, operations, undoable
from scripts.tools.chaos.workflows_records import Records, Undo
from scripts.tools.chaos.workflows_verdict import Findings, Plans
from tests.state import State


def judge_undos(plans: Plans, records: Records, state: State, found: Findings) -> None:
    """Judge all runs with steps that can be undone."""
    begun: dict[str, set[tuple[int, str]]] = {}
    for run, life, label in records.tries:
        begun.setdefault(run, set()).add((life, label))
    for run, program in _programs(plans, records):
        if labels := undoable(program):
            places = {place for place in begun.get(run, ()) if place[1] in labels}
            _look_at_run(run, program, places, records, state, found)


def _programs(plans: Plans, records: Records) -> Iterator[tuple[str, Program]]:
    """Each run of which an attempt has begun, with its program. A plan has one nested run with undos at the most."""
    for run, number in {it.job_id: int(it.key) for it in records.attempts if it.gate == "run"}.items():
        if number not in plans:
            continue
        program: Program = plans[number].what["program"]
        nested = [op[2] for op in operations(program) if op[0] == "nested"]
        if run == plans[number].id:
            yield run, program
        elif len(nested) == 1:
            yield run, nested[0]


def _look_at_run(
    run: str, program: Program, begun: set[tuple[int, str]], records: Records, state: State, found: Findings
) -> None:
    undos = sorted(records.undos.get(run, ()))
    fields = state.job(run)
    status, ends = fields.get("status"), Run.read(fields.get("run", ""))
    found.judged["undone"] += 1
    if status == COMPLETED and undos:
        found.say("undone", f"{run} has completed, and {undos[0].label} was undone")
    if status in (FAILED, CANCELLED):
        if ends.left or ends.undos:
            found.say("undone", f"{run} is {status}, and {ends.undos} of its steps are left")
        kept = _kept(run, program, begun, records)
        returned = {(it.life, it.label) for it in undos if it.kind == "undone"}
        for life, label in sorted(begun - kept - returned):
            found.say("undone", f"{run} is {status}, and {label} of life {life} was not undone")
        for life, label in sorted({(it.life, it.label) for it in undos} & kept):
            found.say("undone", f"{run} is {status}, and {label} of life {life} was undone although it was to be kept")
    for first, second in older(program):
        _look_at_order(
            run, [it for it in undos if it.label == first], [it for it in undos if it.label == second], found
        )


def _kept(run: str, program: Program, begun: set[tuple[int, str]], records: Records) -> set[tuple[int, str]]:
    """The steps that are before a `keep` which was recorded."""
    found: set[tuple[int, str]] = set()
    for n, op in enumerate(program):
        if op[0] == "keep":
            lives = {place[1] for place, _ in records.sights_of(run, op[1])}
            found |= {(life, label) for life, label in begun if life in lives and label in undoable(program[:n])}
    return found


def _look_at_order(run: str, olds: Sequence[Undo], news: Sequence[Undo], found: Findings) -> None:
    """The older step is undone after the newer one, which is not undone again."""
    begins = [it for it in olds if it.kind == "undo"]
    for old in begins[:1] if news else ():
        found.judged["undone"] += 1
        if not any(it.kind == "undone" and it.at <= old.at for it in news):
            found.say("undone", f"{run}: {old.label} was undone at {old.at:.0f}, before {news[0].label}")
    for new in (it for it in news if it.kind == "undo"):
        if any(old.claimed < new.claimed or (old.token == new.token and old.at < new.at) for old in begins):
            found.say("undone", f"{run}: {new.label} was undone again at {new.at:.0f}, after {begins[0].label}")
