"""Whether batches, chains and the children of maps did what is promised; `workflows_verdict` lists what is judged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from scripts.tools.chaos.limits_verdict import Attempt, judge_limits
from scripts.tools.chaos.workflows_plan import (
    FAILED,
    Plan,
    allowed,
    chain_value,
    child_values,
    failing,
    link_value,
    operations,
)
from scripts.tools.chaos.workflows_records import Progress, Records
from scripts.tools.chaos.workflows_verdict import (
    TICK_MS,
    Findings,
    Plans,
    done_at,
    is_acknowledged,
    look_at_acts,
    look_at_children,
)
from tests.state import State

MOST_CONCURRENCY: Final = 1000
_DISCARDED: Final = "Discard"
_LATE_MS: Final = 20_000
"""How long after its instant a group may wait to be deleted: the promoter looks every 10 s."""


def judge_batches(plans: Plans, records: Records, state: State, found: Findings) -> None:
    """Judge all batches and chains, and the children of maps."""
    places = records.by_place()
    _look_at_attempts(plans, places, found)
    _look_at_concurrency(plans, places, found)
    children: dict[str, dict[int, list[Attempt]]] = {}
    for (gate, number), attempts in places.items():
        children.setdefault(gate, {})[number] = attempts
    calls: dict[int, list[Attempt]] = {}
    for attempt in records.attempts:
        if attempt.gate == "then":
            calls.setdefault(attempt.number, []).append(attempt)
    for plan in plans.values():
        if not is_acknowledged(plan, records):
            continue
        if plan.kind == "run":
            _look_at_maps(plan, records, found)
            continue
        some = children.get(plan.id, {})
        _look_at_end(plan, records, state, found)
        if plan.kind == "chain":
            _look_at_links(plan, some, state, found)
            continue
        _look_at_calls(plan, calls.get(plan.number, []), some, records, found)
        _look_at_progress(plan, records.progress.get(plan.number, []), some, found)
        if (at := done_at(plan, records, "cancel")) is not None:
            _look_at_cancellation(plan, at, some, found)


def judge_leftovers(state: State, now_ms: float, found: Findings, needed: Container[str] = ()) -> None:
    """Nothing waits, and no key of a group is kept for longer than documented; `needed` are kept with their runs."""
    for place, ids in state.places().items():
        if place not in ("completed", "failed", "cancelled"):
            found.say("waiting", f"{len(ids)} jobs are {place}: {', '.join(ids[:5])}")
    for name, key in state.keys.items():
        if not name.startswith("group:"):
            continue
        group = name.split(":")[1]
        if group in needed:
            continue
        fields = state.holds(f"group:{group}", "hash")
        if not fields:
            found.say("left", f"{name} belongs to no group")
        elif name == f"group:{group}" and fields.get("status") in ("running", "cancelling"):
            found.say("waiting", f"group {group} is {fields['status']}: {key.holds}")
        elif name == f"group:{group}":
            found.judged["left"] += 1
            due = int(fields.get("ended_at_ms", 0)) + int(fields.get("kept_ms", 0))
            if due + _LATE_MS < now_ms:
                found.say("left", f"group {group} is kept for {now_ms - due:.0f} ms longer than it should")


# -- attempts


def _look_at_attempts(plans: Plans, places: dict[tuple[str, int], list[Attempt]], found: Findings) -> None:
    for attempts in places.values():
        for before, after in pairwise(attempts):
            number = int(before.key.split()[0])
            mended = number in plans and bool({"requeue", "retry"} & plans[number].has)
            reason = _why_not(before, after, is_mended=mended)
            found.judged["again"] += 1
            if reason:
                found.say("again", f"{after.job_id} of {before.key} began at {after.claimed:.0f}, and {reason}")
            elif before.gate != "run" and before.how not in ("RuntimeError", _DISCARDED):
                found.restarted += 1


def _why_not(before: Attempt, after: Attempt, *, is_mended: bool) -> str:
    """Why a job may not begin again after an attempt; '' if it may."""
    if after.claimed < before.held_until - TICK_MS:
        return f"the attempt before had its lease until {before.held_until:.0f}"
    if before.move == "complete":
        return "the attempt before had completed"
    if before.move == "fail" and not is_mended:
        return "the attempt before had failed for good"
    if before.move == "undo" and not is_mended:
        return "the attempt before had failed, so what was done is undone"
    is_done = before.how == "done" and set(before.moves) <= {"complete"}
    if is_done and before.gate != "run" and after.claimed < before.leased_until - TICK_MS:
        return f"the attempt before had ended well, and its lease lasted until {before.leased_until:.0f}"
    return ""


def _look_at_concurrency(plans: Plans, places: dict[tuple[str, int], list[Attempt]], found: Findings) -> None:
    groups: dict[str, list[Attempt]] = {}
    for attempts in places.values():
        if attempts[0].gate not in ("run", "then"):
            groups.setdefault(attempts[0].gate, []).extend(attempts)
    limits = {plan.number: dict(_limits(plan)) for plan in plans.values()}
    for gate, attempts in groups.items():
        number, label = (f"{attempts[0].key} ").split(" ")[:2]
        most = 1 if gate.startswith("chain-") else limits.get(int(number), {}).get(label, MOST_CONCURRENCY)
        judge_limits(attempts, {gate: {"concurrency": most}}, (), found)


def _limits(plan: Plan) -> Iterator[tuple[str, int]]:
    """The `concurrency` of each group of a plan, by label."""
    if plan.kind == "batch":
        yield "", plan.what["concurrency"] or MOST_CONCURRENCY
    for op in operations(plan.what.get("program", [])):
        if op[0] in ("map", "late"):
            yield op[1], op[3]


# -- ends


def _look_at_end(plan: Plan, records: Records, state: State, found: Findings) -> None:
    found.judged["ended"] += 1
    look_at_acts(plan, records, found)
    status = state.holds(f"group:{plan.id}", "hash").get("status")
    is_known = any(end.batch == plan.id for end in records.ends)
    if status is None and is_known and plan.ends != "cancelled":
        return  # it was kept for a minute
    if status != plan.ends:
        found.say("ended", f"{plan.id} ({plan.name}) is {status}, not {plan.ends}")


def _look_at_maps(plan: Plan, records: Records, found: Findings) -> None:
    for op in operations(plan.what["program"]):
        if op[0] != "map":
            continue
        _, label, total, _, tolerate, flags, _ = op
        is_mendable = "mended" in flags.values()
        for name, is_mended in ((f"{label}.failed", False), (label, True)) if is_mendable else ((label, False),):
            failed = len(failing(flags, is_mended=is_mended))
            expected: Any = child_values(plan.number, label, total, flags, is_mended=is_mended)
            if failed > allowed(total, tolerate):
                expected = [FAILED, failed, total]
            for sight in (it for _, sights in records.sights_of(plan.id, name) for it in sights):
                found.judged["counted"] += 1
                if sight.value != expected:
                    found.say("counted", f"{plan.id}, {label}: {sight.value}, not {expected}")


def _look_at_calls(
    plan: Plan, calls: list[Attempt], children: dict[int, list[Attempt]], records: Records, found: Findings
) -> None:
    what = plan.what
    expected: list[tuple[str, bool]] = []  # the call, and whether the children were mended
    if plan.ends != "cancelled":
        for is_mended in (False, True) if "retry" in plan.has else (False,):
            is_failed = len(failing(what["flags"], is_mended=is_mended)) > allowed(what["total"], what["tolerate"])
            expected.append(("otherwise" if is_failed else "then", is_mended))
    made: dict[str, list[str]] = {}
    for attempt in calls:
        ids = made.setdefault(attempt.key.split()[1], [])
        ids += [attempt.job_id] if attempt.job_id not in ids else []
    found.judged["follow_up"] += 1
    counts = {name: len(ids) for name, ids in made.items()}
    if counts != {name: 1 for name, _ in expected}:
        found.say("follow_up", f"{plan.id} ({plan.name}) made {made}, not {[name for name, _ in expected]}")
    for name, is_mended in expected:
        first = next((it for it in calls if it.key.split()[1] == name), None)
        if first is not None:
            _look_for_early_call(plan, first, children, found, is_mended=is_mended)
        _look_at_arguments(plan, name, records, found, is_mended=is_mended)


def _look_for_early_call(
    plan: Plan, call: Attempt, children: dict[int, list[Attempt]], found: Findings, *, is_mended: bool
) -> None:
    failed = failing(plan.what["flags"], is_mended=is_mended)
    for number in range(plan.what["total"]):
        how = _DISCARDED if number in failed else "done"
        if not any(it.how == how and it.left <= call.claimed + TICK_MS for it in children.get(number, ())):
            found.say("follow_up", f"{call.job_id} was claimed at {call.claimed:.0f}, before child {number} had ended")
            return


def _look_at_arguments(plan: Plan, name: str, records: Records, found: Findings, *, is_mended: bool) -> None:
    total, flags = plan.what["total"], plan.what["flags"]
    failed = sorted(failing(flags, is_mended=is_mended))
    values = child_values(plan.number, "", total, flags, is_mended=is_mended)
    counts: list[Any] = [total - len(failed), len(failed), total, *([failed] if name == "otherwise" else [])]
    ends = [it for it in records.ends if it.batch == plan.id and it.what == name]
    if not ends:
        found.say("follow_up", f"{plan.id} ({plan.name}): no call {name} has read its results")
    for end in ends:
        found.judged["counted"] += 1
        if (end.values, end.counts) != (values, counts):
            found.say("counted", f"{end.job_id} got {end.counts} and {end.values}, not {counts} and {values}")


def _look_at_progress(
    plan: Plan, some: Sequence[Progress], children: dict[int, list[Attempt]], found: Findings
) -> None:
    """A batch never counts more ends than there were."""
    if plan.ends == "cancelled":
        return
    done = _first_ends(children.values(), "done")
    discarded = _first_ends(children.values(), _DISCARDED)
    for at, status, completed, failed, total in some:
        found.judged["counted"] += 1
        most = [bisect_right(instants, at + TICK_MS) for instants in (done, discarded)]
        if completed > most[0] or failed > most[1] or total > plan.what["total"]:
            text = f"{plan.id} was {status} with {[completed, failed, total]} at {at:.0f}, and {most} had ended"
            found.say("counted", f"{text} of {plan.what['total']}")


def _first_ends(children: Iterable[list[Attempt]], how: str) -> list[float]:
    """When each child ended in this way for the first time, in order."""
    ends = [min((it.left for it in attempts if it.how == how), default=None) for attempts in children]
    return sorted(it for it in ends if it is not None)


def _look_at_cancellation(plan: Plan, at: float, children: dict[int, list[Attempt]], found: Findings) -> None:
    found.judged["cancelled"] += 1
    firsts = [attempts[0] for attempts in children.values()]
    look_at_children(plan.id, at, firsts, found)
    begun, most = [it for it in firsts if it.claimed > at + TICK_MS], plan.what["concurrency"]
    if len(begun) > most:
        found.say("cancelled", f"{len(begun)} children of {plan.id} began after it was cancelled, and {most} were jobs")


# -- chains


def _look_at_links(plan: Plan, links: dict[int, list[Attempt]], state: State, found: Findings) -> None:
    what = plan.what
    failed = failing(what["flags"], is_mended="retry" in plan.has)
    last = min(failed, default=what["total"] - 1)
    found.judged["counted"] += 1
    if sorted(links) != list(range(last + 1)):
        found.say("counted", f"{plan.id} ({plan.name}) has the links {sorted(links)}, not those up to {last}")
        return
    value = 0
    for number in range(last + 1):
        attempts = links[number]
        if any(it.key != f"{plan.number} {value}" for it in attempts):
            found.say("counted", f"{plan.id}: link {number} was given {[it.key for it in attempts]}, not {value}")
        if number not in failed and not any(it.how == "done" for it in attempts):
            found.say("ended", f"{plan.id}: link {number} has not ended well")
        value = link_value(number, value)
        if number and min(it.left for it in links[number - 1] if it.how == "done") > attempts[0].claimed + TICK_MS:
            found.say("follow_up", f"{plan.id}: link {number} began before the one before it had ended")
    stored = state.holds(f"group:{plan.id}", "hash").get("last")
    if not failed and stored != str(chain_value(what["total"])):
        found.say("results", f"{plan.id} came to {stored}, not to {chain_value(what['total'])}")
