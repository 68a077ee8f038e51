"""What a running attempt reports: how far it has come (`progress`), and facts of its own (`meta`).

Handlers write as often as they like; a worker sends what has changed about twice a second. Both are JSON texts in the
job's hash. `progress` also names the attempt, so that nothing of an earlier attempt counts for a later one.
"""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from schedq.errors import UsageError
from schedq.model.payload import clean_text, decoded, encode, size_of

PROGRESS: Final = "progress"
"""The status of events about a report."""
MOST_NOTE: Final = 200
"""The most characters of a note; the rest is cut off."""
MOST_META: Final = 4096
"""The most bytes of an attempt's `meta`, as JSON."""
_LARGEST: Final = 1e100
_ANY_SIZE: Final = 2**62


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt has come.

    Attributes:
        done: how much is done, a finite number of at least 0.
        total: how much there is to do; None if that is unknown.
        note: a short text for people, or ''. It becomes one line of at most 200 characters.
        at_ms: when Redis got it, ms on Redis's clock; 0 before that.

    Raises:
        UsageError: a number or the note is invalid.
    """

    done: float
    total: float | None = None
    note: str = ""
    at_ms: int = 0

    def __post_init__(self) -> None:
        done, total, note = checked(self.done, self.total, self.note)
        object.__setattr__(self, "done", done)
        object.__setattr__(self, "total", total)
        object.__setattr__(self, "note", clean_note(note))

    @property
    def fraction(self) -> float | None:
        """The share that is done, 0 to 1; None if the total is unknown."""
        if self.total is None:
            return None
        return min(1.0, self.done / self.total) if self.total else 1.0


OnProgress = Callable[[Progress], object]
"""Called with each report of a job."""
Numbers = tuple[float, float | None, str]
"""`done`, `total` and `note`, checked; the note as it was given."""


def checked(done: object, total: object, note: object) -> Numbers:
    """Check what a handler reports.

    Raises:
        UsageError: a number is not finite or below 0, or the note is not text.
    """
    if not isinstance(note, str):
        raise UsageError(f"note must be text, got {note!r:.80}")
    return _number("done", done), None if total is None else _number("total", total), note


def _number(name: str, value: Any) -> float:
    number = value
    if type(value) is not int and type(value) is not float:
        number = -1 if isinstance(value, bool) else _of_other_type(value)
    if not 0 <= number <= _LARGEST:
        raise UsageError(f"{name} must be a finite number of at least 0, got {value!r:.80}")
    result: float = number
    return result


def _of_other_type(value: Any) -> float:
    """Convert a number of another library, such as NumPy's; -1 if it is not a number."""
    for special, read in (("__index__", operator.index), ("__float__", float)):
        with suppress(TypeError, ValueError, OverflowError):
            if hasattr(value, special):
                return read(value)
    return -1


def clean_note(text: str) -> str:
    """A note on one line, with control characters replaced, cut after `MOST_NOTE` characters."""
    return clean_text(" ".join(text[: 4 * MOST_NOTE].split()), MOST_NOTE)


def of_fields(fields: Mapping[str, str]) -> tuple[Progress | None, dict[str, Any]]:
    """Progress and meta in a job's hash, whichever program wrote it; (None, {}) if they are of another attempt.

    An older release, or another program, may have begun the present attempt without removing them.
    """
    found = decoded(fields.get("progress"))
    if not isinstance(found, dict) or str(found.get("attempt", "")) not in ("", fields.get("attempts", "0")):
        return None, {}
    meta = decoded(fields.get("meta"))
    return of_json(found), meta if isinstance(meta, dict) else {}


def of_earlier_attempt(fields: Mapping[str, str]) -> Progress | None:
    """The stored progress, whichever attempt reported it: it stays until the next attempt begins."""
    found = decoded(fields.get("progress"))
    return of_json(found) if isinstance(found, dict) else None


def of_json(found: Mapping[str, Any]) -> Progress | None:
    """The progress in a stored object or in an event; None if it has none."""
    at_ms = found.get("at_ms", 0)
    try:
        return Progress(
            found.get("done"),  # type: ignore[arg-type] # checked there
            found.get("total"),
            found.get("note", ""),
            at_ms if isinstance(at_ms, int) else 0,
        )
    except UsageError:
        return None


class ProgressReport(NamedTuple):
    """What an attempt reports, as `renew.lua` takes it.

    Attributes:
        job_id: the job.
        token: the attempt's claim token; with another one nothing is written.
        number: counts the reports of the attempt, so that a late one changes nothing; 0 counts always.
        progress: `done`, `total` and `note` as JSON without the braces; '' if only meta is reported.
        meta: JSON text, or '' to leave what is stored.
        values: what is sent.
    """

    job_id: str
    token: str
    number: int
    progress: str
    meta: str
    values: tuple[Numbers | None, str]

    @classmethod
    def of(cls, job_id: str, token: str, numbers: Numbers | None, meta: str = "", *, number: int = 0) -> ProgressReport:
        """Encode a report."""
        text = ""
        if numbers is not None:
            done, total, note = numbers
            said = {"done": done, "total": total, "note": clean_note(note)}
            text = encode({name: value for name, value in said.items() if value not in (None, "")}, _ANY_SIZE)[1:-1]
        return cls(job_id, token, number, text, meta, (numbers, meta))


class Reporter:
    """What one attempt has to report. Any thread may write; the worker's threads read.

    Args:
        job_id: the job.
        token: the attempt's claim token.
        changed: called after each change.
    """

    def __init__(self, job_id: str, token: str, changed: Callable[[], object]) -> None:
        self.job_id = job_id
        self.token = token
        self._changed = changed
        self._numbers: Numbers | None = None
        self._meta = ""
        self._lock = threading.Lock()  # so that of two updates of meta at once none is lost
        self._count = itertools.count(1)
        self._stored: tuple[Numbers | None, str] = (None, "")

    @property
    def progress(self) -> Progress | None:
        """What was reported last; None if nothing was."""
        numbers = self._numbers
        return None if numbers is None else Progress(*numbers)

    @property
    def meta(self) -> dict[str, Any]:
        """A copy of what was stored with `update_meta`."""
        return decoded(self._meta or None) or {}

    def set_progress(self, done: float, total: float | None, note: str) -> None:
        """Report progress; see `CurrentJob.progress`."""
        self._numbers = checked(done, total, note)
        self._changed()

    def update_meta(self, values: Mapping[str, Any]) -> None:
        """Add to meta; see `CurrentJob.update_meta`."""
        with self._lock:
            text = encode({**self.meta, **values}, _ANY_SIZE, "meta")
            if size_of(text) > MOST_META:
                raise UsageError(
                    f"meta is {size_of(text):,} bytes of JSON, more than {MOST_META:,}; "
                    "store the data elsewhere and keep a reference"
                )
            self._meta = text
        self._changed()

    @property
    def is_waiting(self) -> bool:
        """Whether there is something that Redis has not confirmed."""
        return (self._numbers, self._meta) != self._stored

    def report(self) -> ProgressReport:
        """What to send now."""
        # The number is taken first: a report with a greater number then never has older values.
        number = next(self._count)
        return ProgressReport.of(self.job_id, self.token, self._numbers, self._meta, number=number)

    def confirm(self, report: ProgressReport) -> None:
        """Redis has stored a report."""
        self._stored = report.values


class Reporters:
    """The attempts of one queue in one process that have reported something. Any thread may use it.

    Attributes:
        by_token: claim token of an attempt → its reporter.
        changed: set after each change; the thread that sends reports clears it.
    """

    def __init__(self) -> None:
        self.by_token: dict[str, Reporter] = {}
        self.changed = threading.Event()

    def add(self, job_id: str, token: str) -> Reporter:
        """The reporter of an attempt, which has something to report for the first time."""
        return self.by_token.setdefault(token, Reporter(job_id, token, self._tell))

    def waiting(self, tokens: Sequence[str] | None = None) -> list[ProgressReport]:
        """What is to be sent, of all attempts or of those with these tokens."""
        # In one step, which no other thread can interrupt.
        found = list(self.by_token.values()) if tokens is None else map(self.by_token.get, tokens)
        return [reporter.report() for reporter in found if reporter is not None and reporter.is_waiting]

    def confirm(self, reports: Sequence[ProgressReport], words: Sequence[str] | Exception) -> None:
        """Take in what Redis replied to reports; what it did not take stays to be sent."""
        for report, word in zip(reports, () if isinstance(words, Exception) else words, strict=False):
            if word == "LOST":
                self.forget(report.token)
            elif (reporter := self.by_token.get(report.token)) is not None:
                reporter.confirm(report)

    def forget(self, token: str) -> None:
        """The attempt has ended."""
        self.by_token.pop(token, None)

    def _tell(self) -> None:
        if not self.changed.is_set():
            self.changed.set()
