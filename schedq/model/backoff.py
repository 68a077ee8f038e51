"""How long a job waits after its n-th failed attempt.

Every plan computes w(n) in seconds; with `jitter` j the wait is uniform in [w·(1−j), w]. Waits never exceed
`cap` and never overflow. A plan is stored as JSON text in a job's `backoff` field and in `settings`.
Source of the jitter: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from schedq.errors import UsageError
from schedq.model.times import LONGEST_MS

_LONGEST: Final = LONGEST_MS / 1000
_LIMITS: Final = {"factor": (1.0, _LONGEST), "jitter": (0.0, 1.0)}


def _check(what: str, value: object, least: float = 0.0, most: float = _LONGEST) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"backoff {what} must be a number, got {value!r}")
    if not least <= value <= most:  # rejects NaN too
        raise UsageError(f"backoff {what} must be within {least:g} and {most:g}, got {value!r:.40}")


class _Checked:
    """Checks the numbers of a plan."""

    __slots__: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.__slots__:
            _check(name, getattr(self, name), *_LIMITS.get(name, ()))


@dataclass(frozen=True, slots=True)
class Exponential(_Checked):
    """Wait min(cap, base · factor^(n−1)) seconds after attempt n."""

    base: float = 2
    factor: float = 2
    cap: float = 600
    jitter: float = 0

    def wait(self, attempt: int) -> float:
        """Return the seconds to wait after attempt `attempt`, before jitter."""
        try:
            return min(self.cap, self.base * float(self.factor) ** (max(1, attempt) - 1))
        except OverflowError:
            return self.cap if self.base else 0.0


@dataclass(frozen=True, slots=True)
class Linear(_Checked):
    """Wait min(cap, base + step · (n−1)) seconds after attempt n."""

    base: float = 10
    step: float = 10
    cap: float = 600
    jitter: float = 0

    def wait(self, attempt: int) -> float:
        """Return the seconds to wait after attempt `attempt`, before jitter."""
        return min(self.cap, self.base + self.step * (max(1, attempt) - 1))


@dataclass(frozen=True, slots=True)
class Fixed(_Checked):
    """Wait `delay` seconds after each attempt."""

    delay: float
    jitter: float = 0

    def wait(self, attempt: int) -> float:  # noqa: ARG002 - all plans have this signature
        """Return the seconds to wait after any attempt, before jitter."""
        return float(self.delay)


@dataclass(frozen=True, slots=True)
class Steps:
    """Wait delays[n−1] seconds after attempt n; the last delay repeats."""

    delays: Sequence[float]
    jitter: float = 0

    def __post_init__(self) -> None:
        delays = self.delays
        if isinstance(delays, (str, bytes)) or not isinstance(delays, Sequence) or not delays:
            raise UsageError(f"backoff steps must be a list of at least one delay in seconds, got {delays!r}")
        for delay in delays:
            _check("step", delay)
        _check("jitter", self.jitter, *_LIMITS["jitter"])
        object.__setattr__(self, "delays", tuple(delays))

    def wait(self, attempt: int) -> float:
        """Return the seconds to wait after attempt `attempt`, before jitter."""
        return float(self.delays[min(max(1, attempt), len(self.delays)) - 1])


Plan = Exponential | Linear | Fixed | Steps
_KINDS: Final[dict[str, type[Plan]]] = {kind.__name__.lower(): kind for kind in (Exponential, Linear, Fixed, Steps)}


def checked_plan(plan: object) -> Plan:
    """Return `plan` if it is one of the plans.

    Raises:
        UsageError: it is something else. A plain number is not taken for `Fixed(number)`.
    """
    if type(plan) not in _KINDS.values():
        hint = f"; write Fixed({plan})" if isinstance(plan, int | float) and not isinstance(plan, bool) else ""
        raise UsageError(f"backoff must be Exponential, Linear, Fixed or Steps, got {plan!r}{hint}")
    return plan  # type: ignore[return-value] # checked above by exact type


def delay_ms(plan: Plan, attempt: int) -> int:
    """A random wait after attempt `attempt`, in whole milliseconds within [w·(1−jitter), w]."""
    wait = plan.wait(attempt) * 1000
    most = math.floor(wait)
    least = math.ceil(wait * (1 - plan.jitter))
    return least if least >= most else random.randint(least, most)  # noqa: S311 - spreads load, needs no secrecy


def to_text(plan: Plan) -> str:
    """The plan as JSON text, for a hash field."""
    return json.dumps({"kind": type(plan).__name__.lower(), **asdict(plan)}, separators=(",", ":"))


def from_text(text: str) -> Plan | None:
    """Read a plan that `to_text` wrote; None if `text` is something else (foreign or newer data)."""
    try:
        fields: dict[str, Any] = json.loads(text)
        return _KINDS[fields.pop("kind")](**fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
