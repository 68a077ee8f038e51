"""A schedule's definition: when there are slots, what job each makes, and what becomes of those missed or overlapping.

It travels as the plain fields of the HASH `schedule:ID`. Two digests are kept beside them: `definition` of all of it,
by which a reader knows that what it remembers still stands, and `timing` of what decides when there are slots: as long
as that is the same, an upsert leaves the next slot alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, Literal, TypedDict, cast, get_args

from schedq import backoff as plans
from schedq import crontab
from schedq.crontab import Fold, Gap, Rhythm
from schedq.errors import UsageError
from schedq.instants import LAST_INSTANT_MS, LONGEST_MS, Duration, Instant, checked_timeout, duration_ms, instant_ms
from schedq.keys import checked_schedule_id
from schedq.settings import checked_attempts

CatchUp = Literal["latest", "all", "none"]
Overlap = Literal["allow", "skip", "queue_one", "cancel_running"]
ON_TIME_MS: Final = 60_000
"""How late a slot may be with catch_up="none" and no window: what a promoter that takes over needs, and some."""
SHORTEST_MS: Final = 1000
_TIMING: Final = ("cron", "every_ms", "tz", "gap", "fold", "start_ms", "end_ms")


class ScheduleOptions(TypedDict, total=False):
    """What may be said of a schedule beside when it has slots and what runs then.

    Keys:
        tz: name of a time zone, "Europe/Berlin" [UTC].
        gap: local times that a change of the clock leaves out: "next" (at the first minute after) or "skip" [next].
        fold: local times that come twice: "first", "second" or "both" [first].
        catch_up: missed slots: "latest" runs the last of them, "all" each, "none" none [latest].
        window: how late a slot may still run; seconds or a timedelta [without limit; 60 s with catch_up="none"].
        overlap: the last run has not ended: "allow" another, "skip" the slot, "queue_one": run once it has ended, or
            "cancel_running" [allow].
        jitter: each slot's job is due up to so much later, always the same for the same slot [0].
        start, end: the first and the last instant that may be a slot; intervals are counted from `start`.
        max_runs: it ends after so many.
        max_attempts, backoff, timeout: as of any job.
        owner: whose it is: only its owner's code reports it as missing, or prunes it.
        version: a lower one leaves the definition of a higher one alone [0].
    """

    tz: str
    gap: Gap
    fold: Fold
    catch_up: CatchUp
    window: Duration | None
    overlap: Overlap
    jitter: Duration
    start: Instant | None
    end: Instant | None
    max_runs: int | None
    max_attempts: int | None
    backoff: plans.Plan | None
    timeout: Duration | None
    owner: str
    version: int


@dataclass(frozen=True, slots=True)
class Definition:
    """One schedule, checked. Instants and durations in ms; 0 and '' where they do not apply.

    Attributes:
        payload: JSON text of each job's payload.
        window_ms: -1 for no limit.
        backoff: a plan as JSON text.
    """

    id: str
    payload: str
    cron: str = ""
    every_ms: int = 0
    tz: str = "UTC"
    gap: Gap = "next"
    fold: Fold = "first"
    catch_up: CatchUp = "latest"
    window_ms: int = -1
    overlap: Overlap = "allow"
    jitter_ms: int = 0
    start_ms: int = 0
    end_ms: int = 0
    max_runs: int = 0
    max_attempts: int = 0
    backoff: str = ""
    timeout_ms: int = 0
    owner: str = ""
    version: int = 0

    def next_after(self, instant_ms: int) -> int | None:
        """The first slot strictly after an instant, within start and end; None if there is none ever again."""
        slot = self.rhythm.next_after(max(instant_ms, self.start_ms - 1))
        return None if slot is None or 0 < self.end_ms < slot else slot

    def words(self) -> str:
        """When it has slots, in words."""
        return self.rhythm.words()

    @property
    def rhythm(self) -> Rhythm:
        """What says when there are slots.

        Raises:
            UsageError: it can't be meant.
        """
        if self.cron:
            own = self.id if "H" in self.cron.upper() else ""
            return _crontab(self.cron, self.tz, own, self.gap, self.fold)
        return _interval(self.every_ms, self.start_ms)

    @property
    def latest_ms(self) -> int:
        """How late a slot may still run; -1 for no limit."""
        return ON_TIME_MS if self.window_ms < 0 and self.catch_up == "none" else self.window_ms

    def due_ms(self, slot_ms: int) -> int:
        """When the job of a slot is due: jitter is drawn from id and slot, so that everybody draws the same."""
        if not self.jitter_ms:
            return slot_ms
        drawn = hashlib.sha256(f"{self.id} {slot_ms}".encode()).digest()[:8]
        return min(LAST_INSTANT_MS, slot_ms + int.from_bytes(drawn) % (self.jitter_ms + 1))

    def job_fields(self) -> tuple[str | int, ...]:
        """The options of its jobs, as a job's hash has them."""
        named = (("max_attempts", self.max_attempts), ("backoff", self.backoff), ("timeout_ms", self.timeout_ms))
        return tuple(word for pair in named if pair[1] for word in pair)

    def to_fields(self) -> dict[str, str | int]:
        """The fields that say something, digests among them."""
        said = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        kept = {name: value for name, value in said.items() if value not in ("", 0, -1) or (name, value) == _NEVER_LATE}
        return {**kept, "definition": _digest(said), "timing": self.timing}

    @property
    def digest(self) -> str:
        """A digest of all of it."""
        return _digest({entry.name: getattr(self, entry.name) for entry in fields(self)})

    @property
    def timing(self) -> str:
        """A digest of what decides when there are slots."""
        return _digest({name: getattr(self, name) for name in _TIMING})

    @classmethod
    def from_fields(cls, schedule_id: str, stored: Mapping[str, str]) -> Definition:
        """Read a schedule's hash.

        Raises:
            UsageError: something in it can't be meant; the message names the field.
        """
        given: dict[str, Any] = {"id": checked_schedule_id(schedule_id)}
        for entry in fields(cls):
            text = stored.get(entry.name)
            if text and entry.name != "id":
                given[entry.name] = _number(entry.name, text) if entry.type == "int" else text
        if "payload" not in given:
            raise UsageError("it has no payload")
        return _checked(cls(**given))


_NEVER_LATE: Final = ("window_ms", 0)
DEFINITION_FIELDS: Final = (*(entry.name for entry in fields(Definition) if entry.name != "id"), "definition", "timing")
"""All fields of the hash that an upsert may write or remove."""


def define(
    schedule_id: str,
    payload: str,
    *,
    cron: str | None = None,
    every: Duration | None = None,
    options: ScheduleOptions,
) -> Definition:
    """Check a schedule; `payload` is JSON text.

    Raises:
        UsageError: something in it can't be meant; the message names it.
    """
    if unknown := options.keys() - ScheduleOptions.__annotations__.keys():
        raise UsageError(f"schedule {schedule_id!r}: no such option: {', '.join(sorted(unknown))}")
    if (cron is None) == (every is None):
        raise UsageError(f"schedule {schedule_id!r} needs a cron expression or every=, one of the two")
    given = {name: value for name, value in options.items() if value is not None}
    window, backoff = given.get("window"), given.get("backoff")
    made = Definition(
        checked_schedule_id(schedule_id),
        payload,
        cron=_text("cron", cron or ""),
        every_ms=0 if every is None else duration_ms(every, "every"),
        tz=_text("tz", given.get("tz", "UTC")),
        gap=cast(Gap, given.get("gap", "next")),
        fold=cast(Fold, given.get("fold", "first")),
        catch_up=cast(CatchUp, given.get("catch_up", "latest")),
        window_ms=-1 if window is None else duration_ms(window, "window"),
        overlap=cast(Overlap, given.get("overlap", "allow")),
        jitter_ms=duration_ms(given.get("jitter", 0), "jitter"),
        start_ms=instant_ms(given["start"], "start") if "start" in given else 0,
        end_ms=instant_ms(given["end"], "end") if "end" in given else 0,
        max_runs=_whole("max_runs", given["max_runs"], 1) if "max_runs" in given else 0,
        max_attempts=checked_attempts(given["max_attempts"]) if "max_attempts" in given else 0,
        backoff="" if backoff is None else plans.to_text(plans.checked_plan(backoff)),
        timeout_ms=checked_timeout(given["timeout"]) if "timeout" in given else 0,
        owner=_text("owner", given.get("owner", "")),
        version=_whole("version", given.get("version", 0), 0),
    )
    if cron is not None and not made.cron.strip():
        raise UsageError(f"schedule {schedule_id!r}: an empty cron expression")
    return _checked(made)


def _checked(made: Definition) -> Definition:
    """The definition, if all of it can be meant.

    Raises:
        UsageError: it can't.
    """
    for name, known in (("catch_up", CatchUp), ("overlap", Overlap), ("gap", Gap), ("fold", Fold)):
        if getattr(made, name) not in get_args(known):
            raise UsageError(f"{name} must be one of {', '.join(get_args(known))}, got {getattr(made, name)!r:.60}")
    if not made.cron and made.every_ms < SHORTEST_MS:
        raise UsageError(f"every must be at least {SHORTEST_MS / 1000:g} s, got {made.every_ms / 1000:g} s")
    if made.cron and made.every_ms:
        raise UsageError("cron and every_ms are both given; one of the two says when")
    if made.end_ms and made.end_ms < made.start_ms:
        raise UsageError("end is before start")
    if made.jitter_ms > 86_400_000:
        raise UsageError("jitter must be at most a day")
    # Parsed: what can't be meant is refused here, also the time zone of an interval.
    _ = made.rhythm if made.cron else _crontab("* * * * *", made.tz, "", made.gap, made.fold)
    return made


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise UsageError(f"{name} must be a text of at most 200 characters, got {value!r:.60}")
    return value


def _whole(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**53:
        raise UsageError(f"{name} must be a whole number of at least {least}, got {value!r:.60}")
    return value


def _number(name: str, text: str) -> int:
    is_number = text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) <= 16
    number = int(text) if is_number else -2
    if number < (-1 if name == "window_ms" else 0) or (
        name.endswith("_ms") and number > max(LONGEST_MS, LAST_INSTANT_MS)
    ):
        raise UsageError(f"{name} is {text!r:.60}, which is no such number")
    return number


def _digest(said: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=20_000)
def _crontab(cron: str, tz: str, schedule_id: str, gap: Gap, fold: Fold) -> Rhythm:
    return crontab.parse(cron, tz=tz, schedule_id=schedule_id, gap=gap, fold=fold)


@lru_cache(maxsize=20_000)
def _interval(every_ms: int, anchor_ms: int) -> Rhythm:
    return crontab.every(timedelta(milliseconds=every_ms), anchor_ms=anchor_ms)
