"""Gates: named sets of limits in a queue. Which limits and keys are valid, and how they are stored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final, NamedTuple

from schedq.errors import UsageError
from schedq.model.checks import whole_number
from schedq.model.payload import loaded
from schedq.model.times import Duration, duration_ms, parsed_duration, span

MOST_GATES: Final = 64
"""The most gates of one queue: each claim looks at all gates that have ready keys."""
MOST_RATES: Final = 8
MOST_WEIGHT: Final = 1000
MOST_KEY: Final = 128
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,47}")
_STEP_MS: Final = 10
"""The least burst of a fast rate is as many starts as fall in this time; rounding to ms then costs at most 10 %."""
_DEFAULT_STEP_MS: Final = 25
"""The same for the default burst. Workers that are woken late start as many jobs as were allowed meanwhile."""
_FASTEST_PER_MS: Final = 100
_MOST: Final = 2**31 - 1
"""The largest number in a definition that scripts accept."""
_EVERY: Final = {1000: "a second", 60_000: "a minute", 3_600_000: "an hour", 86_400_000: "a day"}


@dataclass(frozen=True, init=False)
class Rate:
    """At most `n` starts in any period of this length, wherever it begins. Starts are spread out.

    After a pause, `burst` of them may start together. From then on, one may start each `per / (n - burst + 1)`.

    Args:
        n: the most starts.
        per: seconds or a timedelta.
        burst: how many may start together, at most half of `n`. By default 1 up to 40 a second, then as many as fall in
            25 ms.

    Raises:
        UsageError: an argument is invalid, or the pace can't be kept in whole milliseconds.
    """

    n: int
    per: float
    burst: int

    def __init__(self, n: int, per: Duration, burst: int | None = None) -> None:
        whole_number("n", n, 1, _MOST)
        per_ms = duration_ms(per, "per")
        if per_ms == 0:
            raise UsageError(f"per must be more than 0, got {per!r}")
        if per_ms > _MOST:
            raise UsageError(f"per must be at most 24 days, got {per!r}")
        if n > _FASTEST_PER_MS * per_ms:
            raise UsageError(
                f"{n:,} {every(per_ms)} is more than 100,000 a second: no queue is that fast, leave it out"
            )
        if n > 1 and per_ms < 2 * _STEP_MS:
            longer = f"Rate({n * 1000 // per_ms}, per=1)"
            raise UsageError(f"per is too short to spread {n} starts, got {per!r}; write a longer time, as in {longer}")
        seconds = per_ms // 1000 if per_ms % 1000 == 0 else per_ms / 1000
        values = (n, seconds, _checked_burst(n, per_ms, seconds, burst))
        for name, value in zip(("n", "per", "burst"), values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def per_ms(self) -> int:
        """`per` in milliseconds."""
        return round(self.per * 1000)

    def describe(self) -> str:
        """The rate in words: `500 a minute`."""
        return f"{self.n:,} {every(self.per_ms)}"


def every(per_ms: int) -> str:
    """A period in words: `a minute`, `every 30 s`."""
    return _EVERY.get(per_ms) or f"every {span(per_ms)}"


def _checked_burst(n: int, per_ms: int, seconds: float, burst: int | None) -> int:
    most = max(1, n // 2)
    least = min(most, -(-n * _STEP_MS // per_ms))
    if burst is None:
        return min(most, -(-n * _DEFAULT_STEP_MS // per_ms))
    whole_number("burst", burst, 1)
    if burst > most:
        left = f"{n - burst + 1:,} {every(per_ms)}" if burst <= n else "nothing"
        raise UsageError(
            f"Rate({n}, per={seconds}, burst={burst}) would give {left} after the burst: burst must be at most "
            f"{most}{', half of n' if n > 1 else ''}"
        )
    if burst < least:
        raise UsageError(
            f"Rate({n}, per={seconds}, burst={burst}) can't be kept in whole milliseconds: burst must be at least "
            f"{least}, or leave it out"
        )
    return burst


def parsed_rate(text: str) -> Rate:
    """Parse a rate as people type it: `10/s`, `500/m`, `20000/h`, `1000/30s`.

    Raises:
        UsageError: it is not a rate.
    """
    found = re.fullmatch(r"\s*(\d{1,15})\s*/\s*(\S+)\s*", text)
    try:
        if found is None:
            raise UsageError("it has no /")
        per = parsed_duration(found[2] if found[2][0].isdecimal() else f"1{found[2]}")
    except UsageError:
        raise UsageError(f"{text!r:.80} is not a rate; write 10/s, 500/m, 20000/h or 1000/30s") from None
    return Rate(int(found[1]), per)


def parsed_rates(text: str) -> tuple[Rate, ...]:
    """Parse one rate or several, separated by commas; none for `0` or `none`.

    Raises:
        UsageError: one is not a rate.
    """
    return () if text.strip().lower() in ("0", "none") else tuple(parsed_rate(part) for part in text.split(","))


def parsed_count(text: str) -> int:
    """Parse a number of jobs; 0 for `none`.

    Raises:
        UsageError: it is not a whole number.
    """
    if text.strip().lower() == "none":
        return 0
    if not re.fullmatch(r"\s*\d{1,10}\s*", text, re.ASCII):
        raise UsageError(f"{text!r:.80} is not a whole number; 0 is no limit")
    return int(text)


Rates = Rate | Sequence[Rate]
"""One rate, or several of which all must allow a start."""


@dataclass(frozen=True, init=False)
class Gate:
    """A named set of limits in one queue, which several tasks share; `Queue.gate` defines it.

    Attributes:
        name: 1 to 48 characters of `A-Z a-z 0-9 _ . -`, the first a letter or digit.
        concurrency: the most jobs of the gate that run at the same time; None for no limit.
        rate: the rates of the gate, all of which must allow a start.
        key_concurrency: the most jobs of each key that run at the same time; None for no limit.
        key_rate: the rates of each key.
        weight: how many turns it takes for one turn of a gate with weight 1.
        serial: whether the jobs of a key run one at a time, in order.

    Raises:
        UsageError: an argument is invalid; the message names it.
    """

    name: str
    concurrency: int | None
    rate: tuple[Rate, ...]
    key_concurrency: int | None
    key_rate: tuple[Rate, ...]
    weight: int
    serial: bool

    def __init__(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: Rates | None = None,
        key_concurrency: int | None = None,
        key_rate: Rates | None = None,
        weight: int = 1,
        serial: bool = False,
    ) -> None:
        checked_gate_name(name)
        try:
            values: tuple[Any, ...] = (
                name,
                _checked_count("concurrency", concurrency),
                _checked_rates("rate", rate),
                _checked_count("key_concurrency", key_concurrency),
                _checked_rates("key_rate", key_rate),
                whole_number("weight", weight, 1, MOST_WEIGHT),
                _checked_serial(serial, key_concurrency),
            )
        except UsageError as error:
            raise UsageError(f"gate {name!r}: {error}") from None
        _set(self, values)


def queue_limits(concurrency: int | None, rate: Rates | None) -> Gate:
    """The limits of a whole queue, as a gate without a name.

    Raises:
        UsageError: a limit is invalid.
    """
    values = ("", _checked_count("concurrency", concurrency), _checked_rates("rate", rate), None, (), 1, False)
    return _set(object.__new__(Gate), values)


def _set(gate: Gate, values: Sequence[Any]) -> Gate:
    for field, value in zip(fields(Gate), values, strict=True):
        object.__setattr__(gate, field.name, value)
    return gate


def checked_gate_name(name: object) -> str:
    """Return `name` if it is a valid name of a gate.

    Raises:
        UsageError: it is not.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        rule = "1 to 48 characters of A-Z a-z 0-9 _ . - and begin with a letter or digit"
        raise UsageError(f"gate name {name!r:.100} must be {rule}")
    return name


def _checked_count(name: str, value: object) -> int | None:
    return None if value is None else whole_number(name, value, 1, _MOST)


def _checked_rates(name: str, given: object) -> tuple[Rate, ...]:
    if given is None:
        return ()
    rates = given if isinstance(given, Sequence) else [given]
    if not all(isinstance(each, Rate) for each in rates):
        raise UsageError(f"{name} must be a Rate or a list of them, as in Rate(10, per=1), got {given!r:.100}")
    if not 1 <= len(rates) <= MOST_RATES:
        raise UsageError(f"{name} must be 1 to {MOST_RATES} rates, got {len(rates)}; leave it out for no limit")
    return tuple(rates)


def _checked_serial(serial: object, key_concurrency: int | None) -> bool:
    if not isinstance(serial, bool):
        raise UsageError(f"serial must be True or False, got {serial!r:.80}")
    if serial and key_concurrency is not None and key_concurrency > 1:
        raise UsageError(f"serial runs one job of a key at a time: leave out key_concurrency={key_concurrency}")
    return serial


# -- definitions


@lru_cache(maxsize=4 * MOST_GATES)
def definition(gate: Gate) -> str:
    """The limits as compact JSON with only what is set; rates as [n, milliseconds, burst]."""
    said: dict[str, object] = {
        "concurrency": gate.concurrency,
        "rate": [[each.n, each.per_ms, each.burst] for each in gate.rate],
        "key_concurrency": gate.key_concurrency,
        "key_rate": [[each.n, each.per_ms, each.burst] for each in gate.key_rate],
        "weight": gate.weight if gate.weight != 1 else None,
        "serial": gate.serial,
    }
    return json.dumps({name: value for name, value in said.items() if value}, separators=(",", ":"))


def read_gate(name: str, text: str) -> Gate:
    """The gate of a stored definition. A field that is damaged reads as if it were not set; see `damaged`."""
    said = _said(text)
    found = {field: None if said.get(field) is None else read(said[field]) for field, read in _READ.items()}
    rates, key_rates = found["rate"] or (), found["key_rate"] or ()
    values = (name, found["concurrency"], rates, found["key_concurrency"], key_rates)
    return _set(object.__new__(Gate), (*values, found["weight"] or 1, bool(found["serial"])))


def damaged(text: str) -> tuple[str, ...]:
    """The fields of a stored definition that are not valid; `definition` if it is no JSON object at all."""
    if not isinstance(loaded(text), dict):
        return ("definition",)
    said = _said(text)
    return tuple(field for field, read in _READ.items() if field in said and read(said[field]) is None)


def _said(text: str) -> dict[str, Any]:
    said = loaded(text)
    return said if isinstance(said, dict) else {}


def _read_count(value: object, most: int = _MOST) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most else None


def _read_rates(value: object) -> tuple[Rate, ...] | None:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_RATES:
        return None
    rates = [_read_rate(each) for each in value]
    return tuple(each for each in rates if each is not None) if None not in rates else None


def _read_rate(value: object) -> Rate | None:
    """A stored rate. Its burst may be one that `Rate` would refuse, because scripts can work with it."""
    if not isinstance(value, list) or len(value) != 3 or None in (numbers := [_read_count(each) for each in value]):
        return None
    n, per_ms, burst = (number or 0 for number in numbers)
    if burst > n:
        return None
    made = object.__new__(Rate)
    for name, it in (("n", n), ("per", per_ms // 1000 if per_ms % 1000 == 0 else per_ms / 1000), ("burst", burst)):
        object.__setattr__(made, name, it)
    return made


_READ: Final[Mapping[str, Callable[[object], Any]]] = {
    "concurrency": _read_count,
    "rate": _read_rates,
    "key_concurrency": _read_count,
    "key_rate": _read_rates,
    "weight": lambda value: _read_count(value, MOST_WEIGHT),
    "serial": lambda value: value if isinstance(value, bool) else None,
}


def declare(known: dict[str, str], gate: Gate) -> Gate:
    """Add a gate to those that the code of this process defines: name → definition.

    Raises:
        UsageError: it is defined already with other limits, or there are too many gates.
    """
    text, there = definition(gate), known.get(gate.name)
    if there is not None and there != text:
        raise UsageError(
            f"gate {gate.name!r} is defined already with other limits: {there}, and here {text}; define it once, and "
            f"write gate={gate.name!r} elsewhere"
        )
    if there is None and gate.name and len(known.keys() - {""}) >= MOST_GATES:
        raise UsageError(
            f"gate {gate.name!r} is one too many: a queue has at most {MOST_GATES} gates. For customers, shops or "
            "hosts use one gate with a key"
        )
    known[gate.name] = text
    return gate


# -- what a job stores


class KeyOf(NamedTuple):
    """How a task finds the keys of its jobs.

    Attributes:
        by: the name of a parameter, or a function of the arguments.
    """

    by: str | Callable[..., Any]


def gate_name(known: Mapping[str, str], given: object) -> str:
    """The name of a gate that was given as an object or by its name, which need not be defined in this process.

    Raises:
        UsageError: it is invalid, or a gate of another queue.
    """
    if not isinstance(given, Gate):
        return checked_gate_name(given)
    if known.get(given.name) != definition(given):
        raise UsageError(
            f"gate {given.name!r} belongs to another queue, and its limits count only there; define one here with "
            f"queue.gate({given.name!r}, ...)"
        )
    return given.name


def checked_key(value: object) -> str:
    """The key of a job within its gate, as it is stored; '' for None.

    Raises:
        UsageError: it is invalid.
    """
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        text = int.__repr__(value)
    elif isinstance(value, str):
        text = str.__str__(value)
    else:
        raise UsageError(f"a key must be a text or a whole number, got {value!r:.100}; convert it, as in str(value)")
    if len(text) > MOST_KEY or " " in text or not text.isprintable():
        rule = f"1 to {MOST_KEY} printable characters without spaces"
        raise UsageError(f"a key must be {rule}, got {text!r:.160}; use a digest of it")
    return text


def stored_gate(known: Mapping[str, str], gate: object, key: object) -> tuple[str, ...]:
    """The fields of a job for its gate and its key, each with its name.

    Raises:
        UsageError: one is invalid, or there is a key without a gate.
    """
    text = checked_key(key)
    if gate is None:
        if text:
            raise UsageError(f"key={key!r:.100} needs a gate, whose limits and turns it counts for: give gate= too")
        return ()
    name = gate_name(known, gate)
    return ("gate", name, "key", text) if text else ("gate", name)
