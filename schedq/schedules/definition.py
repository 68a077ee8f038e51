"""A schedule's definition: when it has slots, which job to enqueue, and what to do about missed or overlapping slots.

It is stored as plain fields of the HASH `schedule:ID`, next to two digests: `definition` of all fields, which shows
whether a cached copy is current, and `timing` of the fields that determine the slots. An upsert keeps the next slot
while `timing` is the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, get_args

from schedq.errors import UsageError
from schedq.model import backoff as plans
from schedq.model.checks import whole_number
from schedq.model.expiry import is_stored_expiry, put_off, relative_expiry
from schedq.model.headers import is_stored_headers, stored_headers
from schedq.model.keys import checked_schedule_id
from schedq.model.settings import checked_attempts
from schedq.model.times import LAST_INSTANT_MS, LONGEST_MS, Duration, Instant, checked_timeout, duration_ms, instant_ms
from schedq.schedules.crontab.crontab import Crontab, Fold, Gap, parse
from schedq.schedules.crontab.zones import offsets_of

if TYPE_CHECKING:  # imported for the first schedule whose jobs have a gate
    from schedq.model.gates import Gate

CatchUp = Literal["latest", "all", "none"]
Overlap = Literal["allow", "skip", "queue_one", "cancel_running"]
ON_TIME_MS: Final = 60_000
"""How late a slot may run with catch_up="none" and no window: enough for another promoter to take over."""
SHORTEST_MS: Final = 1000
_TIMING: Final = ("cron", "every_ms", "tz", "gap", "fold", "start_ms", "end_ms")
_LATER: Final = ("expires", "headers", "completed_ttl_ms", "failed_ttl_ms", "gate", "key")
"""Fields that did not exist in the first release."""


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule, besides its timing and its job.

    Keys:
        tz: name of a time zone, "Europe/Berlin" [UTC].
        gap: local times that a clock change skips: "next" (run at the first minute after) or "skip" [next].
        fold: local times that occur twice: "first", "second" or "both" [first].
        catch_up: missed slots: "latest" runs the last of them, "all" each, "none" none [latest].
        window: how late a slot may still run; seconds or a timedelta [no limit; 60 s with catch_up="none"].
        overlap: what to do if the last run has not ended: "allow" another run, "skip" the slot, "queue_one" to run it
            once the last run has ended, or "cancel_running" [allow].
        jitter: the greatest delay of a slot's job; always the same for the same slot [0].
        start, end: the first and last instant of slots; intervals count from `start`.
        max_runs: the schedule ends after this many runs.
        max_attempts, backoff, timeout: options of its jobs.
        expires: how long after it is due a job may begin; seconds or a timedelta. Then it is cancelled.
        headers: texts by name that go with each of its jobs.
        completed_ttl, failed_ttl: how long records of its finished jobs are kept; seconds or a timedelta.
        gate, key: the gate of its jobs, and their key in it; by default those of its task.
        owner: only code of this owner reports the schedule as missing, or prunes it.
        version: a lower version does not replace the definition of a higher one [0].
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
    expires: Duration | None
    headers: Mapping[str, str] | None
    completed_ttl: Duration | None
    failed_ttl: Duration | None
    gate: Gate | str | None
    key: str | int | None
    owner: str
    version: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A slot every `every_ms`, aligned to `anchor_ms`, in real time: clock changes do not matter.

    Attributes:
        every_ms: the time between two slots.
        anchor_ms: one of the slots; there are earlier ones too.
    """

    every_ms: int
    anchor_ms: int = 0

    def next_after(self, instant_ms: int) -> int:
        """The first slot after the instant."""
        return instant_ms + self.every_ms - (instant_ms - self.anchor_ms) % self.every_ms

    def between(self, after_ms: int, until_ms: int) -> Iterator[int]:
        """The slots after `after_ms` up to and including `until_ms`."""
        return iter(range(self.next_after(after_ms), until_ms + 1, self.every_ms))

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many slots `between` yields."""
        return len(range(self.next_after(after_ms), until_ms + 1, self.every_ms))

    @property
    def key(self) -> tuple[object, ...]:
        """What determines the slots."""
        return self.every_ms, self.anchor_ms % self.every_ms

    def describe(self) -> str:
        """The recurrence in words: `every 1 h 30 min`."""
        parts, rest = [], self.every_ms
        for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)):
            number, rest = divmod(rest, unit_ms)
            if number:
                parts.append(f"{number} {unit}")
        return f"every {' '.join(parts)}"


Recurrence = Crontab | Interval


@dataclass(frozen=True, slots=True)
class Definition:
    """One validated schedule. Instants and durations are in ms; 0 and '' where they do not apply.

    Attributes:
        payload: JSON text of each job's payload.
        window_ms: -1 for no limit.
        backoff: a plan as JSON text.
        expires: as `model.expiry` stores it.
        headers: as `model.headers` stores them.
        completed_ttl_ms, failed_ttl_ms: digits, because 0 is a value.
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
    expires: str = ""
    headers: str = ""
    completed_ttl_ms: str = ""
    failed_ttl_ms: str = ""
    gate: str = ""
    key: str = ""

    def next_after(self, instant_ms: int) -> int | None:
        """The first slot after an instant, between start and end; None if there is none."""
        slot = self.recurrence.next_after(max(instant_ms, self.start_ms - 1))
        return None if slot is None or 0 < self.end_ms < slot else slot

    def describe(self) -> str:
        """The timing in words."""
        return self.recurrence.describe()

    @property
    def recurrence(self) -> Recurrence:
        """The rule for its slots.

        Raises:
            UsageError: the expression or interval is invalid.
        """
        if self.cron:
            own = self.id if "H" in self.cron.upper() else ""
            return _parse(self.cron, tz=self.tz, schedule_id=own, gap=self.gap, fold=self.fold)
        return Interval(self.every_ms, self.start_ms)

    @property
    def latest_ms(self) -> int:
        """How late a slot may still run; -1 for no limit."""
        return ON_TIME_MS if self.window_ms < 0 and self.catch_up == "none" else self.window_ms

    def due_ms(self, slot_ms: int) -> int:
        """When a slot's job is due; the jitter is computed from id and slot, so it is always the same."""
        if not self.jitter_ms:
            return slot_ms
        drawn = hashlib.sha256(f"{self.id} {slot_ms}".encode()).digest()[:8]
        return min(LAST_INSTANT_MS, slot_ms + int.from_bytes(drawn) % (self.jitter_ms + 1))

    def job_fields(self, delay_ms: int) -> tuple[str | int, ...]:
        """The options of a job that is due after `delay_ms`, as fields of its hash."""
        named = (
            ("max_attempts", self.max_attempts),
            ("backoff", self.backoff),
            ("timeout_ms", self.timeout_ms),
            *((name, getattr(self, name)) for name in _LATER if name != "expires"),
            ("expires", self.expires and put_off(self.expires, delay_ms)),
        )
        return tuple(word for pair in named if pair[1] for word in pair)

    def to_fields(self) -> dict[str, str | int]:
        """The fields to store, without defaults, with both digests."""
        named = asdict(self).items()
        kept = {name: value for name, value in named if value not in ("", 0, -1) or (name, value) == _NEVER_LATE}
        return {**kept, "definition": self.digest, "timing": self.timing}

    @property
    def digest(self) -> str:
        """A digest of all fields."""
        # Without empty fields of `_LATER`, so that a definition keeps the digest that it had before they existed.
        return _digest({name: value for name, value in asdict(self).items() if value or name not in _LATER})

    @property
    def timing(self) -> str:
        """A digest of the fields that determine the slots."""
        return _digest({name: getattr(self, name) for name in _TIMING})

    @classmethod
    def from_fields(cls, schedule_id: str, stored: Mapping[str, str]) -> Definition:
        """Read a schedule's hash.

        Raises:
            UsageError: a field is invalid; the message names it.
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
"""All fields of the hash that an upsert writes or removes."""


def define(
    schedule_id: str,
    payload: str,
    *,
    cron: str | None = None,
    every: Duration | None = None,
    options: ScheduleOptions,
) -> Definition:
    """Validate a schedule; `payload` is JSON text.

    Raises:
        UsageError: an option is invalid; the message names it.
    """
    if unknown := options.keys() - ScheduleOptions.__annotations__.keys():
        raise UsageError(f"schedule {schedule_id!r}: no such option: {', '.join(sorted(unknown))}")
    if (cron is None) == (every is None):
        raise UsageError(f"schedule {schedule_id!r} needs either a cron expression or every=")
    given = {name: value for name, value in options.items() if value is not None}
    made = Definition(
        checked_schedule_id(schedule_id),
        payload,
        cron=_text("cron", cron or ""),
        every_ms=0 if every is None else duration_ms(every, "every"),
        **{field: read(given[name]) for name, (field, read) in _OPTIONS.items() if name in given},
    )
    if cron is not None and not made.cron.strip():
        raise UsageError(f"schedule {schedule_id!r}: an empty cron expression")
    return _checked(made)


def redefined(
    old: Definition,
    payload: str | None = None,
    *,
    cron: str | None = None,
    every: Duration | None = None,
    options: ScheduleOptions,
) -> Definition:
    """Return a definition with some changes. An option that is None returns to its default.

    Raises:
        UsageError: an option is invalid; the message names it.
    """
    given: dict[str, Any] = {**options}
    usual: dict[str, Any] = {entry.name: entry.default for entry in fields(Definition)}
    changes = {
        field: usual[field] if given[name] is None else read(given[name])
        for name, (field, read) in _OPTIONS.items()
        if name in given
    }
    if unknown := given.keys() - _OPTIONS.keys():
        raise UsageError(f"schedule {old.id!r}: no such option: {', '.join(sorted(unknown))}")
    if cron is not None and every is not None:
        raise UsageError(f"schedule {old.id!r} has either a cron expression or every=, not both")
    if cron is not None:
        changes |= {"cron": _text("cron", cron), "every_ms": 0}
    elif every is not None:
        changes |= {"cron": "", "every_ms": duration_ms(every, "every")}
    if payload is not None:
        changes["payload"] = payload
    return _checked(replace(old, **changes))


def _checked(made: Definition) -> Definition:
    """Return the definition if its fields are valid and consistent.

    Raises:
        UsageError: they are not.
    """
    for name, known in (("catch_up", CatchUp), ("overlap", Overlap), ("gap", Gap), ("fold", Fold)):
        if getattr(made, name) not in get_args(known):
            raise UsageError(f"{name} must be one of {', '.join(get_args(known))}, got {getattr(made, name)!r:.60}")
    if not made.cron and made.every_ms < SHORTEST_MS:
        raise UsageError(f"every must be at least {SHORTEST_MS / 1000:g} s, got {made.every_ms / 1000:g} s")
    if made.cron and made.every_ms:
        raise UsageError("cron and every_ms can't both be given")
    if made.end_ms and made.end_ms < made.start_ms:
        raise UsageError("end is before start")
    if made.jitter_ms > 86_400_000:
        raise UsageError("jitter must be at most a day")
    # Refuses an invalid expression, and an unknown time zone even for an interval, which does not use it.
    offsets_of(made.tz)
    if made.expires and not (made.expires.startswith("+") and is_stored_expiry(made.expires)):
        raise UsageError(f"expires is {made.expires!r:.60}, which is not a valid duration")
    if made.headers and not is_stored_headers(made.headers):
        raise UsageError(f"headers are {made.headers!r:.60}, which is not a valid JSON object of texts")
    for name in ("completed_ttl_ms", "failed_ttl_ms"):
        if text := getattr(made, name):
            _number(name, text)
    if made.gate or made.key:
        from schedq.model.gates import stored_gate

        stored_gate({}, made.gate or None, made.key)
    _ = made.recurrence
    return made


def _key(value: object) -> str:
    from schedq.model.gates import checked_key

    return checked_key(value)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise UsageError(f"{name} must be a text of at most 200 characters, got {value!r:.60}")
    return value


_OPTIONS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "tz": ("tz", lambda value: _text("tz", value)),
    "gap": ("gap", lambda value: value),
    "fold": ("fold", lambda value: value),
    "catch_up": ("catch_up", lambda value: value),
    "window": ("window_ms", lambda value: duration_ms(value, "window")),
    "overlap": ("overlap", lambda value: value),
    "jitter": ("jitter_ms", lambda value: duration_ms(value, "jitter")),
    "start": ("start_ms", lambda value: instant_ms(value, "start")),
    "end": ("end_ms", lambda value: instant_ms(value, "end")),
    "max_runs": ("max_runs", lambda value: whole_number("max_runs", value, 1)),
    "max_attempts": ("max_attempts", checked_attempts),
    "backoff": ("backoff", lambda value: plans.to_text(plans.checked_plan(value))),
    "timeout": ("timeout_ms", checked_timeout),
    "expires": ("expires", relative_expiry),
    "headers": ("headers", stored_headers),
    "completed_ttl": ("completed_ttl_ms", lambda value: str(duration_ms(value, "completed_ttl"))),
    "failed_ttl": ("failed_ttl_ms", lambda value: str(duration_ms(value, "failed_ttl"))),
    "gate": ("gate", lambda value: getattr(value, "name", value)),
    "key": ("key", _key),
    "owner": ("owner", lambda value: _text("owner", value)),
    "version": ("version", lambda value: whole_number("version", value, 0)),
}
"""Option → the field of `Definition` that it sets, and the function that checks its value."""


def _number(name: str, text: str) -> int:
    is_number = text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) <= 16
    number = int(text) if is_number else -2
    if number < (-1 if name == "window_ms" else 0) or (
        name.endswith("_ms") and number > max(LONGEST_MS, LAST_INSTANT_MS)
    ):
        raise UsageError(f"{name} is {text!r:.60}, which is not a valid number")
    return number


def _digest(values: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


_parse = lru_cache(maxsize=20_000)(parse)
