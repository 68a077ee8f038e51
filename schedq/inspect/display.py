"""Texts for people, for tables, pages and sentences: payloads, counts, durations, local times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import Final

from schedq.model.escaping import harmless_lines as harmless_lines
from schedq.model.lifecycle import COMPLETED, PROCESSING
from schedq.model.payload import UnreadablePayload, decode
from schedq.model.progress import Progress
from schedq.model.records import JobRecord
from schedq.model.tasks import is_task_call
from schedq.model.times import LAST_INSTANT_MS, span

NOTHING: Final = "–"
_MOST_BRIEF: Final = 200


def brief(payload: object) -> str:
    """A short form of a payload: a task call as in Python, anything else as JSON."""
    if isinstance(payload, dict) and is_task_call(payload):
        args = [_compact(value) for value in payload.get("args", [])]
        args += [f"{name}={_compact(value)}" for name, value in payload.get("kwargs", {}).items()]
        return f"{payload['task']}({', '.join(args)})"[:_MOST_BRIEF]
    return _compact(payload)[:_MOST_BRIEF]


def stored(fields: Mapping[str, str], name: str) -> str:
    """A short form of a job's JSON field; the stored text if it is not JSON."""
    text = fields.get(name)
    if text is None:
        return NOTHING
    try:
        return brief(decode(text))
    except UnreadablePayload:
        return text[:_MOST_BRIEF]


def pretty(text: str) -> str:
    """Stored JSON text, indented; unchanged if it is not JSON."""
    try:
        return harmless_lines(json.dumps(decode(text), indent=2, ensure_ascii=False))
    except UnreadablePayload:
        return harmless_lines(text)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def count(number: int, noun: str) -> str:
    """`1 job`, `1,234 jobs`; an irregular plural follows a `=`: `entry=entries`."""
    one, _, more = noun.partition("=")
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def apart(ms: int, now_ms: int) -> str:
    """`in 4 min 5 s`, `4 min 5 s ago`."""
    if ms >= LAST_INSTANT_MS:
        return "never"
    if not ms:
        return NOTHING
    return f"in {span(ms - now_ms)}" if ms > now_ms else f"{span(now_ms - ms)} ago"


def roughly(ms: int, now_ms: int) -> str:
    """`in 4 min`, `4 min ago`; for tables."""
    if not ms or ms >= LAST_INSTANT_MS:
        return "never" if ms else NOTHING
    number, unit = span(abs(ms - now_ms)).split()[:2]
    return f"in {number} {unit}" if ms > now_ms else f"{number} {unit} ago"


def roundly(ms: int) -> str:
    """A duration in its largest unit: `10 min`; for headings."""
    return " ".join(span(ms).split()[:2])


def number(value: float | None) -> str:
    """`1,234`, `0.25`; a dash for None."""
    if value is None:
        return NOTHING
    if value >= 1e15:
        return f"{value:.3g}"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if value >= 1 else f"{value:.2f}"


def progress(found: Progress) -> str:
    """`3 of 10 (30 %), a note`; `3` without a total and a note."""
    share = "" if found.fraction is None else f" of {number(found.total)} ({percent(found.fraction)})"
    return f"{number(found.done)}{share}" + (f", {found.note}" if found.note else "")


def bar(found: Progress, width: int = 10) -> str:
    """`███░░░░░░░ 30 %`; the number without a bar if there is no total."""
    if found.fraction is None:
        return number(found.done)
    full = int(found.fraction * width)
    return f"{'█' * full}{'░' * (width - full)} {percent(found.fraction)}"


def error_title(record: JobRecord) -> str:
    """What to call a job's last error: an attempt that runs or has completed is not the one that failed."""
    return "error of an earlier attempt" if record.status in (PROCESSING, COMPLETED) else "last error"


def percent(fraction: float) -> str:
    """`30 %`; 100 only if all is done."""
    return f"{int(100 * fraction)} %"


def approximate(ms: float) -> str:
    """A duration in the largest unit that gives at least two: `90 min`, `2.5 s`; for findings."""
    seconds = ms / 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{ms:,.0f} ms" if ms < 2000 else f"{seconds:,.1f} s"


def clock(ms: int, now_ms: int) -> str:
    """A local time, with the date if it is not today; for tables."""
    local, today = instant(ms), instant(now_ms)
    if local is None or today is None:
        return NOTHING if not ms else "never"
    return f"{local:%H:%M:%S}" if local.date() == today.date() else f"{local:%Y-%m-%d %H:%M}"


def moment(ms: int, now_ms: int) -> str:
    """A full local time, and how far away it is."""
    local = instant(ms)
    if local is None:
        return NOTHING if not ms else "never"
    return f"{local:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} {local:%z} ({apart(ms, now_ms)})"


def instant(ms: int, zone: tzinfo | None = None) -> datetime | None:
    """An instant in a time zone, by default the local one; None for 0, and for the last one, which is never."""
    if not ms or ms >= LAST_INSTANT_MS:
        return None
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return None  # the last hours of the year 9999 are in 10000 here
