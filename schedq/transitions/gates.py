"""Write the limits of gates, and pause, hold or resume a gate or a key."""

from __future__ import annotations

from typing import Final, Literal

from schedq.errors import UsageError
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation

_DEFINE: Final = Binding("define_gate", "gate", "by", "limits")
_HOLD: Final = Binding("hold_gate", "name", "action", "ms")


def define(queue: Settings) -> list[Operation[bool]]:
    """Write the limits that the code of this process gives its gates; each operation returns whether they changed."""
    return [_define(queue, name, "code", limits) for name, limits in queue.gates.items()]


def set_limits(queue: Settings, gate: str, limits: str) -> Operation[bool]:
    """Set limits of a gate, as JSON, that hold instead of those in the code until they are reset.

    The operation raises UsageError if the gate is serial, so that `key_concurrency` would have no effect.
    """

    def read(reply: int) -> bool:
        if reply < 0:
            raise UsageError(
                f"gate {gate} is serial: it runs one job of a key at a time, so key_concurrency has no effect; set it "
                "together with serial=False (--no-serial)"
            )
        return reply == 1

    return _define(queue, gate, "set", limits)._replace(read=read)


def reset(queue: Settings, gate: str) -> Operation[bool]:
    """Let the limits in the code hold again; returns whether others had been set."""
    return _define(queue, gate, "reset", "{}")


def remove(queue: Settings, gate: str) -> Operation[bool]:
    """Remove the limits of a gate; what waits in it is no longer limited. Returns whether there were any."""
    return _define(queue, gate, "remove", "{}")


def hold(
    queue: Settings, gate: str, key: str | None, action: Literal["pause", "hold", "resume"], ms: int = 0
) -> Operation[bool]:
    """Pause, hold or resume a gate, or one of its keys; returns whether something changed."""
    name = gate if key is None else f"{gate} {key}"
    return Operation("hold_gate", *_HOLD(queue, name=name, action=action, ms=ms), bool)


def _define(queue: Settings, gate: str, by: str, limits: str) -> Operation[bool]:
    return Operation("define_gate", *_DEFINE(queue, gate=gate, by=by, limits=limits), bool)
