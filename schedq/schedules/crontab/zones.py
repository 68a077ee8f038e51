"""Time zones by name, and the periods in which a zone keeps one offset from UTC."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from schedq.errors import UsageError
from schedq.model.times import LAST_INSTANT_MS

_DAY_S: Final = 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_S: Final = LAST_INSTANT_MS // 1000 - 4 * _DAY_S
"""The last instant to look up; with the margin around it, local times stay in the year 9999."""
_PROBE_S: Final = 3 * _DAY_S
"""Offsets are looked up at this distance. Since 1970 no zone has changed its offset twice within six days (the shortest
periods are week-long summer times in Brazil in 2000 and in Gaza); tests/schedules/crontab checks this."""
_MARGIN_S: Final = 2 * _DAY_S
"""More than any change of a clock; offsets are known this far around each period that is returned."""
_AHEAD_S: Final = 500 * _DAY_S


class OffsetPeriod(NamedTuple):
    """A period [start, end) in UTC seconds with one offset; `before` and `after` are the neighboring offsets.

    If nothing changes for a long time, a period ends with `after` equal to `offset`, and another one follows.
    """

    start: int
    end: int
    offset: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class _Known:
    """Known offsets: offsets[i] applies from starts[i] on; nothing is known before starts[0]."""

    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    end: int


class Offsets:
    """The offsets of one zone, looked up on demand; thread-safe.

    The known offsets are replaced as a whole; two threads that extend them at once do the same work twice.
    """

    __slots__ = ("_known", "zone")

    def __init__(self, zone: ZoneInfo) -> None:
        self.zone = zone
        self._known = _Known((0,), (0,), 0)

    def period(self, instant_s: int) -> OffsetPeriod | None:
        """The period that contains `instant_s`; None from four days before the year 10000."""
        if instant_s >= _LAST_S:
            return None
        known = self._known
        if instant_s < known.starts[0] + _MARGIN_S or instant_s >= known.end - _MARGIN_S:
            known = self._known = self._look_up(known, instant_s)
        starts, offsets = known.starts, known.offsets
        at = bisect_right(starts, instant_s) - 1
        offset = offsets[at]
        is_last = at + 1 == len(starts)
        return OffsetPeriod(
            start=starts[at],
            end=known.end - _MARGIN_S if is_last else starts[at + 1],
            offset=offset,
            before=offsets[at - 1] if at else offset,
            after=offset if is_last else offsets[at + 1],
        )

    def _look_up(self, known: _Known, instant_s: int) -> _Known:
        """Extend the known offsets to well past `instant_s`, or start over well before it."""
        if instant_s < known.starts[0] + _MARGIN_S or instant_s > known.end + 4 * _AHEAD_S:
            start = instant_s - _AHEAD_S
            starts, offsets = [start], [self._offset(start)]
        else:
            start = known.end
            starts, offsets = list(known.starts), list(known.offsets)
        end = min(instant_s + _AHEAD_S, _LAST_S + _MARGIN_S)
        for probe in (*range(start + _PROBE_S, end, _PROBE_S), end):
            offset = self._offset(probe)
            if offset != offsets[-1]:
                starts.append(self._change(start, probe, offsets[-1]))
                offsets.append(offset)
            start = probe
        return _Known(tuple(starts), tuple(offsets), end)

    def _change(self, early: int, late: int, offset: int) -> int:
        """The first second after `early` at which the offset differs from `offset`; at `late` it does."""
        while late - early > 1:
            middle = (early + late) // 2
            if self._offset(middle) == offset:
                early = middle
            else:
                late = middle
        return late

    def _offset(self, instant_s: int) -> int:
        offset = (_EPOCH + timedelta(seconds=instant_s)).astimezone(self.zone).utcoffset()
        return 0 if offset is None else offset // timedelta(seconds=1)


@lru_cache(maxsize=1024)
def offsets_of(name: str) -> Offsets:
    """The offsets of a zone, shared by all callers.

    Raises:
        UsageError: there is no such zone; the message suggests similar names.
    """
    if _is_same_everywhere(name):
        with suppress(OSError, ValueError, LookupError):
            return Offsets(ZoneInfo(name))
    raise UsageError(f"there is no time zone {name!r:.60}{_near(name)}")


def _is_same_everywhere(name: str) -> bool:
    """Whether a zone does not depend on the machine; `right/…` counts leap seconds, which Unix time does not."""
    return name not in ("localtime", "posixrules", "Factory") and not name.startswith(("right/", "posix/"))


def _near(name: str) -> str:
    """A hint with zones that may be meant: similar names, or the same city."""
    zones = sorted(filter(_is_same_everywhere, available_timezones()))
    wanted = name[:60].strip().replace(" ", "_").casefold()
    found = [zone for zone in zones if zone.casefold() == wanted or zone.casefold().endswith(f"/{wanted}")]
    lowered = {zone.casefold(): zone for zone in zones}
    found += [lowered[near] for near in get_close_matches(wanted, lowered, n=3, cutoff=0.7)]
    names = list(dict.fromkeys(found))[:3]
    return f"; did you mean {' or '.join(names)}?" if names else "; write a name such as UTC or Europe/Berlin"
