"""Rows of the table of reasons why a job is not running, and those about gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schedq.inspect import gate_words
from schedq.inspect.display import count
from schedq.inspect.gates import GateSnapshot, Hindrance
from schedq.inspect.snapshot import JobSnapshot
from schedq.model.gates import Gate
from schedq.model.times import span


@dataclass(frozen=True, slots=True)
class Reason:
    """One row of the table.

    Attributes:
        name: the word for programs.
        means: its meaning in general, for the handbook.
        holds: whether it applies to this job.
        text: the reason as a sentence.
        facts: the facts behind it, for programs.
        is_known: whether anything is stored about the job.
    """

    name: str
    means: str
    holds: Callable[[JobSnapshot], object]
    text: Callable[[JobSnapshot], str]
    facts: Callable[[JobSnapshot], Mapping[str, Any]] = lambda _: {}
    is_known: bool = True


def _its(seen: JobSnapshot) -> tuple[GateSnapshot, Gate]:
    """What was seen of the gate of a job that has one."""
    assert seen.gate is not None
    assert seen.gate.limits is not None
    return seen.gate, seen.gate.limits


def _in_gate(test: Callable[[GateSnapshot], bool]) -> Callable[[JobSnapshot], bool]:
    return lambda seen: seen.gate is not None and seen.gate.limits is not None and test(seen.gate)


def _gate(seen: JobSnapshot) -> str:
    return f"gate {_its(seen)[1].name}"


def _key(seen: JobSnapshot) -> str:
    its, limits = _its(seen)
    return f"key {its.key_name:.128} of gate {limits.name}" if its.key_name else f"gate {limits.name}, without a key"


def _left(seen: JobSnapshot, what: Hindrance) -> str:
    return span(max(0, (what.until_ms or 0) - seen.now_ms))


def _running(seen: JobSnapshot, what: Hindrance, most: int | None) -> str:
    said = f"{what.running:,} of {most or what.running:,} running"
    if what.longest_since_ms is None:
        return said
    ran = span(max(0, seen.now_ms - what.longest_since_ms))
    return f"{said}, the longest for {'' if what.is_exact else 'at least '}{ran}"


def _rested(seen: JobSnapshot, what: Hindrance, rates: str) -> str:
    return f"rests {_left(seen, what)} more: {rates}"


def _paused(seen: JobSnapshot, what: Hindrance) -> str:
    if what.state != "paused":
        return f"is held for another {_left(seen, what)}"
    if what.paused_since_ms is None:
        return "is paused"
    return f"is paused, for {span(max(0, seen.now_ms - what.paused_since_ms))} now"


def _is_stopped(what: Hindrance) -> bool:
    return what.state == "paused" or what.is_resting("hold")


def _facts(what: Hindrance, **more: Any) -> dict[str, Any]:
    known = {"paused_since_ms": what.paused_since_ms} if what.state == "paused" else {}
    return {"state": what.state, "until_at_ms": what.until_ms, "running": what.running, **known, **more}


def _gate_facts(seen: JobSnapshot) -> dict[str, Any]:
    its, limits = _its(seen)
    return _facts(
        its.gate,
        gate=limits.name,
        concurrency=limits.concurrency,
        longest_since_ms=its.gate.longest_since_ms,
        rate=gate_words.rates(limits.rate),
        keys_ready=its.ready,
    )


def _key_facts(seen: JobSnapshot) -> dict[str, Any]:
    its, limits = _its(seen)
    return _facts(
        its.key,
        gate=limits.name,
        key=its.key_name,
        concurrency=limits.key_concurrency,
        longest_since_ms=its.key.longest_since_ms,
        rate=gate_words.rates(limits.key_rate),
    )


def _key_full(seen: JobSnapshot) -> str:
    its, limits = _its(seen)
    return f"{_key(seen)}: {_running(seen, its.key, 1 if limits.serial else limits.key_concurrency)}"


def _in_order(seen: JobSnapshot) -> str:
    its, _ = _its(seen)
    left = _left(seen, its.key)
    if its.head == seen.id:
        return f"its next attempt is due in {left}; it stays first of {_key(seen)}, whose jobs run in order"
    return f"job {its.head} of {_key(seen)} comes first, and its next attempt is due in {left}"


def _turn(seen: JobSnapshot) -> str:
    its, limits = _its(seen)
    before = f"{count(seen.ahead or 0, 'job')} of its key before it"
    keys = "" if its.keys_before is None else f", {count(its.keys_before, 'key')} before that"
    return f"its turn in gate {limits.name} comes later: {before}{keys}"


def _turn_facts(seen: JobSnapshot) -> dict[str, Any]:
    its, limits = _its(seen)
    more = {"gate": limits.name, "key": its.key_name, "keys_ahead": its.keys_before, "keys_ready": its.ready}
    return seen.ahead_facts | more


def _is_queue_limited(seen: JobSnapshot) -> bool:
    return seen.gate is not None and seen.gate.queue.state in ("full", "resting")


def _queue_limited(seen: JobSnapshot) -> str:
    assert seen.gate is not None
    limits, what = seen.gate.queue_limits, seen.gate.queue
    if what.state == "full":
        return f"the queue's own limit is reached: {_running(seen, what, limits.concurrency)}"
    return f"the queue {_rested(seen, what, gate_words.rates(limits.rate))}"


LIMITS: Final = (
    Reason(
        "gate_damaged",
        "A key of its gate in Redis has another type; `schedq doctor` names it.",
        _in_gate(lambda its: its.gate.state == "damaged"),
        lambda seen: f"{_gate(seen)} starts nothing: a key of it has another type, which schedq doctor names",
        _gate_facts,
    ),
    Reason(
        "gate_paused",
        "Its gate is paused, or held until an instant.",
        _in_gate(lambda its: _is_stopped(its.gate)),
        lambda seen: f"{_gate(seen)} {_paused(seen, _its(seen)[0].gate)}",
        _gate_facts,
    ),
    Reason(
        "key_paused",
        "Its key within the gate is paused, or held until an instant.",
        _in_gate(lambda its: _is_stopped(its.key)),
        lambda seen: f"{_key(seen)} {_paused(seen, _its(seen)[0].key)}",
        _key_facts,
    ),
    Reason(
        "key_order",
        "Jobs of its key run in order, and the first one waits for its next attempt.",
        _in_gate(lambda its: its.key.is_resting("order")),
        _in_order,
        lambda seen: _key_facts(seen) | {"first": _its(seen)[0].head},
    ),
    Reason(
        "key_full",
        "As many jobs of its key run as may.",
        _in_gate(lambda its: its.key.state == "full"),
        _key_full,
        _key_facts,
    ),
    Reason(
        "gate_full",
        "As many jobs of its gate run as may.",
        _in_gate(lambda its: its.gate.state == "full"),
        lambda seen: f"{_gate(seen)}: {_running(seen, _its(seen)[0].gate, _its(seen)[1].concurrency)}",
        _gate_facts,
    ),
    Reason(
        "key_rate",
        "The rate of its key allows no start yet.",
        _in_gate(lambda its: its.key.is_resting("rate")),
        lambda seen: f"{_key(seen)} {_rested(seen, _its(seen)[0].key, gate_words.rates(_its(seen)[1].key_rate))}",
        _key_facts,
    ),
    Reason(
        "gate_rate",
        "The rate of its gate allows no start yet.",
        _in_gate(lambda its: its.gate.is_resting("rate")),
        lambda seen: f"{_gate(seen)} {_rested(seen, _its(seen)[0].gate, gate_words.rates(_its(seen)[1].rate))}",
        _gate_facts,
    ),
    Reason(
        "queue_limit",
        "The queue's own limit is reached: its jobs that run, or its rate.",
        _is_queue_limited,
        _queue_limited,
        lambda seen: _facts(seen.gate.queue, concurrency=seen.gate.queue_limits.concurrency) if seen.gate else {},
    ),
)
"""Rows for jobs that limits keep from starting, whether workers are idle or not."""
TURN: Final = Reason(
    "turn",
    "Other jobs of its gate come first: those of its key before it, and other keys in turn.",
    lambda seen: seen.is_held and seen.gate and seen.gate.limits and (seen.ahead or seen.gate.keys_before),
    _turn,
    _turn_facts,
)
"""The row for a job whose gate and key may start jobs, just not this one yet."""
