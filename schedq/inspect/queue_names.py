"""The names of the queues at one Redis."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Final

from schedq.errors import UsageError
from schedq.model.keys import QUEUES_KEY, QueueKeys
from schedq.transitions import Operation, RoundTrips, identity, unwrap

_AT_ONCE: Final = 200
_PAGE: Final = 1000
# Few jobs' keys match it too; they are sorted out here.
_PATTERN: Final = "queue:*:[pd]e[nl]*[gd]"
_PLACE: Final = re.compile(r"queue:(?:\{([^{}:]+)\}|([^{}:]+)):(?:pending|delayed)")


def names(*, scan: bool) -> RoundTrips[list[str]]:
    """The sorted names of the queues at one Redis; a name that was only ever looked at is not one of them.

    With `scan` it also looks through all keys, page by page, for queues that only other programs use.
    """
    registered = yield from listed()
    found: set[str] = set()
    for first in range(0, len(registered), _AT_ONCE):
        some = registered[first : first + _AT_ONCE]
        answers = yield [_is_there(name) for name in some]
        found.update(name for name, there in zip(some, answers, strict=True) if unwrap(there))
    if scan:
        found.update((yield from scanned()))
    return sorted(found)


def listed() -> RoundTrips[list[str]]:
    """The names that schedq clients have registered; nothing may be left of some."""
    (answer,) = yield [Operation("queues", None, (), ("SMEMBERS", QUEUES_KEY), _fitting)]
    return unwrap(answer)


def scanned() -> RoundTrips[list[str]]:
    """The names of queues in which jobs wait, whoever put them there."""
    found: set[str] = set()
    cursor = ""
    while cursor != "0":
        command = ("SCAN", cursor or "0", "MATCH", _PATTERN, "COUNT", _PAGE)
        (answer,) = yield [Operation("queues", None, (), command, identity)]
        cursor, page = unwrap(answer)
        found.update(_fitting(match[1] or match[2] for key in page if (match := _PLACE.fullmatch(key))))
    return sorted(found)


def _is_there(name: str) -> Operation[bool]:
    keys = QueueKeys(name)
    waiting = (keys.pending, keys.delayed, keys.processing, keys.schedules)
    return Operation(
        "queues", None, (), ("EXISTS", *waiting, keys.stats, keys.settings, keys.workers, keys.paused), bool
    )


def _fitting(found: Any) -> list[str]:
    """Those that may name a queue: others' data may be anything."""
    fitting = []
    for name in found:
        with suppress(UsageError):
            fitting.append(QueueKeys(name).name)
    return sorted(fitting)


def nearest(name: str, names: Collection[str]) -> str:
    """`; did you mean NAME?` for the name that is most like it; '' if none is."""
    found = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""
