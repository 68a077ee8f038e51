"""Gates: whether their limits count, and which have been full or paused for long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from schedq.doctor.checks import Check, Finding, findings
from schedq.errors import SchedqError
from schedq.inspect import gate_words
from schedq.inspect.display import approximate
from schedq.inspect.gates import GateStatus, gate_page
from schedq.model.settings import Settings
from schedq.transitions import RoundTrips

_FULL_FOR_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class GateFacts:
    """The gates of a queue; none if their keys can't be read, which other checks report."""

    gates: tuple[GateStatus, ...]


def read_gates(queue: Settings) -> RoundTrips[GateFacts]:
    """Read all gates, and count the jobs of at most 600 keys."""
    (reply,) = yield [gate_page(queue)]
    return GateFacts(() if isinstance(reply, SchedqError) else reply)


def _waits(it: GateStatus) -> str:
    return f"{gate_words.at_least(it.waiting, is_exact=it.is_exact)} {'job waits' if it.waiting == 1 else 'jobs wait'}"


def _longest_ms(it: GateStatus) -> int:
    return it.now_ms - (it.longest_since_ms or it.now_ms)


GATES: Final[tuple[Check[GateStatus], ...]] = (
    Check(
        "gate-damaged",
        "error",
        lambda it: it.damaged,
        lambda it: f"limits of {gate_words.named(it.name)} can't be read: {', '.join(it.damaged)}",
        "these limits do not count, so more jobs may start than they allow",
        lambda it: (
            f"restart a worker whose code defines it, or set the limits: schedq gates set {it.name} --queue {{queue}}"
        ),
        about=lambda it: it.name,
        value=lambda it: it.waiting,
    ),
    Check(
        "gate-undefined",
        "warning",
        lambda it: it.name and not it.in_code and not it.set_by_operator and (it.waiting or it.running),
        lambda it: f"gate {it.name} has no limits: {_waits(it)} in it, and no code or operator has defined it",
        "its keys take turns, but as many of its jobs run as there are free workers",
        lambda it: (
            f"start a worker whose code has queue.gate({it.name!r}, ...), or set limits: schedq gates set {it.name} "
            "--queue {queue} --concurrency N"
        ),
        about=lambda it: it.name,
        value=lambda it: it.waiting,
    ),
    Check(
        "gate-paused",
        "note",
        lambda it: it.state == "paused" and it.waiting,
        lambda it: f"gate {it.name} is paused: {_waits(it)}",
        "nothing of it starts",
        lambda it: f"schedq gates resume {it.name} --queue {{queue}}",
        about=lambda it: it.name,
        value=lambda it: it.waiting,
    ),
    Check(
        "gate-full",
        "warning",
        lambda it: it.name and it.state == "full" and it.waiting and _longest_ms(it) >= _FULL_FOR_MS,
        lambda it: (
            f"gate {it.name} is full ({gate_words.running(it)} running), a job of it has been running for "
            f"{approximate(_longest_ms(it))}, and {_waits(it)}"
        ),
        "a job that does not end keeps its place from others",
        lambda it: f"schedq jobs {{queue}} --state processing --gate {it.name} lists them; give its tasks a timeout",
        about=lambda it: it.name,
        value=lambda it: it.waiting,
    ),
)


def check_gates(found: GateFacts, queue: str) -> Iterator[Finding]:
    """The findings about gates."""
    for gate in found.gates:
        yield from findings(GATES, gate, queue)


def names_of(found: GateFacts) -> list[str]:
    """The names of the gates that have keys of their own in Redis."""
    return [gate.name for gate in found.gates if gate.name]
