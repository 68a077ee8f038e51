"""Which findings have appeared or gone since the last examination, and which notices about them are still to be sent.

A notice is kept until it has been delivered, so a receiver gets each at least once. There is at most one a minute about
the same finding: of a finding that comes and goes more often, the receiver gets the state at the end of that minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from schedq.doctor.checks import Finding
from schedq.doctor.examination import REFUSES, UNREACHABLE, Report
from schedq.model.ids import new_request

APPEARED: Final = "appeared"
GONE: Final = "gone"
APART_S: Final = 60.0
"""Seconds between two notices about the same finding."""
_FIRST_WAIT_S: Final = 5.0
_LONGEST_WAIT_S: Final = 300.0
_WITHOUT_SERVER: Final = frozenset({UNREACHABLE.code, REFUSES.code})
"""Findings that end an examination early: what else there is, is then unknown."""

Key = tuple[str, str, str]
"""Code, queue, and what else the finding is about."""


@dataclass(slots=True)
class Notice:
    """One message about a finding, until it is delivered.

    Attributes:
        content: what is sent, as JSON; its `id` is the same in every try.
        tries: how often sending it has failed.
        next_s: when to try it again, seconds since the epoch.
    """

    content: dict[str, Any]
    tries: int = 0
    next_s: float = 0.0

    @property
    def words(self) -> str:
        """What it is about, for a line of a log."""
        found = self.content
        about = " ".join(filter(None, (found["queue"] and f"of queue {found['queue']}", found["about"])))
        return f"{found['code']}{about and f' {about}'} {found['state']}"


@dataclass(slots=True)
class TrackedFinding:
    """What is known of one finding; instants are seconds since the epoch.

    Attributes:
        finding: as it was last seen.
        is_present: the last whole examination found it.
        is_reported: the last notice that was delivered says that it appeared.
        since_s: when it appeared.
        until_s: when it had gone; 0 while it is there.
        sent_s: when the last notice was delivered; 0 before the first.
        notice: the notice that is to be delivered next, if there is one.
    """

    finding: Finding
    is_present: bool = False
    is_reported: bool = False
    since_s: float = 0.0
    until_s: float = 0.0
    sent_s: float = 0.0
    notice: Notice | None = None


@dataclass(slots=True)
class WatchState:
    """Everything that has to survive a restart.

    Attributes:
        version: of this format.
        findings: those that are there, and those about which a notice is to be sent or was sent a moment ago.
    """

    version: int = 1
    findings: list[TrackedFinding] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: bytes) -> WatchState:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is something else.
        """
        found = msgspec.json.decode(data, type=cls)
        if found.version != cls().version:
            raise ValueError(f"version {found.version} of the format is unknown")
        return found

    def to_json(self) -> bytes:
        """The state as one line of JSON."""
        return msgspec.json.encode(self) + b"\n"


class Watch:
    """Compares each examination with what was reported, and keeps the notices until they are delivered.

    Args:
        state: what was known before.
        levels: the levels of findings that are of interest.
        ignored: codes of findings that are not.
    """

    def __init__(self, state: WatchState, levels: Iterable[str], ignored: Iterable[str] = ()) -> None:
        self._levels = frozenset(levels)
        self._ignored = frozenset(ignored)
        self._tracked: dict[Key, TrackedFinding] = {_key(it.finding): it for it in state.findings}
        self.has_changed = False
        """Whether there is something new in `state` since this was last set to False."""

    @property
    def state(self) -> WatchState:
        """What must be stored."""
        return WatchState(findings=list(self._tracked.values()))

    def look(self, report: Report, now_s: float) -> None:
        """Take the result of an examination into account, and prepare notices about what has changed."""
        found = {_key(finding): finding for finding in report.findings if self._is_wanted(finding)}
        for key, finding in found.items():
            tracked = self._tracked.setdefault(key, TrackedFinding(finding))
            tracked.finding = finding
            if not tracked.is_present:
                tracked.is_present, tracked.since_s, tracked.until_s = True, now_s, 0.0
                self.has_changed = True
        if not any(finding.code in _WITHOUT_SERVER for finding in report.findings):
            self._miss(found, now_s)
        for key, tracked in list(self._tracked.items()):
            self._plan(tracked, report.redis, now_s)
            if _is_over(tracked, now_s):
                del self._tracked[key]
                self.has_changed = True

    def due(self, now_s: float) -> list[TrackedFinding]:
        """The findings with a notice that is to be sent now, the one that has waited longest first."""
        waiting = [(it.notice.next_s, it) for it in self._tracked.values() if it.notice is not None]
        # One that waits for longer than any pause was planned before the clock went back.
        due = [(next_s, it) for next_s, it in waiting if next_s <= now_s or next_s > now_s + _LONGEST_WAIT_S]
        return [it for _, it in sorted(due, key=lambda each: each[0])]

    def next_s(self) -> float | None:
        """When the next notice is to be sent, seconds since the epoch; None if there is none."""
        return min((it.notice.next_s for it in self._tracked.values() if it.notice), default=None)

    def note_delivery(self, tracked: TrackedFinding, now_s: float) -> None:
        """Its notice was delivered."""
        assert tracked.notice is not None
        tracked.is_reported = tracked.notice.content["state"] == APPEARED
        tracked.sent_s, tracked.notice = now_s, None
        self.has_changed = True

    def note_failure(self, tracked: TrackedFinding, now_s: float) -> float:
        """Its notice could not be delivered; returns after how many seconds to try again."""
        notice = tracked.notice
        assert notice is not None
        wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(notice.tries, 16))
        notice.tries += 1
        notice.next_s = now_s + wait_s
        self.has_changed = True
        return wait_s

    def _is_wanted(self, finding: Finding) -> bool:
        return finding.level in self._levels and finding.code not in self._ignored

    def _miss(self, found: Mapping[Key, Finding], now_s: float) -> None:
        for key, tracked in self._tracked.items():
            if tracked.is_present and key not in found:
                tracked.is_present, tracked.until_s = False, now_s
                self.has_changed = True

    def _plan(self, tracked: TrackedFinding, redis: str, now_s: float) -> None:
        if tracked.notice or tracked.is_present == tracked.is_reported or _is_too_early(tracked, now_s):
            return
        tracked.notice = Notice(_content(tracked, redis, now_s), next_s=now_s)
        self.has_changed = True


def _key(finding: Finding) -> Key:
    return finding.code, finding.queue, finding.about


def _is_too_early(tracked: TrackedFinding, now_s: float) -> bool:
    """Whether less than a minute has passed; a clock that went back makes nothing wait."""
    return 0 <= now_s - tracked.sent_s < APART_S


def _is_over(tracked: TrackedFinding, now_s: float) -> bool:
    """Whether nothing of it has to be kept, not even the time of its last notice."""
    is_silent = not (tracked.is_present or tracked.is_reported or tracked.notice)
    return is_silent and not _is_too_early(tracked, now_s)


def _content(tracked: TrackedFinding, redis: str, now_s: float) -> dict[str, Any]:
    finding = asdict(tracked.finding)
    return {
        "id": new_request(),
        "state": APPEARED if tracked.is_present else GONE,
        "code": finding["code"],
        "queue": finding["queue"],
        "about": finding["about"],
        "severity": finding["level"],
        "text": finding["says"],
        "means": finding["means"],
        "remedy": finding["remedy"],
        "value": finding["value"],
        "examples": list(finding["examples"]),
        "since": _instant(tracked.since_s),
        "until": None if tracked.is_present else _instant(tracked.until_s),
        "at": _instant(now_s),
        "redis": redis,
    }


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
