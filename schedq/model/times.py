"""Durations and instants as people write them, converted to integer milliseconds.

Rounding is always up: a job may start a fraction of a millisecond late, never early.
"""

from __future__ import annotations

import math
import re
import time
from datetime import date, datetime, timedelta
from functools import partial
from typing import Final

from schedq.errors import UsageError

Duration = int | float | timedelta
"""Seconds, or a timedelta."""
Instant = int | float | datetime
"""Seconds since the Unix epoch, or a timezone-aware datetime."""
LAST_INSTANT_MS: Final = 253_402_300_799_999
"""The end of the year 9999, ms since the epoch: the last instant a datetime can represent."""
LONGEST_MS: Final = 100 * 365 * 86_400_000
"""The longest duration allowed: a hundred years."""
_UNIT_S: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
# Compiled on first use, because most programs read no durations.
_PART: Final = r"(\d+(?:\.\d+)?)(ms|s|min|m|h|d|w)"
_PARTS: Final = rf"(?:{_PART})+"
_NUMBER: Final = r"\d+(?:\.\d+)?"


def duration_ms(value: object, what: str) -> int:
    """Milliseconds of a duration in seconds or a timedelta, rounded up; `what` names it in errors.

    Raises:
        UsageError: not a number or timedelta, negative, not finite, or longer than a hundred years.
    """
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if value != value:  # NaN; unlike `isfinite`, the comparison works for an int too large for a float
            raise UsageError(f"{what} must be a number, got {value!r}")
        if value > LONGEST_MS / 1000:
            raise UsageError(f"{what} must be at most 100 years, got {value!r:.40} seconds")
        micros = round(max(value, -1) * 1_000_000)
    else:
        raise UsageError(f"{what} must be seconds (int or float) or a timedelta, got {value!r}")
    if micros < 0:
        raise UsageError(f"{what} must not be negative, got {value!r}")
    whole = -(-micros // 1000)
    if whole > LONGEST_MS:
        raise UsageError(f"{what} must be at most 100 years, got {value!r}")
    return whole


def checked_timeout(value: object) -> int:
    """The longest time of an attempt, in milliseconds.

    Raises:
        UsageError: it is not a duration, or it is 0.
    """
    timeout = duration_ms(value, "timeout")
    if timeout == 0:
        raise UsageError(f"timeout must be more than 0, got {value!r}; leave it out for no limit")
    return timeout


def seconds_of(value: Duration) -> float:
    """A timedelta in seconds; anything else is returned unchanged, for `duration_ms` to check."""
    if not isinstance(value, timedelta):
        return value
    seconds = value.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def parsed_duration(text: str) -> timedelta:
    """Parse a duration as people type it: `90` (seconds), `5m`, `1d12h`, `500ms`.

    Raises:
        UsageError: it is not a duration, or too long.
    """
    if re.fullmatch(_NUMBER, text):
        seconds = float(text)
    elif re.fullmatch(_PARTS, text):
        seconds = sum(float(number) * _UNIT_S[unit] for number, unit in re.findall(_PART, text))
    else:
        raise UsageError(f"{text!r} is not a duration; write 90 (seconds), 5m, 1d12h or 500ms")
    return timedelta(milliseconds=duration_ms(seconds, "it"))


def instant_ms(value: object, what: str) -> int:
    """Convert an aware datetime or Unix seconds to milliseconds since the epoch, rounded up.

    An instant before the epoch counts as the epoch; either way it is long past.

    Raises:
        UsageError: a naive datetime, a date, a bool, not finite, or past the year 9999.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise UsageError(
                f"{what} must be timezone-aware, got the naive {value!r}; write datetime(..., tzinfo=UTC) or a ZoneInfo"
            )
        micros = (value - _EPOCH) // timedelta(microseconds=1)
    elif isinstance(value, (int, float)) and not isinstance(value, (bool, date)):
        if value != value or value == -math.inf:
            raise UsageError(f"{what} must be a finite number, got {value!r}")
        if value > LAST_INSTANT_MS / 1000:
            shown = f"{value!r:.40}"
            raise UsageError(f"{what} must not be past the year 9999, got {shown} (are these milliseconds?)")
        micros = round(max(value, 0) * 1_000_000)
    else:
        raise UsageError(f"{what} must be an aware datetime or Unix seconds, got {value!r}")
    return min(max(0, -(-micros // 1000)), LAST_INSTANT_MS)


def span(ms: int) -> str:
    """A duration for people, rounded: `340 ms`, `12 s`, `4 min 5 s`, `3 h 12 min`, `5 d 3 h`."""
    if ms < 1000:
        return f"{ms} ms"
    for least, large, large_ms, small, small_ms in _SCALE:
        near = round(ms / small_ms) * small_ms
        if near >= least:
            ms, rest = near, near % large_ms // small_ms
            return f"{ms // large_ms} {large}" + (f" {rest} {small}" if rest else "")
    return f"{ms / 1000:.1f} s" if ms < 10_000 else f"{ms // 1000} s"


_SCALE: Final = (
    (48 * 3_600_000, "d", 86_400_000, "h", 3_600_000),
    (3_600_000, "h", 3_600_000, "min", 60_000),
    (60_000, "min", 60_000, "s", 1000),
)
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
monotonic: Final = partial(time.monotonic)
"""Seconds on a clock that never jumps."""
sleep: Final = partial(time.sleep)
"""Block for some seconds."""
wall: Final = partial(time.time)
"""Unix seconds, for display; never compared with Redis's clock."""
wall_ns: Final = partial(time.time_ns)
"""Unix nanoseconds."""
