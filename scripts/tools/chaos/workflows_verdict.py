"""Whether runs of workflows did what is promised, from what handlers and the producer have recorded.

`workflows.py` starts the processes of a normal run and its faults, and kills the producer, too. All instants are ms of
Redis's clock, which is the machine's. These must be 0, here and in `batches_verdict`:

    ended        acknowledged runs, batches and chains that did not end as planned, or of whose end no handler knows
    results      runs with another result than without faults
    changed      operations of which attempts saw different outcomes, or steps with an outcome that no call returned
    again        steps that began again after an outcome was recorded, and jobs begun again without a lost lease
    counted      maps, batches and chains that did not count each child once, or whose results are not in order
    concurrency  claims at which more children of a group certainly had leases than its `concurrency`
    follow_up    calls at the end of a batch that were not made once, or before all children had ended
    messages     acknowledged messages that were not received once and in order, or came in time and were not received
    early        sleeps and timeouts that ended before their time
    undone       steps of runs that did not complete and were not undone, not the newest first, or again after an older
                 one; and steps that were undone although their run completed, or they were kept
    cancelled    runs and children that began long after a cancellation was acknowledged, or a race was lost
    waiting      jobs that have not ended, and groups that still run, at the end
    left         keys of groups that are kept for too long, or belong to no group
    unlawful     violations of the laws of `tests/state.py` at the end
    tracebacks   exceptions of schedq in the logs
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from scripts.tools.chaos import limits_verdict
from scripts.tools.chaos.limits_verdict import Attempt
from scripts.tools.chaos.workflows_plan import FAILED, Outcome, Plan, operations
from scripts.tools.chaos.workflows_records import Place, Records, Sight, Try
from tests.state import State

FAULTS: Final = (
    "ended", "results", "changed", "again", "counted", "concurrency", "follow_up", "messages", "early", "undone",
    "cancelled", "waiting", "left", "unlawful", "tracebacks",
)  # fmt: skip
TIMEOUT: Final = "timeout"
TICK_MS: Final = 2.0
"""Redis's clock shows whole ms, and a Python float of seconds is not exact."""
PROPAGATION_MS: Final = 20_000.0
"""How long after a cancellation was acknowledged a waiting child may still begin. The promoter looks within 10 s; here
it may be killed meanwhile, and the run's worker or Redis be gone for a while."""
_RECEIVES: Final = ("receive", "patience", "race")
Plans = Mapping[int, Plan]


@dataclass
class Findings(limits_verdict.Findings):
    """What a run has shown; all of `FAULTS` must be zero.

    Attributes:
        repeated: steps that began again before an outcome was recorded, each after its attempt had ended.
        restarted: jobs other than runs that were begun again after a lost lease.
        cancelled_late_ms: the longest time after a cancellation in which a child still began.
    """

    ended: int = 0
    results: int = 0
    changed: int = 0
    again: int = 0
    counted: int = 0
    follow_up: int = 0
    messages: int = 0
    early: int = 0
    undone: int = 0
    cancelled: int = 0
    left: int = 0
    repeated: int = 0
    restarted: int = 0
    cancelled_late_ms: int = 0


def judge_runs(plans: Plans, records: Records, state: State, found: Findings) -> None:
    """Judge all runs."""
    claims = {attempt.token: attempt.claimed for attempt in records.attempts}
    moves = {attempt.token: attempt.move for attempt in records.attempts}
    _look_at_steps(records, claims, moves, found)
    _look_at_sights(records, found)
    _look_at_waits(records, found)
    for plan in plans.values():
        if plan.kind == "run":
            _look_at_end(plan, records, state, found)
            _look_at_messages(plan, records, found)
    _look_at_cancellations(plans, records, found)


def is_acknowledged(plan: Plan, records: Records) -> bool:
    """Whether the producer knows that it has started."""
    acts = records.acts.get(plan.number, {})
    return 0 in acts and acts[0].reply is not None


def done_at(plan: Plan, records: Records, what: str) -> float | None:
    """When an act was acknowledged; None if it was not."""
    for number, act in records.acts.get(plan.number, {}).items():
        if plan.acts[number][1] == what and act.reply is not None:
            return act.did
    return None


def look_at_acts(plan: Plan, records: Records, found: Findings) -> None:
    """The producer could do all that it had planned."""
    acts = records.acts.get(plan.number, {})
    for number, act in enumerate(plan.acts):
        if number not in acts or acts[number].reply is None:
            found.say("ended", f"{plan.id} ({plan.name}): the producer could not do act {number}, {act}")
            return


def _look_at_end(plan: Plan, records: Records, state: State, found: Findings) -> None:
    if not is_acknowledged(plan, records):
        return
    found.judged["ended"] += 1
    look_at_acts(plan, records, found)
    job, returns = state.job(plan.id), records.returns.get(plan.id, [])
    ends = "completed" if _was_too_late(plan, records) else plan.ends
    if job.get("status") != ends:
        found.say("ended", f"{plan.id} ({plan.name}) is {job.get('status')}, not {ends}; {job.get('last_error')}")
    if ends == "failed" and plan.error not in job.get("last_error", ""):
        found.say("ended", f"{plan.id} ({plan.name}) failed with {job.get('last_error')}")
    if ends != "completed":
        if returns:
            found.say("ended", f"{plan.id} ({plan.name}) returned {returns[0].value}")
        return
    expected = Outcome(plan.number, "requeue" in plan.has).of(plan.what["program"])
    if not returns:
        found.say("ended", f"{plan.id} ({plan.name}): no attempt has returned a result")
    stored = [json.loads(job["result"])] if job.get("result") else []
    for value in [*(it.value for it in returns), *stored]:
        found.judged["results"] += 1
        if value != expected:
            found.say("results", f"{plan.id} ({plan.name}) returned {value}, not {expected}")


def _was_too_late(plan: Plan, records: Records) -> bool:
    """Whether a run was to be cancelled, and had returned before: a producer that is killed often is late."""
    returned = min((it.at for it in records.returns.get(plan.id, ())), default=math.inf)
    acts = records.acts.get(plan.number, {}).items()
    return any(plan.acts[n][1] == "cancel" and act.reply == "no" and returned < act.did for n, act in acts)


# -- steps


def _look_at_steps(records: Records, claims: Mapping[str, float], moves: Mapping[str, str], found: Findings) -> None:
    for place, tries in records.tries.items():
        known = [it for it in records.sights.get(place, ()) if it.value != FAILED]
        found.judged["again"] += 1
        for each in tries:
            if each.kind == "step" and (sight := _seen_before(each, known, claims)) is not None:
                text = f"{_named(place)} began at {each.at:.0f}, {each.token} after {sight.token} had its outcome"
                found.say("again", text)
        for first, second in _repeats(tries):
            was_there = moves.get(first.token) in ("suspend", "complete")
            is_older = claims.get(second.token, 0.0) < claims.get(first.token, 0.0)  # it does not know yet
            if first.token == second.token or (was_there and not is_older):
                found.say("again", f"{_named(place)} began at {first.at:.0f} and {second.at:.0f} without a lost lease")
            else:
                found.repeated += 1
        returned = [it.value for it in tries if it.kind == "stepped"]
        for sight in known if returned else ():
            if sight.value not in returned:
                found.say("changed", f"{_named(place)} came to {sight.value}, and its calls returned {returned}")


def _seen_before(each: Try, known: list[Sight], claims: Mapping[str, float]) -> Sight | None:
    """An attempt that saw the outcome, although this try is of a later one, or later in the same.

    Only the holder of the lease can record an outcome, so it was there before any later claim.
    """
    for sight in known:
        is_same = sight.token == each.token and sight.at < each.at
        if is_same or claims.get(sight.token, 0.0) < claims.get(each.token, 0.0):
            return sight
    return None


def _repeats(tries: list[Try]) -> Iterator[tuple[Try, Try]]:
    """Each call of a step that did not raise, with the next one of its attempt, or else of another."""
    calls: dict[str, Try] = {}  # by token, the last one last
    for each in tries:
        if each.kind == "stumbled":
            calls.pop(each.token, None)
        elif each.kind == "step":
            if before := calls.pop(each.token, None) or next(reversed(calls.values()), None):
                yield before, each
            calls[each.token] = each


def _look_at_sights(records: Records, found: Findings) -> None:
    for place, sights in records.sights.items():
        found.judged["changed"] += len(sights) - 1
        seen: dict[str, Sight] = {}
        for sight in sights:
            kind = f"{FAILED} {sight.requeued}" if sight.value == FAILED else "ok"
            first = seen.setdefault(kind, sight)
            if first.value != sight.value:
                found.say("changed", f"{_named(place)} came to {first.value} at {first.at:.0f}, then to {sight.value}")


# -- waits and messages


def _look_at_waits(records: Records, found: Findings) -> None:
    for place, wait in records.waits.items():
        is_sleep = wait.kind in ("sleep", "until")
        for sight in records.sights.get(place, ())[:1]:
            if is_sleep or sight.value == TIMEOUT:
                found.judged["early"] += 1
                if sight.at < wait.ends - TICK_MS:
                    text = f"{_named(place)}, {wait.kind} of {wait.ms:.0f} ms, began at {wait.at:.0f} and was over at"
                    found.say("early", f"{text} {sight.at:.0f}")


def _look_at_messages(plan: Plan, records: Records, found: Findings) -> None:
    labels = [(op[0], op[1], op[2]) for op in operations(plan.what["program"]) if op[0] in _RECEIVES]
    for topic in plan.messages:
        first_seen: dict[int, tuple[float, Place]] = {}
        for place, sights in _receives(plan.id, [it for it in labels if it[2] == topic], records):
            number = sights[0].value[1]
            if number in first_seen:
                text = f"{plan.id}: message {number} of {topic} was received at {first_seen[number][1][1:]}"
                found.say("messages", f"{text} and at {place[1:]}")
            first_seen.setdefault(number, (sights[0].at, place))
        order = [number for _, number in sorted((at, number) for number, (at, _) in first_seen.items())]
        if order != sorted(order):
            found.say("messages", f"{plan.id}: messages of {topic} were received in the order {order}")
        sent = _sent(plan, topic, records, found)
        found.judged["messages"] += len(sent)
        if plan.ends == "completed" and (missing := sent.keys() - first_seen.keys()):
            found.say("messages", f"{plan.id} has not received the messages {sorted(missing)} of {topic}")
        _look_at_timeouts(plan, topic, sent, {n: at for n, (at, _) in first_seen.items()}, records, found)


def _receives(run: str, labels: list[tuple[str, str, str]], records: Records) -> Iterator[tuple[Place, list[Sight]]]:
    """The operations of a run that have received a message, each with its sights."""
    for place, sights in records.sights.items():
        base, _, part = place[2].partition(".")
        if place[0] == run and any(base == label for _, label, _ in labels) and isinstance(sights[0].value, list):
            yield place, sights


def _sent(plan: Plan, topic: str, records: Records, found: Findings) -> dict[int, float]:
    """The messages that were acknowledged, and when."""
    sent = {}
    for number, act in records.acts.get(plan.number, {}).items():
        if plan.acts[number][1:3] == ["send", topic]:
            if act.reply is False:
                found.say("messages", f"{plan.id}: message {plan.acts[number][3]} of {topic} was refused")
            elif act.reply is not None:
                sent[plan.acts[number][3]] = act.did
    return sent


def _look_at_timeouts(
    plan: Plan, topic: str, sent: Mapping[int, float], seen: Mapping[int, float], records: Records, found: Findings
) -> None:
    for place, wait in records.waits.items():
        if place[0] != plan.id or wait.kind != topic:
            continue
        sights = records.sights.get(place, [])
        if not sights or sights[0].value != TIMEOUT:
            continue
        for number, at in sent.items():
            if at < wait.ends - TICK_MS and seen.get(number, sights[0].at + 1) > sights[0].at:
                text = (
                    f"{_named(place)} timed out at {wait.ends:.0f} or later, and message {number} was there at {at:.0f}"
                )
                found.say("messages", text)


# -- cancellations


def _look_at_cancellations(plans: Plans, records: Records, found: Findings) -> None:
    firsts: dict[int, list[Attempt]] = {}
    for (gate, _), attempts in records.by_place().items():
        if gate.startswith("run-") and attempts[0].gate not in ("run", "then"):
            firsts.setdefault(int(attempts[0].key.split()[0]), []).append(attempts[0])
    own: dict[str, list[Attempt]] = {}
    for attempt in records.attempts:
        if attempt.gate == "run":
            own.setdefault(attempt.job_id, []).append(attempt)
    for plan in plans.values():
        if plan.kind != "run":
            continue
        if (at := done_at(plan, records, "cancel")) is not None:
            found.judged["cancelled"] += 1
            for attempt in own.get(plan.id, ()):
                if attempt.claimed > at + TICK_MS:
                    found.say("cancelled", f"{plan.id} was cancelled at {at:.0f}, and claimed at {attempt.claimed:.0f}")
            look_at_children(plan.id, at, firsts.get(plan.number, ()), found)
        for label in (op[1] for op in operations(plan.what["program"]) if op[0] == "late"):
            for place, sights in records.sights_of(plan.id, label):
                some = [it for it in firsts.get(plan.number, ()) if it.key.split()[1] == label]
                found.judged["cancelled"] += 1
                look_at_children(f"{plan.id}, {place[2]}", sights[0].at, some, found)


def look_at_children(what: str, at: float, firsts: Any, found: Findings) -> None:
    """No child begins for the first time long after a cancellation."""
    for attempt in firsts:
        late_ms = attempt.claimed - at
        if late_ms > 0:
            found.cancelled_late_ms = max(found.cancelled_late_ms, round(late_ms))
        if late_ms > PROPAGATION_MS:
            found.say("cancelled", f"{attempt.job_id} of {what} began {late_ms:.0f} ms after the cancellation")


def _named(place: Place) -> str:
    run, life, label = place
    return f"{run}, life {life}, {label}"
