"""A queue's gates, for operators: `queue.gates`."""

from __future__ import annotations

import json
from typing import Any, Final

from schedq.errors import UsageError
from schedq.inspect import gates as found
from schedq.inspect.gates import LIMITS, GateKey, GateStatus, gate_or_queue
from schedq.model.gates import Gate, Rates, checked_gate_name, checked_key, definition, queue_limits
from schedq.model.times import Duration, duration_ms
from schedq.queue.requests import Connections
from schedq.queue.verb import AsyncVerbs, BlockingVerbs, verb
from schedq.transitions import Operation, RoundTrips, gates


class _AsItIs:
    """Stands for a limit that is not changed, because None means no limit."""

    def __repr__(self) -> str:
        return "…"


AS_IT_IS: Final = _AsItIs()
_OF_THE_QUEUE: Final = ("concurrency", "rate")


class GateVerbs:
    """The requests of `Gates` and `AsyncGates`. The name of a gate may be one that only jobs have used."""

    _connections: Connections

    @verb
    def get(self, name: str | None) -> RoundTrips[GateStatus | None]:
        """Return one gate, or None if nothing has named it; '' or None for the queue's own limits.

        Raises:
            UsageError: the name is invalid.
        """
        return found.one_gate(self._connections.settings, name)

    @verb
    def keys(self, name: str, state: str | None = None, limit: int = 100) -> RoundTrips[list[GateKey]]:
        """Return keys of a gate that have waiting or running jobs or are held; those with most waiting jobs first.

        At most 10,000 keys are looked at.

        Args:
            name: the gate.
            state: only keys that are ready, resting, full or paused.
            limit: 1 to 1000.

        Raises:
            UsageError: an argument is invalid.
        """
        return found.keys_of(self._connections.settings, name, state, limit)

    @verb
    def list(self) -> RoundTrips[list[GateStatus]]:
        """Return all gates by name; first, with the name '', the limits of the queue itself, if it has any."""
        return found.all_gates(self._connections.settings)

    @verb
    def set(
        self,
        name: str | None,
        *,
        concurrency: int | _AsItIs | None = AS_IT_IS,
        rate: Rates | int | _AsItIs | None = AS_IT_IS,
        key_concurrency: int | _AsItIs | None = AS_IT_IS,
        key_rate: Rates | int | _AsItIs | None = AS_IT_IS,
        weight: int | _AsItIs | None = AS_IT_IS,
        serial: bool | _AsItIs | None = AS_IT_IS,
    ) -> Operation[bool]:
        """Set limits of a gate, for all workers at once; they hold, whatever the code says, until `reset`.

        Limits that are not given stay as they are. None or 0 is no limit; for `weight` it is 1. Running jobs continue.

        Args:
            name: the gate; '' or None for the queue itself, which has only `concurrency` and `rate`.
            concurrency: the most jobs that run at the same time.
            rate: a Rate, or several.
            key_concurrency: the most jobs of each key that run at the same time.
            key_rate: a Rate of each key, or several.
            weight: how many turns it takes for one turn of a gate with weight 1.
            serial: whether the jobs of a key run one at a time, in order.

        Raises:
            UsageError: an argument is invalid, or nothing is given; `key_concurrency` is given for a gate that is
                serial and stays so.
        """
        given = {"concurrency": concurrency, "rate": rate, "key_concurrency": key_concurrency, "key_rate": key_rate}
        given |= {"weight": weight, "serial": serial}
        text = json.dumps(_changes(gate_or_queue(name), given), separators=(",", ":"))
        return gates.set_limits(self._connections.settings, gate_or_queue(name), text)

    @verb
    def reset(self, name: str | None) -> Operation[bool]:
        """Let the limits in the code hold again; returns whether others had been set.

        Raises:
            UsageError: the name is invalid.
        """
        return gates.reset(self._connections.settings, gate_or_queue(name))

    @verb
    def remove(self, name: str | None) -> Operation[bool]:
        """Remove all limits of a gate that is no longer in the code; returns whether it had been defined.

        Jobs that wait in it are no longer limited. A worker whose code still has the gate defines it again when it
        starts. A pause or hold stays: see `resume`.

        Raises:
            UsageError: the name is invalid.
        """
        return gates.remove(self._connections.settings, gate_or_queue(name))

    @verb
    def pause(self, name: str, key: str | int | None = None) -> Operation[bool]:
        """Stop starting jobs of a gate, or of one of its keys, until `resume`; False if it was paused already.

        Running jobs continue. The key '' is that of jobs without one.

        Raises:
            UsageError: the name or key is invalid.
        """
        return gates.hold(self._connections.settings, *_gate_and_key(name, key), "pause")

    @verb
    def hold(self, name: str, seconds: Duration, key: str | int | None = None) -> Operation[bool]:
        """Stop starting jobs of a gate, or of one of its keys, for a time; never shortens a pause or a longer hold.

        Returns whether that changed something.

        Raises:
            UsageError: an argument is invalid.
        """
        ms = duration_ms(seconds, "seconds")
        return gates.hold(self._connections.settings, *_gate_and_key(name, key), "hold", ms)

    @verb
    def resume(self, name: str, key: str | int | None = None) -> Operation[bool]:
        """End a pause or a hold of a gate, or of one of its keys; returns whether there was one.

        Raises:
            UsageError: the name or key is invalid.
        """
        return gates.hold(self._connections.settings, *_gate_and_key(name, key), "resume")


class Gates(GateVerbs, BlockingVerbs):
    """The gates of a queue, as operators see and control them."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._follow(connections)


class AsyncGates(GateVerbs, AsyncVerbs):
    """`Gates` for asyncio."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._follow(connections)


def _changes(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The limits that change, as they are stored; 0 for no limit.

    Raises:
        UsageError: one is invalid, or none is given.
    """
    changed = {limit: value for limit, value in given.items() if value is not AS_IT_IS}
    allowed = LIMITS if name else _OF_THE_QUEUE
    if not changed:
        raise UsageError(f"give a limit to set: {', '.join(f'{limit}=' for limit in allowed)}")
    if wrong := [limit for limit in changed if limit not in allowed]:
        raise UsageError(f"the queue itself has no {wrong[0]}: give the name of a gate, or concurrency= or rate=")
    limits = {limit: value for limit, value in changed.items() if value}
    made = Gate(name, **limits) if name else queue_limits(**dict.fromkeys(_OF_THE_QUEUE) | limits)
    stored = json.loads(definition(made))
    return {limit: stored.get(limit, 0) for limit in changed}


def _gate_and_key(name: object, key: object) -> tuple[str, str | None]:
    if name is None or name == "":
        raise UsageError("a pause or hold needs the name of a gate; queue.pause() pauses the whole queue")
    return checked_gate_name(name), None if key is None else checked_key(key)
