"""Schedules in words: what people type for one, its slots with their offsets, its policies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import click

from schedq.cli import show
from schedq.cli.queues import nearest
from schedq.crontab import Crontab
from schedq.errors import UsageError
from schedq.instants import LAST_INSTANT_MS
from schedq.keys import checked_schedule_id
from schedq.operations.timetable import ScheduleRecord, SlotRecord
from schedq.queue import Queue
from schedq.schedule import Definition

_MOST_COMPARED: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CATCH_UP: Final = {
    "latest": "the last of them runs, the others are coalesced into it",
    "all": "each runs",
    "none": "none runs",
}
_OVERLAP: Final = {
    "allow": "another run beside it",
    "skip": "the slot is skipped",
    "queue_one": "one run waits until it has ended",
    "cancel_running": "it is cancelled for the new one",
}


class _ScheduleId(click.ParamType[str]):
    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return checked_schedule_id(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


SCHEDULE_ID: Final = _ScheduleId()


def nothing_stored(schedule_id: str, queue: Queue) -> str:
    """Why nothing was done to a schedule that is not there, and which one may be meant."""
    there = [record.id for record in queue.schedules.list(0, _MOST_COMPARED)]
    return f"queue {queue.name} has no schedule {schedule_id}{nearest(schedule_id, there)}"


def local(slot_ms: int, zone: ZoneInfo) -> datetime:
    """A slot in a time zone; what is beyond the year 9999 there stays in UTC."""
    moment = _EPOCH + timedelta(milliseconds=min(slot_ms, LAST_INSTANT_MS))
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return moment


def slot_text(slot_ms: int, tz: str) -> str:
    """A slot on its schedule's clock with the offset from UTC; in UTC if that zone can't be had."""
    if not slot_ms:
        return show.NOTHING
    return _clock(local(slot_ms, zone_of(tz)))


def zone_of(tz: str) -> ZoneInfo:
    """The zone of this name, or UTC: a damaged schedule can be looked at, too."""
    try:
        return ZoneInfo(tz)
    except (ValueError, OSError, LookupError):
        return ZoneInfo("UTC")


def timing(record: ScheduleRecord) -> str:
    """The cron expression, or the interval in words."""
    return record.cron or record.words or (f"every {record.every_ms} ms" if record.every_ms else show.NOTHING)


def became(slot: SlotRecord) -> str:
    """The outcome of a slot in a few words."""
    return f"{slot.outcome}: {slot.why}" if slot.why else slot.outcome


def slot_row(slot: SlotRecord, tz: str) -> tuple[str, str, str, str]:
    """A slot of the past in a table: when, what became of it and of those up to the next row, its job, how late."""
    said = became(slot) + (f" into {slot_text(slot.into_ms, tz)}" if slot.into_ms else "")
    if slot.count > 1:
        said += f" ({slot.count:,} slots, to {slot_text(slot.to_ms, tz)})"
    late = show.span(slot.late_ms) if slot.late_ms > 0 else show.NOTHING
    return slot_text(slot.slot_ms, tz), said, slot.job_id or show.NOTHING, late


def policies(definition: Definition) -> list[tuple[str, str]]:
    """What a definition says beside when there are slots, as names and words."""
    made = definition
    rhythm = made.rhythm
    attempts = str(made.max_attempts) if made.max_attempts else ""
    return [
        ("clock changes", rhythm.words_on_changes() if isinstance(rhythm, Crontab) else ""),
        ("missed slots", f"{_CATCH_UP[made.catch_up]}{_window(made)}"),
        ("last run goes on", _OVERLAP[made.overlap]),
        ("jitter", f"up to {show.span(made.jitter_ms)}" if made.jitter_ms else ""),
        ("not before", slot_text(made.start_ms, made.tz) if made.start_ms else ""),
        ("not after", slot_text(made.end_ms, made.tz) if made.end_ms else ""),
        ("max attempts", attempts),
        ("backoff", made.backoff),
        ("timeout", show.span(made.timeout_ms) if made.timeout_ms else ""),
    ]


def _window(definition: Definition) -> str:
    if definition.latest_ms < 0:
        return ""
    return f"; if at most {show.span(definition.latest_ms)} late" if definition.latest_ms else "; if not late at all"


def _clock(moment: datetime) -> str:
    seconds = moment.strftime(":%S") if moment.second else ""
    return f"{moment:%Y-%m-%d %H:%M}{seconds} {moment.isoformat(timespec='seconds')[19:]}"
