"""Which job holds a unique key, and what that means for the next call, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from schedq.inspect.snapshot import JobSnapshot
from schedq.model.expiry import expires_at_ms
from schedq.model.lifecycle import DELAYED, PENDING, PROCESSING
from schedq.model.settings import Settings
from schedq.model.times import span
from schedq.transitions import Operation

_RULE: Final = re.compile(r"(done|start) (\d{1,15}) ([a-z]+)(?: (\d{1,15}))?(?: (\d{1,15}))?")
_ENTRY: Final = re.compile(r"(\d{1,15}) ([\w-]{1,64})", re.ASCII)


class IndexEntry(NamedTuple):
    """What `unique_keys` says of a key.

    Attributes:
        window_ends_ms: until when the key is held whatever happens to the job; 0 for no such time.
        job_id: the job whose record may hold the key.
    """

    window_ends_ms: int
    job_id: str


@dataclass(frozen=True, slots=True)
class StoredRule:
    """The rule of a unique job, as its record has it; a damaged one counts as the default, as in the scripts.

    Attributes:
        lasts: "done" or "start": what ends the hold on the key.
        per_ms: how long the key is held after the enqueue in any case.
        conflict: "keep", "replace", "raise" or "debounce".
        wait_ms: how long after the last call a debounced job is due.
        most_wait_ms: the same after the first call, at the latest; None for no limit.
    """

    lasts: str = "done"
    per_ms: int = 0
    conflict: str = "keep"
    wait_ms: int = 0
    most_wait_ms: int | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        """Read the field `unique_rule`."""
        found = _RULE.fullmatch(text)
        if found is None:
            return cls()
        lasts, per, conflict, wait, most = found.groups()
        return cls(lasts, int(per), conflict, int(wait or 0), int(most) if most else None)

    def words(self) -> str:
        """How long the key is held, and what another call with it does."""
        lasts = "until it has ended" if self.lasts == "done" else "until it begins"
        per = f", and for {span(self.per_ms)} after its enqueue in any case" if self.per_ms else ""
        return f"held {lasts}{per}; {self._conflict()}"

    def _conflict(self) -> str:
        if self.conflict == "debounce":
            most = (
                "" if self.most_wait_ms is None else f", at the latest {span(self.most_wait_ms)} after the first call"
            )
            return f"each call replaces its arguments, and makes it due {span(self.wait_ms)} later{most}"
        if self.conflict == "replace":
            return "another call replaces its arguments, unless it has begun"
        return "another call is refused" if self.conflict == "raise" else "another call returns this job"


def read_entry(queue: Settings, key: str) -> Operation[IndexEntry | None]:
    """Read what the index says of a key."""

    def read(text: object) -> IndexEntry | None:
        found = _ENTRY.fullmatch(text) if isinstance(text, str) else None
        return None if found is None else IndexEntry(int(found[1]), found[2])

    return Operation("why", None, (), ("HGET", queue.keys.unique_keys, key), read)


def hold(seen: JobSnapshot, key: str, entry: IndexEntry) -> tuple[str, dict[str, Any]]:
    """In which way a job holds a key, as a clause, and the facts behind it; ('', {}) if it does not.

    Args:
        seen: the job, which may be gone.
        key: the key.
        entry: what the index says of it.
    """
    if entry.job_id != seen.id:
        return "", {}
    fields = seen.record.fields
    is_its_own = fields.get("unique") == key and "tombstone" not in fields
    rule = StoredRule.of(fields.get("unique_rule", "")) if is_its_own else StoredRule()
    left = entry.window_ends_ms - seen.now_ms
    is_window = 0 < left <= (rule.per_ms if is_its_own else left)
    facts = {"unique": key, **({"window_ends_at_ms": entry.window_ends_ms} if is_window else {})}
    if is_its_own and _holds(seen, rule):
        text, more = _next_call(seen, rule)
        return f"it holds the unique key {key!r:.220}: {text}", facts | more
    return (f"its unique key {key!r:.220} is held for another {span(left)}", facts) if is_window else ("", {})


def _holds(seen: JobSnapshot, rule: StoredRule) -> bool:
    """Whether the state of a job holds its key, as `unique.lua` decides it for a call with the same rule."""
    if seen.place == PROCESSING:
        return rule.lasts == "done"
    expires = expires_at_ms(seen.record.fields)
    has_expired = bool(expires) and expires <= seen.now_ms
    has_begun = rule.lasts == "start" and bool(seen.record.started_at_ms)
    return seen.place in (PENDING, DELAYED) and not has_expired and not has_begun


def _next_call(seen: JobSnapshot, rule: StoredRule) -> tuple[str, dict[str, Any]]:
    """What the next call with the key of this job does, and facts."""
    if rule.conflict == "raise":
        return "another call with it is refused", {}
    if rule.conflict not in ("replace", "debounce") or seen.record.started_at_ms:
        return "another call with it returns this job", {}
    if rule.conflict == "replace" or seen.place != DELAYED:
        return "another call with it replaces the job's arguments", {}
    text = f"each call with it makes the job due {span(rule.wait_ms)} after the call"
    if rule.most_wait_ms is None:
        return text, {}
    latest_ms = seen.record.enqueued_at_ms + rule.most_wait_ms
    return f"{text}, at the latest in {span(max(0, latest_ms - seen.now_ms))}", {"latest_at_ms": latest_ms}
