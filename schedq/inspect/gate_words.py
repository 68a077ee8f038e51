"""Limits and conditions of gates in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from schedq.inspect.display import apart, count
from schedq.inspect.gates import GateKey, GateStatus
from schedq.model.gates import Gate, Rate
from schedq.model.times import span

_NAMES: Final = {
    "concurrency": "concurrency",
    "rate": "rate",
    "key_concurrency": "concurrency of a key",
    "key_rate": "rate of a key",
    "weight": "weight",
    "serial": "serial",
}


def rates(given: Sequence[Rate]) -> str:
    """Rates, all of which must allow a start: `500 a minute, 10 a second`."""
    return ", ".join(rate.describe() for rate in given)


def value(limit: Any) -> str:
    """The value of a limit; '' if it does not limit."""
    if isinstance(limit, tuple):
        return rates(limit)
    if isinstance(limit, bool):
        return "yes" if limit else ""
    return f"{limit:,}" if limit else ""


def limits(gate: GateStatus) -> list[tuple[str, str]]:
    """The limits in force by name, with who set them; without those that do not limit."""
    shown = []
    for field, name in _NAMES.items():
        text = value(getattr(gate.limits, field))
        is_set = field in gate.set_by_operator
        if text and (field != "weight" or text != "1" or is_set):
            shown.append((name, f"{text} (set by an operator)" if is_set else text))
        elif is_set:
            shown.append((name, "no limit (set by an operator)"))
    return shown


def of_key(gate: Gate) -> str:
    """The limits of each key in short: `2, 10 a second`."""
    most = "serial" if gate.serial else value(gate.key_concurrency)
    return ", ".join(filter(None, (most, rates(gate.key_rate))))


def drained_in_ms(gate: GateStatus) -> int | None:
    """The least time until the last job that waits now may start, by the rates of the gate; None without a rate."""
    times = [gate.waiting * rate.per_ms // rate.n for rate in gate.limits.rate]
    return max(times, default=None)


def outlook(gate: GateStatus) -> str:
    """How long a gate with a rate needs for what waits; '' if that is nothing, or it has no rate."""
    least = drained_in_ms(gate)
    if not least:
        return ""
    return f"gate {gate.name}: {waiting(gate)} waiting, at most {rates(gate.limits.rate)}: {span(least)} or more"


def named(name: str) -> str:
    """`gate api`, or `the queue` for its own limits."""
    return f"gate {name}" if name else "the queue"


def key_named(key: str) -> str:
    """`key 42`, or what jobs without a key have in common."""
    return f"key {key}" if key else "no key"


def state(found: GateStatus | GateKey, now_ms: int) -> str:
    """The condition of a gate or a key, with its end: `rests for 1.2 s`."""
    if found.state != "resting" or found.until_ms is None:
        return found.state
    left = span(max(0, found.until_ms - now_ms))
    return f"held for {left}" if found.because == "hold" else f"rests for {left}"


def why(found: GateStatus | GateKey, now_ms: int) -> str:
    """The same in full: `resting in 1.2 s: its rate`."""
    causes = {"rate": "a rate", "hold": "a hold", "order": "the next attempt of its first job"}
    if found.state != "resting" or found.until_ms is None:
        return found.state
    return f"resting until {causes.get(found.because, 'an instant')} ends {apart(found.until_ms, now_ms)}"


def at_least(number: int, *, is_exact: bool) -> str:
    """`1,234`, or `at least 1,234`."""
    return f"{number:,}" if is_exact else f"at least {number:,}"


def running(gate: GateStatus) -> str:
    """`3 of 40`, or `3` without a limit."""
    most = gate.limits.concurrency
    return f"{gate.running:,} of {most:,}" if most else f"{gate.running:,}"


def longest(gate: GateStatus) -> str:
    """How long the job that runs longest has been running; '' if nothing runs."""
    if gate.longest_since_ms is None:
        return ""
    ran = span(max(0, gate.now_ms - gate.longest_since_ms))
    return ran if gate.longest_is_exact else f"at least {ran}"


def waiting(gate: GateStatus) -> str:
    """`at least 12 jobs of 3 keys`."""
    most = "" if gate.is_exact else "at least "
    return f"{most}{count(gate.waiting, 'job')} of {count(gate.keys, 'key')}"
