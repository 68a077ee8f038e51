"""How values read on a page. Escaping is the templates' part; what could steer a reader's eye is made visible here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from schedq.cli import show
from schedq.errors import UsageError
from schedq.keys import checked_id, checked_schedule_id

MOST_SHOWN: Final = 65_536
"""Characters of a payload, result or traceback on a page."""


def number(value: float | None) -> str:
    """`1,234`, `0.25`; a dash for None."""
    if value is None:
        return show.NOTHING
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if value >= 1 else f"{value:.2f}"


def iso(ms: int) -> str:
    """An instant for machines."""
    found = _utc(ms)
    return "" if found is None else f"{found:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def utc(ms: int) -> str:
    """An instant in full, UTC."""
    found = _utc(ms)
    return show.NOTHING if found is None else f"{found:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}"


def clock(ms: int, now_ms: int) -> str:
    """An instant, UTC, with the day if that is another one than today."""
    found, today = _utc(ms), _utc(now_ms)
    if found is None or today is None:
        return show.NOTHING
    return f"{found:%H:%M:%S}" if found.date() == today.date() else f"{found:%Y-%m-%d %H:%M}"


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """A text with its lines, cut where it is longer than people read."""
    cut = show.harmless_lines(text[:most])
    return cut + (f"\n… {len(text) - most:,} more characters" if len(text) > most else "")


def pretty(text: str) -> str:
    """Stored JSON set out over lines, cut where it is longer than people read."""
    return shortened(show.pretty(text) if len(text) <= MOST_SHOWN else text)


def segment(text: str) -> str:
    """A name as part of a path."""
    return quote(text, safe="")


def is_id(text: object) -> bool:
    """Whether there can be a page for this job."""
    try:
        checked_id(text)
    except UsageError:
        return False
    return True


def is_schedule_id(text: object) -> bool:
    """Whether there can be a page for this schedule."""
    try:
        checked_schedule_id(text)
    except UsageError:
        return False
    return True


def _utc(ms: int) -> datetime | None:
    if not ms:
        return None
    try:
        return datetime.fromtimestamp(ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


FILTERS: Final = {
    "number": number,
    "iso": iso,
    "utc": utc,
    "clock": clock,
    "shortened": shortened,
    "pretty": pretty,
    "segment": segment,
    "span": show.span,
    "roundly": show.roundly,
    "apart": show.apart,
    "roughly": show.roughly,
    "clean": show.harmless,
    "brief": show.brief,
    "stored": show.stored,
    "count": show.count,
}
TESTS: Final = {"job_id": is_id, "schedule_id": is_schedule_id, "printable": str.isprintable}
