"""Search the jobs of a state for those that match a filter, page by page.

A scan never skips a job that stays in its state the whole time, whatever else changes. It may return a job twice if
many others leave at once; callers that must not see a job twice have to remember the ids.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

from schedq.errors import UsageError
from schedq.inspect.stats import listed
from schedq.model.checks import checked_limit, whole_number
from schedq.model.headers import headers_of
from schedq.model.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, PENDING, PROCESSING
from schedq.model.payload import UnreadablePayload, decode, encode
from schedq.model.records import JobRecord
from schedq.model.settings import Settings
from schedq.model.tasks import is_task_call
from schedq.model.times import duration_ms
from schedq.transitions import Binding, Operation, RoundTrips, pairs, unwrap

_HELD: Final = "held"
"""The part of `pending` that is in a zset of its own, and comes first."""
_NO_LIMIT: Final = 1 << 62
STATES: Final = (PENDING, DELAYED, PROCESSING, COMPLETED, FAILED, CANCELLED)
"""The states that can be searched."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs a caller wants; an empty filter matches all.

    Attributes:
        task: the name of the task that the jobs call.
        older_ms: the least age: since the job was enqueued, started or ended, depending on the state.
        newer_ms: the greatest age. A job without that instant is neither older nor newer.
        text: text in the stored payload or in the last error; case-sensitive.
        error: text in the last error; case-sensitive.
        unique: the jobs' unique key.
        gate: the jobs' gate.
        key: their key there.
        header: NAME=VALUE of one of their headers, or text in the value of one.
        runs: only runs of workflows: jobs with a record of one, and those of these tasks, which may not have begun; for
            scans that read all fields.
    """

    task: str = ""
    older_ms: int | None = None
    newer_ms: int | None = None
    text: str = ""
    error: str = ""
    unique: str = ""
    gate: str = ""
    key: str = ""
    header: str = ""
    runs: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        task: object = None,
        older_than: object = None,
        newer_than: object = None,
        text: object = None,
        error: object = None,
        unique: object = None,
        gate: object = None,
        key: object = None,
        header: object = None,
    ) -> Filter:
        """Make a filter from a caller's arguments; ages are seconds or timedeltas.

        Raises:
            UsageError: an argument is invalid.
        """
        given = {"task": task, "text": text, "error": error, "unique": unique, "gate": gate, "key": key}
        texts = {what: value for what, value in (given | {"header": header}).items() if value is not None}
        for what, value in texts.items():
            if not isinstance(value, str) or not value:
                raise UsageError(f"{what} must be a text that is not empty, got {value!r}")
            if any("\ud800" <= letter <= "\udfff" for letter in value):
                raise UsageError(f"{what} has a lone surrogate, which is not valid text")
        if key is not None and gate is None:
            raise UsageError(f"key={key!r:.100} needs a gate: give gate= too")
        return cls(
            older_ms=None if older_than is None else duration_ms(older_than, "older_than"),
            newer_ms=None if newer_than is None else duration_ms(newer_than, "newer_than"),
            **cast("dict[str, Any]", texts),
        )

    @property
    def word(self) -> str:
        """The longest part of the task's name that every JSON encoder writes unescaped."""
        return _word(self.task)

    @property
    def words(self) -> dict[str, str]:
        """The texts that the script compares with, by its arguments; for `runs` a word of each task on its own line."""
        return {
            "word": self.word,
            "text": self.text,
            "error_text": self.error,
            "unique": self.unique,
            "of_gate": self.gate,
            "of_key": self.key,
            "header": self.header_part,
            "runs": "" if self.runs is None else "\n" + "\n".join(_word(task) or '"' for task in self.runs),
        }

    def says(self) -> str:
        """The filter in words, '' for none."""
        parts = (
            f"task {self.task}" if self.task else "",
            "" if self.older_ms is None else f"older than {self.older_ms / 1000:g} s",
            "" if self.newer_ms is None else f"newer than {self.newer_ms / 1000:g} s",
            f"text {self.text!r:.80}" if self.text else "",
            f"error {self.error!r:.80}" if self.error else "",
            f"unique key {self.unique!r:.80}" if self.unique else "",
            f"gate {self.gate:.80}" if self.gate else "",
            f"key {self.key!r:.80}" if self.key else "",
            f"header {self.header!r:.80}" if self.header else "",
        )
        return ", ".join(filter(None, parts))

    @property
    def header_part(self) -> str:
        """What the stored headers of every such job contain, as JSON has it."""
        name, is_named, value = self.header.partition("=")
        return encode(value, _NO_LIMIT) if name and is_named else encode(self.header, _NO_LIMIT)[1:-1]

    def accepts(self, fields: Sequence[str]) -> bool:
        """Whether a job's fields have the header and its payload calls the task, as far as the filter has them."""
        if not (self.task or self.header) and self.runs is None:
            return True
        job = pairs(fields)
        if self.header and not self._is_in(headers_of(job.get("headers"))):
            return False
        is_run = self.runs is None or "run" in job
        if is_run and not self.task:
            return True
        try:
            found = decode(job.get("payload", ""))
        except UnreadablePayload:
            return False
        return (
            is_task_call(found) and self.task in ("", found["task"]) and (is_run or found["task"] in (self.runs or ()))
        )

    def _is_in(self, headers: Mapping[str, str]) -> bool:
        name, is_named, value = self.header.partition("=")
        if name and is_named:
            return headers.get(name) == value
        return any(self.header in each for each in headers.values())


def _word(task: str) -> str:
    return max(re.findall(r"[A-Za-z0-9_]+", task), key=len, default="")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in a scan.

    Attributes:
        state: the state that is scanned, or `_HELD`.
        position: number of entries passed; in `delayed` the score of the last one looked at.
        there: ids at that position; in `delayed` the id of the last one looked at. Empty at the beginning.
    """

    state: str
    position: str = "0"
    there: tuple[str, ...] = ()

    @property
    def is_in_zset(self) -> bool:
        """Whether the entries are in a zset, and not in a list."""
        return self.state in (DELAYED, _HELD)

    def text(self) -> str:
        """The cursor as the text that callers pass back."""
        text = json.dumps([self.state, self.position, *self.there], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode(errors="surrogateescape")).decode().rstrip("=")

    @classmethod
    def of(cls, text: object, state: str) -> Cursor:
        """Read what `text` returned.

        Raises:
            UsageError: it is not a cursor of this state.
        """
        try:
            padded = str(text) + "=" * (-len(str(text)) % 4)
            named, position, *there = json.loads(base64.b64decode(padded, altchars="-_", validate=True))
            float(position)
        except (ValueError, TypeError) as error:
            raise UsageError(f"cursor {text!r:.60} was not returned by `find`") from error
        is_of_state = named == state or (named == _HELD and state == PENDING)
        is_placed = bool(there) or [named, position] == [_AFTER_HELD.state, _AFTER_HELD.position]
        if not is_of_state or not is_placed or not all(isinstance(part, str) for part in (position, *there)):
            raise UsageError(f"cursor {text!r:.60} is not for {state} jobs")
        return cls(str(named), position, tuple(there))


_AFTER_HELD: Final = Cursor(PENDING, "-0")
"""The beginning of the list of pending jobs, for a scan that has passed those that are held."""


def checked_state(state: object, states: Sequence[str] = STATES) -> str:
    """Return `state` if it is one of `states`.

    Raises:
        UsageError: it is not.
    """
    if not isinstance(state, str) or state not in states:
        raise UsageError(f"state must be one of {', '.join(states)}, got {state!r}")
    return state


_FIND: Final = Binding(
    "find",
    *("source", "order", "state", "position", "length", "most", "carry"),
    *("age_field", "least_age", "most_age", "word", "text", "error_text", "unique", "of_gate", "of_key"),
    *("header", "runs", "anchors"),
)
MOST_FOUND: Final = 150
"""The most jobs that one script returns."""
SCANNED_AT_ONCE: Final = 200
"""The most entries that one script looks at; of most it reads only a field or two."""
MOST_LOOKED: Final = 100_000
USUALLY_LOOKED: Final = 40_000
"""The default for the most jobs that one call looks at, so that it returns within a second."""
_WINDOW: Final = 2000
_MOST_RESTARTS: Final = 20
_AGES: Final = {
    PENDING: "enqueued_at_ms",
    DELAYED: "enqueued_at_ms",
    PROCESSING: "started_at_ms",
    COMPLETED: "completed_at_ms",
    FAILED: "last_error_at_ms",
    CANCELLED: "cancelled_at_ms",
}
"""The field from which the age of a job counts, by state."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of the jobs that match a filter.

    Attributes:
        jobs: the jobs.
        cursor: where the next page begins; None at the end. Even if `jobs` is short or empty, a cursor means that there
            is more to search.
        looked: how many jobs were looked at for this page.
        total: how many jobs are in this state, whether they match or not.
        now_ms: when the page was read, ms on Redis's clock.
    """

    jobs: tuple[JobRecord, ...]
    cursor: str | None
    looked: int
    total: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class ScanPage:
    """The result of one request of a scan.

    Attributes:
        is_moved: whether the entries that the cursor names are no longer there; then nothing was looked at.
        began: number of entries of a list before the first one looked at; 0 for a zset.
        ahead: where the next page begins; None at the end.
        is_held: whether its jobs are pending, but in a zset.
    """

    is_moved: bool
    began: int
    now_ms: int
    size: int
    looked: int
    ahead: Cursor | None
    found: tuple[tuple[str, str, tuple[str, ...]], ...]
    is_held: bool = False


def scan_page(
    queue: Settings, cursor: Cursor, wanted: Filter, *, is_newest_first: bool, length: int, most: int, carry: str
) -> Operation[ScanPage]:
    """Look at up to `length` entries from a cursor on, until `most` have matched.

    Args:
        queue: the queue.
        cursor: where to begin.
        wanted: the filter.
        is_newest_first: whether the scan of a list began at its newest end.
        length: the most entries to look at.
        most: the most matches to return.
        carry: what to return of each match: its "id", its "payload" or "all" its fields.
    """
    state = PENDING if cursor.state == _HELD else cursor.state
    return Operation(
        "find",
        *_FIND(
            queue,
            source=getattr(queue.keys, cursor.state),
            order="due" if cursor.is_in_zset else "newest" if is_newest_first else "oldest",
            state=state,
            position=cursor.position,
            length=length,
            most=most,
            carry="payload" if carry == "id" and (wanted.task or wanted.header) else carry,
            age_field=_AGES[state],
            least_age="" if wanted.older_ms is None else wanted.older_ms,
            most_age="" if wanted.newer_ms is None else wanted.newer_ms,
            **wanted.words,
            anchors=cursor.there,
        ),
        partial(_scan_page, cursor.state),
    )


def _scan_page(state: str, reply: list[Any]) -> ScanPage:
    word, now, size, looked, position, there = reply[:6]
    ahead = Cursor(state, str(position), tuple(there)) if there else None
    found = tuple((job_id, "" if state == _HELD else due, tuple(fields)) for job_id, due, fields in reply[6:])
    began = 0 if state in (DELAYED, _HELD) else int(position) - int(looked)
    return ScanPage(word == "MOVED", began, int(now), int(size), int(looked), ahead, found)


class Scanner:
    """A scan through the jobs of a state.

    Attributes:
        cursor: where it continues; None at the end.
        began: number of entries of a list before the last page.
        restarts: how often it started over because the entries at its cursor were gone.
        size: number of jobs in the state at the last request.
        now_ms: when that was, ms on Redis's clock.
    """

    def __init__(self, queue: Settings, wanted: Filter, cursor: Cursor, *, is_newest_first: bool, carry: str) -> None:
        self.cursor: Cursor | None = cursor
        self.began = self.size = self.now_ms = 0
        self._queue = queue
        self._wanted = wanted
        self._is_newest_first = is_newest_first
        self._carry = carry
        self.restarts = 0
        self._begins_with_held = cursor == Cursor(PENDING)

    def scan(self, length: int, most: int) -> RoundTrips[tuple[int, list[tuple[str, str, tuple[str, ...]]]]]:
        """Read the next page; returns how many entries it has, and the matches: id, due instant or '', fields."""
        while self.cursor is not None:
            cursor, page = self.cursor, (yield from self._page(length, most))
            self.now_ms = page.now_ms
            if page.is_moved:  # continue once the cursor's entries are found
                self.cursor = yield from self._relocated(cursor, page.size)
                continue
            self.cursor, self.began = page.ahead, page.began
            if page.ahead is None and page.is_held and self.size > page.size:
                self.cursor = _AFTER_HELD
            return page.looked, [match for match in page.found if self._wanted.accepts(match[2])]
        return 0, []

    def _page(self, length: int, most: int) -> RoundTrips[ScanPage]:
        """The page at the cursor. Of pending jobs those that are held come first, if there are any."""
        make = partial(
            scan_page,
            self._queue,
            wanted=self._wanted,
            is_newest_first=self._is_newest_first,
            length=length,
            most=most,
            carry=self._carry,
        )
        assert self.cursor is not None
        held = Cursor(_HELD) if self._begins_with_held else self.cursor
        if held.state != _HELD:
            counts = self.cursor.state == PENDING
            count = Operation("find", None, (), ("ZCARD", self._queue.keys.held), int)
            reply, *more = yield [make(cursor=self.cursor), *([count] if counts else ())]
            page: ScanPage = unwrap(reply)
            self.size = page.size + sum(unwrap(each) for each in more)
            return page
        replies = yield [make(cursor=held), make(cursor=_AFTER_HELD)]
        page, rest = (unwrap(reply) for reply in replies)
        self._begins_with_held = False
        self.size = page.size + rest.size
        return replace(page, is_held=True) if page.size else rest

    def shift(self, gone: int) -> None:
        """Account for `gone` jobs before the cursor that have left their list."""
        if self.cursor is not None and not self.cursor.is_in_zset and gone:
            self.cursor = replace(self.cursor, position=str(max(0, int(self.cursor.position) - gone)))

    def _relocated(self, cursor: Cursor, size: int) -> RoundTrips[Cursor]:
        """The cursor at the current position of its entries; at the beginning if they are gone."""
        expected = int(float(cursor.position))
        position = yield from self.position_of(cursor.there, size, expected)
        if position is not None:
            return replace(cursor, position=str(position))
        self.restarts += 1
        if self.restarts > _MOST_RESTARTS:
            return Cursor(cursor.state, str(min(expected, size)))  # the list changes too fast to follow
        return Cursor(cursor.state)

    def position_of(self, job_ids: Sequence[str], size: int, expected: int = 0) -> RoundTrips[int | None]:
        """How many entries of a list come before the first of these jobs found; None if none is in the list."""
        assert self.cursor is not None
        key = getattr(self._queue.keys, self.cursor.state)
        for first in _windows(expected, size):
            (reply,) = yield [Operation("find", None, (), ("LRANGE", key, *self._span(first)), list)]
            ids = unwrap(reply) if self._is_newest_first else unwrap(reply)[::-1]
            places: dict[str, int] = {job_id: first + number for number, job_id in reversed([*enumerate(ids)])}
            for job_id in job_ids:
                if job_id in places:
                    return places[job_id]
        return None

    def _span(self, first: int) -> tuple[int, int]:
        return (first, first + _WINDOW - 1) if self._is_newest_first else (-first - _WINDOW, -first - 1)


def _windows(expected: int, size: int) -> Iterator[int]:
    """Start positions of windows over a list: first where an entry is likely, then before that, then after it."""
    first = max(0, expected - _WINDOW // 2)
    yield first
    yield from (max(0, before) for before in range(first - _WINDOW, -_WINDOW, -_WINDOW))
    yield from range(first + _WINDOW, size, _WINDOW)


def find(
    queue: Settings, state: str, wanted: Filter, limit: int, cursor: str | None, look: int = USUALLY_LOOKED
) -> RoundTrips[JobPage]:
    """Jobs of a state that match. Waiting jobs come in the order in which they run, all others newest first.

    Raises:
        UsageError: no such state, `limit` is not 1 to 1000, `look` is not 1 to 100,000, or the cursor is invalid.
    """
    checked_limit(limit)
    whole_number("look", look, 1, MOST_LOOKED)
    start = Cursor(checked_state(state)) if cursor is None else Cursor.of(cursor, state)
    scanner = Scanner(queue, wanted, start, is_newest_first=state != PENDING, carry="all")
    jobs: dict[str, JobRecord] = {}
    looked = 0
    while scanner.cursor is not None and len(jobs) < limit and looked < look:
        some, found = yield from scanner.scan(min(SCANNED_AT_ONCE, look - looked), min(MOST_FOUND, limit - len(jobs)))
        looked += some
        jobs |= {job_id: listed(job_id, due, fields) for job_id, due, fields in found}
    ahead = None if scanner.cursor is None else scanner.cursor.text()
    return JobPage(tuple(jobs.values()), ahead, looked, scanner.size, scanner.now_ms)
