"""What gates have and do, and the keys that wait in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from schedq.errors import UsageError
from schedq.model.checks import checked_limit
from schedq.model.gates import Gate, Rate, checked_gate_name, damaged, read_gate
from schedq.model.payload import loaded
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation, RoundTrips, unwrap

_GATES: Final = Binding("gates", "cursor", "count", "only", "wants_keys")
_WHY_GATE: Final = Binding("why_gate", "gate", "key")
_LOOKED_AT_ONCE: Final = 200
"""Keys that one script describes, which takes about a millisecond; counting their jobs alone takes a third."""
_MOST_LOOKED: Final = 10_000
_ALL: Final = "*"
KEY_STATES: Final = ("ready", "resting", "full", "paused")


@dataclass(frozen=True, slots=True)
class GateStatus:
    """A gate at one instant; with the name '' the limits of the queue itself.

    Attributes:
        name: its name.
        limits: the limits in force.
        set_by_operator: the limits in force that an operator set.
        in_code: whether the code of a worker defines it.
        state: "open", "full" (as many jobs run as may), "resting" (it starts nothing until `until_ms`), "paused", or
            "damaged" (a key of it has another type; see `schedq doctor`).
        until_ms: until when it rests, ms on Redis's clock; else None.
        because: why it rests: "rate" or "hold"; else ''.
        waiting: jobs that wait in it; of the queue, 0.
        keys: keys with waiting jobs.
        is_exact: whether all keys were looked at; if not, `waiting` and `keys` are at least that many.
        ready: keys that may start a job now, if the gate may.
        resting: keys that wait for an instant: a rate, a hold, or a retry in order.
        resting_is_exact: whether all were counted; if not, there are at least that many.
        running: jobs that run.
        longest_since_ms: since when the one that runs longest has been running; None if nothing runs.
        longest_is_exact: whether all running jobs were looked at.
        damaged: names of limits whose stored values are not valid, so they do not count.
        now_ms: when this was read, ms on Redis's clock.
    """

    name: str
    limits: Gate
    set_by_operator: tuple[str, ...]
    in_code: bool
    state: Literal["open", "full", "resting", "paused", "damaged"]
    until_ms: int | None
    because: str
    waiting: int
    keys: int
    is_exact: bool
    ready: int
    resting: int
    resting_is_exact: bool
    running: int
    longest_since_ms: int | None
    longest_is_exact: bool
    damaged: tuple[str, ...]
    now_ms: int

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, with the rates as `{"n", "per", "burst"}`."""
        limits = {name: getattr(self.limits, name) for name in LIMITS}
        shown = {name: _plain_rates(value) if isinstance(value, tuple) else value for name, value in limits.items()}
        return {
            "name": self.name,
            "limits": shown,
            **{name: getattr(self, name) for name in self.__slots__[2:-1]},
            "set_by_operator": list(self.set_by_operator),
            "damaged": list(self.damaged),
        }


LIMITS: Final = ("concurrency", "rate", "key_concurrency", "key_rate", "weight", "serial")
"""The limits of a gate by name, in the order in which they are shown."""


def _plain_rates(rates: Sequence[Rate]) -> list[dict[str, float]]:
    return [{"n": rate.n, "per": rate.per, "burst": rate.burst} for rate in rates]


@dataclass(frozen=True, slots=True)
class GateKey:
    """A key of a gate at one instant.

    Attributes:
        gate: the name of the gate.
        key: the key; '' for jobs without one.
        waiting: its jobs that wait in the gate.
        running: its jobs that run.
        state: "ready" (it may start a job when its turn comes), "full" (as many of its jobs run as may), "resting" (it
            starts nothing until `until_ms`), "paused" or "damaged", as for gates.
        until_ms: until when it rests, ms on Redis's clock; else None.
        because: why it rests: "rate", "hold", or "order" (the first job in line waits for its next attempt); else ''.
    """

    gate: str
    key: str
    waiting: int
    running: int
    state: Literal["ready", "full", "resting", "paused", "damaged"]
    until_ms: int | None
    because: str


@dataclass(frozen=True, slots=True)
class _GatePage:
    """What one script returns."""

    cursor: str
    gates: tuple[GateStatus, ...]
    sums: tuple[tuple[str, int, int], ...]
    keys: tuple[GateKey, ...]


def gate_or_queue(name: object) -> str:
    """The name of a gate, or '' for '' or None: the queue itself.

    Raises:
        UsageError: it is invalid.
    """
    return "" if name is None or name == "" else checked_gate_name(name)


def all_gates(queue: Settings, most: int = _MOST_LOOKED) -> RoundTrips[list[GateStatus]]:
    """All gates by name, first the queue's own limits if it has any. `most` keys are counted."""
    found, _ = yield from _read(queue, _ALL, most, wants_keys=False)
    return sorted(found, key=lambda gate: gate.name)


def gate_page(queue: Settings) -> Operation[tuple[GateStatus, ...]]:
    """All gates in one script, by name, with the jobs of the first 600 keys."""
    sent = _page(queue, "0", _ALL, wants_keys=False)

    def read(reply: list[Any]) -> tuple[GateStatus, ...]:
        page = sent.read(reply)
        sums = {name: (waiting, keys) for name, waiting, keys in page.sums}
        found = [
            replace(gate, waiting=waiting, keys=keys, is_exact=page.cursor == "0")
            for gate in page.gates
            for waiting, keys in [sums.get(gate.name, (0, 0))]
        ]
        return tuple(sorted(found, key=lambda gate: gate.name))

    return Operation(sent.name, sent.script, sent.keys, sent.args, read)


def has_any(queue: Settings) -> Operation[bool]:
    """Whether the queue has gates or limits of its own, in one plain command."""
    return Operation("gates", None, (), ("EXISTS", queue.keys.gates), bool)


def one_gate(queue: Settings, name: object) -> RoundTrips[GateStatus | None]:
    """One gate, or None if neither code, operators nor jobs have named it.

    Raises:
        UsageError: the name is invalid.
    """
    found, _ = yield from _read(queue, gate_or_queue(name), _MOST_LOOKED, wants_keys=False)
    return found[0] if found else None


def keys_of(queue: Settings, name: str, state: str | None, limit: int) -> RoundTrips[list[GateKey]]:
    """The keys of a gate with waiting or running jobs, or that are held; those with most waiting jobs first.

    Raises:
        UsageError: an argument is invalid.
    """
    checked_limit(limit)
    if state is not None and state not in KEY_STATES:
        raise UsageError(f"state must be one of {', '.join(KEY_STATES)}, got {state!r:.80}")
    _, keys = yield from _read(queue, checked_gate_name(name), _MOST_LOOKED, wants_keys=True)
    wanted = [key for key in keys if state is None or key.state == state]
    return sorted(wanted, key=lambda key: (-key.waiting, -key.running, key.key))[:limit]


def _read(
    queue: Settings, only: str, most: int, *, wants_keys: bool
) -> RoundTrips[tuple[list[GateStatus], list[GateKey]]]:
    cursor, looked = "0", 0
    gates: dict[str, GateStatus] = {}
    keys: dict[str, GateKey] = {}
    while True:
        (reply,) = yield [_page(queue, cursor, only, wants_keys=wants_keys)]
        page: _GatePage = unwrap(reply)
        gates |= {gate.name: gate for gate in page.gates}
        keys |= {key.key: key for key in page.keys}
        for name, waiting, count in page.sums:
            looked += count
            if name in gates:
                seen = gates[name]
                gates[name] = replace(seen, waiting=seen.waiting + waiting, keys=seen.keys + count)
        cursor = page.cursor
        if cursor == "0" or looked >= most:
            break
    return [replace(gate, is_exact=cursor == "0") for gate in gates.values()], list(keys.values())


def _page(queue: Settings, cursor: str, only: str, *, wants_keys: bool) -> Operation[_GatePage]:
    count = _LOOKED_AT_ONCE if wants_keys else 3 * _LOOKED_AT_ONCE
    return Operation(
        "gates", *_GATES(queue, cursor=cursor, count=count, only=only, wants_keys=int(wants_keys)), _read_page
    )


def _read_page(reply: list[Any]) -> _GatePage:
    now, cursor, rows, sums, keys = reply
    return _GatePage(
        str(cursor),
        tuple(_status(int(now), *row) for row in rows),
        tuple(zip(sums[::3], map(int, sums[1::3]), map(int, sums[2::3]), strict=True)),
        tuple(
            GateKey(gate, key, int(waiting), int(running), state, int(at) if at else None, cause)
            for gate, key, waiting, running, state, at, cause in keys
        ),
    )


def _status(now_ms: int, name: str, text: str, code: str, own: str, state: Any, at: str, *more: Any) -> GateStatus:
    cause, running, ready, resting, resting_is_exact, longest, longest_is_exact = more
    given = loaded(own) if own else {}
    return GateStatus(
        name=name,
        limits=read_gate(name, text),
        set_by_operator=tuple(limit for limit in LIMITS if isinstance(given, dict) and limit in given),
        in_code=bool(code),
        state="open" if state == "ready" else state,
        until_ms=int(at) if at else None,
        because=cause,
        waiting=0,
        keys=0,
        is_exact=True,
        ready=int(ready),
        resting=int(resting),
        resting_is_exact=resting_is_exact == 1,
        running=int(running),
        longest_since_ms=int(longest) if longest else None,
        longest_is_exact=longest_is_exact == 1,
        damaged=damaged(text),
        now_ms=now_ms,
    )


# -- what one job waits for


@dataclass(frozen=True, slots=True)
class Hindrance:
    """What keeps the queue, a gate or a key from its next start.

    Attributes:
        state: ready (nothing does), full, resting, paused or damaged.
        until_ms: until when it rests, ms on Redis's clock; else None.
        because: why it rests: rate, hold or order; else ''.
        running: jobs that run.
        longest_since_ms: since when the one that runs longest has been running; None if unknown.
        is_exact: whether all running jobs were looked at for that.
        paused_since_ms: since when it is paused; None if it is not, or that is unknown.
    """

    state: str = "ready"
    until_ms: int | None = None
    because: str = ""
    running: int = 0
    longest_since_ms: int | None = None
    is_exact: bool = True
    paused_since_ms: int | None = None

    def is_resting(self, because: str) -> bool:
        """Whether it rests for this cause."""
        return self.state == "resting" and self.because == because


@dataclass(frozen=True, slots=True)
class GateSnapshot:
    """The reply of `why_gate.lua`.

    Attributes:
        queue_limits: the queue's own limits.
        queue: what keeps the whole queue from starting a job.
        limits: the gate's limits; None if the job has no gate.
        gate: what keeps the gate from starting a job.
        key_name: the job's key; '' without one.
        key: what keeps its key from starting a job.
        ready: keys of the gate that may start a job.
        head: the job at the front of its lane, or ''.
        keys_before: keys of the gate whose turn comes before that of its own; None if its key has no turn yet.
    """

    queue_limits: Gate
    queue: Hindrance
    limits: Gate | None = None
    gate: Hindrance = Hindrance()
    key_name: str = ""
    key: Hindrance = Hindrance()
    ready: int = 0
    head: str = ""
    keys_before: int | None = None


def see_gate(queue: Settings, gate: str, key: str) -> Operation[GateSnapshot]:
    """Read what decides when a job of this gate and key may start; of a job without a gate, the queue's limits only."""

    def read(reply: list[Any]) -> GateSnapshot:
        whole = _hindrance(*reply[1:5])
        limits = read_gate("", reply[0])
        if len(reply) == 5:
            return GateSnapshot(limits, whole)
        text, state, at, cause, running, longest, is_all, ready = reply[5:13]
        key_state, key_at, key_cause, key_running, key_longest, head, before, gate_since, key_since = reply[13:]
        return GateSnapshot(
            limits,
            whole,
            read_gate(gate, text),
            _hindrance(state, at, cause, running, longest, is_all, gate_since),
            key,
            _hindrance(key_state, key_at, key_cause, key_running, key_longest, paused=key_since),
            int(ready),
            head,
            int(before) if int(before) >= 0 else None,
        )

    return Operation("why", *_WHY_GATE(queue, gate=gate, key=key), read)


def _hindrance(
    state: str, at: str, because: str, running: Any, longest: str = "", is_all: int = 1, paused: str = ""
) -> Hindrance:
    since = int(longest) if longest else None
    paused_since = int(paused) if paused and state == "paused" else None
    return Hindrance(state, int(at) if at else None, because, int(running), since, is_all == 1, paused_since)
