"""Until when a job must begin, as it is given, stored and shown.

It is stored in the field `expires`: an instant in ms, or "+" and ms after `enqueued_at_ms`, because only Redis knows
that instant. `claim.lua` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from schedq.errors import UsageError
from schedq.model.records import whole
from schedq.model.times import LAST_INSTANT_MS, Duration, duration_ms, instant_ms

Expiry = Duration | datetime
"""Seconds or a timedelta after the job is enqueued, or an aware datetime."""


class ExpiryError(UsageError):
    """A job would expire before it is due."""


EXPIRED: Final = "expired"
"""The `cancel_reason` of a job that did not begin in time."""
TOO_EARLY: Final = "the job would expire before it is due: expires must be later than delay or run_at"
_STORED: Final = re.compile(r"\+?[1-9][0-9]{0,14}")


def relative_expiry(value: object) -> str:
    """A duration in the stored form.

    Raises:
        UsageError: it is not a duration, or it is 0.
    """
    ms = duration_ms(value, "expires")
    if ms == 0:
        raise UsageError(f"expires must be more than 0, got {value!r}; leave it out for no limit")
    return f"+{ms}"


def stored_expiry(value: object) -> str:
    """`expires` in the stored form.

    Raises:
        UsageError: it is neither a duration of more than 0 nor an aware datetime.
    """
    if isinstance(value, datetime):
        return str(max(1, instant_ms(value, "expires")))
    return relative_expiry(value)


def put_off(expiry: str, ms: int) -> str:
    """A relative expiry of a job that is due only after `ms`: it may wait for a worker as long as others."""
    return f"+{int(expiry) + ms}"


def check_due_in_time(expiry: str, mode: str, ms: int) -> None:
    """Check that a job is due before it expires, if both are given in the same way; `mode` and `ms` as `enqueue.when`.

    If they are not, only Redis knows, and the script refuses such a job.

    Raises:
        ExpiryError: it would never run.
    """
    if expiry.startswith("+") == (mode == "in") and ms >= int(expiry):
        raise ExpiryError(TOO_EARLY)


def is_stored_expiry(text: object) -> bool:
    """Whether it is in the stored form."""
    return isinstance(text, str) and _STORED.fullmatch(text) is not None


def expires_at_ms(fields: Mapping[str, str]) -> int:
    """The instant until which a job with these fields must begin, in ms; 0 if there is none."""
    text = fields.get("expires", "")
    if not is_stored_expiry(text):
        return 0
    if not text.startswith("+"):
        return int(text)
    enqueued = whole(fields.get("enqueued_at_ms"))
    return min(enqueued + int(text), LAST_INSTANT_MS) if enqueued else 0
