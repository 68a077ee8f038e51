"""Gates in the dashboard: their pages, and the actions on them and on their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request

from schedq.dashboard.rendering import PageData
from schedq.dashboard.security import Refusal
from schedq.errors import UsageError
from schedq.inspect import gate_words
from schedq.inspect.gates import GateStatus
from schedq.model.escaping import harmless
from schedq.model.gates import checked_gate_name, checked_key, parsed_count, parsed_rates
from schedq.model.times import parsed_duration, span
from schedq.queue.queue import AsyncQueue

_KEY_ROWS: Final = 200
_PARSERS: Final[Mapping[str, Any]] = {
    "concurrency": parsed_count,
    "rate": parsed_rates,
    "key_concurrency": parsed_count,
    "key_rate": parsed_rates,
    "weight": parsed_count,
}
LIMIT_FIELDS: Final = tuple(_PARSERS)
"""The limits that a form can set."""
_LABELS: Final = ("Running at a time", "Rate", "Running at a time of a key", "Rate of a key", "Weight")


async def gates_page(_: Request, queue: AsyncQueue) -> PageData:
    """All gates: what runs of each limit, rates, what waits, and which are full, paused or resting."""
    found = await queue.gates.list()
    stats = await queue.stats()
    rows = [(gate, gate_words.state(gate, gate.now_ms), dict(gate_words.limits(gate))) for gate in found]
    return PageData("gates.html", {"rows": rows, "now_ms": stats["now_ms"], "words": gate_words})


async def gate_page(request: Request, queue: AsyncQueue) -> PageData:
    """One gate, with the keys that have most waiting jobs.

    Raises:
        Refusal: there is none.
    """
    name = checked_gate_name(request.path_params["gate"])
    found = await queue.gates.get(name)
    if found is None:
        raise Refusal(404, f"Queue {queue.name} has no gate {name}.")
    keys = await queue.gates.keys(name, limit=_KEY_ROWS)
    context = {
        "gate": found,
        "limits": gate_words.limits(found),
        "keys": [(key, gate_words.why(key, found.now_ms)) for key in keys],
        "state": gate_words.why(found, found.now_ms),
        "now_ms": found.now_ms,
        "words": gate_words,
        "size": _KEY_ROWS,
    }
    return PageData("gate.html", context)


def split(subject: str) -> tuple[str, str | None]:
    """The gate and the key of "GATE" or "GATE KEY"; a gate '' is the queue itself.

    Raises:
        UsageError: one is invalid.
    """
    gate, has_key, key = subject.partition(" ")
    return checked_gate_name(gate) if gate else "", checked_key(key) if has_key else None


def called(subject: str) -> str:
    """The gate or key in words."""
    gate, has_key, key = subject.partition(" ")
    which = f"gate {harmless(gate)}" if gate else "the queue's own limits"
    return f"{gate_words.key_named(harmless(key))} of {which}" if has_key else which


def inputs(gate: GateStatus | None, name: str) -> list[tuple[str, str, str]]:
    """The fields of the form that sets limits: name, label, and the present value."""
    shown = [*zip(LIMIT_FIELDS, _LABELS, strict=True)][: len(LIMIT_FIELDS) if name else 2]
    values = {field: gate_words.value(getattr(gate.limits, field)) for field, _ in shown} if gate else {}
    return [(field, label, values.get(field) or "no limit") for field, label in shown]


def parsed_limits(typed: Mapping[str, str]) -> dict[str, Any]:
    """The limits that were typed; a field that is empty changes nothing.

    Raises:
        UsageError: one is invalid, or none was typed.
    """
    found = {name: _PARSERS[name](text.strip()) for name, text in typed.items() if text.strip()}
    if not found:
        raise UsageError("no limit was given; empty fields change nothing, and 0 is no limit")
    return found


async def act(queue: AsyncQueue, action: str, subject: str, delay: str, typed: Mapping[str, str]) -> tuple[str, int]:
    """Act on a gate or a key; return what was done in words, and how many things changed.

    Raises:
        UsageError: what was typed is invalid.
    """
    gate, key = split(subject)
    which = called(subject)
    match action:
        case "set_gate":
            done = await queue.gates.set(gate, **parsed_limits(typed))
            found = await queue.gates.get(gate)
            words = "; ".join(f"{name} {value}" for name, value in gate_words.limits(found)) if found else ""
            return f"{which}: {words}", int(done)
        case "reset_gate":
            done = await queue.gates.reset(gate)
            return f"{which}: {'the limits in the code hold again' if done else 'nothing had been set'}", int(done)
        case "pause_gate":
            done = await queue.gates.pause(gate, key)
            return f"{which} {'is paused' if done else 'was already paused'}", int(done)
        case "hold_gate":
            period = parsed_duration(delay)
            done = await queue.gates.hold(gate, period, key)
            words = span(round(period.total_seconds() * 1000))
            return f"{which} {f'is held for {words}' if done else 'was already held for longer'}", int(done)
        case _:
            done = await queue.gates.resume(gate, key)
            return f"{which} {'is resumed' if done else 'was neither paused nor held'}", int(done)
