"""The names of the queues in one Redis."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from schedq.errors import Conflict, UsageError
from schedq.model.keys import QUEUES_KEY, QueueKeys
from schedq.model.lifecycle import DELAYED, JOB_STATES, PENDING
from schedq.transitions import Operation, RoundTrips, identity, unwrap

_PAGE: Final = 1000
# Few keys of jobs match this as well; they are filtered out below.
_PATTERN: Final = "queue:*:[pd]e[nl]*[gd]"
_HELD: Final = "held"
_OF_QUEUE: Final = (
    *("pending", "held", "delayed", "processing", "schedules"),
    *("stats", "settings", "workers", "paused", "paused_tasks"),
)
_LENGTHS: Final = {place: place for place in JOB_STATES} | {_HELD: PENDING}
"""The state of the jobs in a list or zset, by the name of its key."""
_PLACE: Final = re.compile(r"queue:(?:\{([^{}:]+)\}|([^{}:]+)):(?:pending|delayed)")


def names(*, scan: bool) -> RoundTrips[list[str]]:
    """The sorted names of the queues in one Redis; a registered name without any data is left out.

    With `scan` it also searches all keys, page by page, for queues that only other programs use.
    """
    registered = yield from listed()
    found: set[str] = set()
    for first in range(0, len(registered), _PAGE):
        some = registered[first : first + _PAGE]
        replies = yield [_is_there(name) for name in some]
        found.update(name for name, there in zip(some, replies, strict=True) if unwrap(there))
    if scan:
        found.update((yield from scanned()))
    return sorted(found)


def listed() -> RoundTrips[list[str]]:
    """The names that schedq clients have registered; some may have no data left."""
    (reply,) = yield [Operation("queues", None, (), ("SMEMBERS", QUEUES_KEY), _fitting)]
    return unwrap(reply)


def scanned() -> RoundTrips[list[str]]:
    """The names of queues with waiting jobs, whichever program enqueued them."""
    found: set[str] = set()
    cursor = ""
    while cursor != "0":
        command = ("SCAN", cursor or "0", "MATCH", _PATTERN, "COUNT", _PAGE)
        (reply,) = yield [Operation("queues", None, (), command, identity)]
        cursor, page = unwrap(reply)
        found.update(_fitting(match[1] or match[2] for key in page if (match := _PLACE.fullmatch(key))))
    return sorted(found)


def existing(keys: Sequence[str]) -> RoundTrips[tuple[set[str], int]]:
    """Which of these keys exist, a page per round trip; and how many keys this user may not look for."""
    found: set[str] = set()
    hidden = 0
    for first in range(0, len(keys), _PAGE):
        page = keys[first : first + _PAGE]
        replies = yield [Operation("queues", None, (), ("EXISTS", key), bool) for key in page]
        for key, reply in zip(page, replies, strict=True):
            if isinstance(reply, UsageError):  # the user's rules name other queues
                hidden += 1
            elif unwrap(reply):
                found.add(key)
    return found, hidden


def depths(names: Sequence[str]) -> RoundTrips[dict[str, Counter[str]]]:
    """How many jobs queues have by state, such as `failed_depth`, for less than a tenth of what `stats` costs.

    Queues with damaged keys, and those that this user may not read, are left out.
    """
    found: dict[str, Counter[str]] = {}
    some = _PAGE // len(_LENGTHS)
    for first in range(0, len(names), some):
        page = names[first : first + some]
        replies = iter((yield [ask for name in page for ask in _lengths(QueueKeys(name))]))
        for name in page:
            counts: Counter[str] = Counter()
            with suppress(Conflict, UsageError):
                for place, reply in [*zip(_LENGTHS.values(), replies, strict=False)]:
                    counts[f"{place}_depth"] += unwrap(reply)
                found[name] = counts
    return found


def _lengths(keys: QueueKeys) -> list[Operation[int]]:
    words = (("ZCARD" if place in (DELAYED, _HELD) else "LLEN", getattr(keys, place)) for place in _LENGTHS)
    return [Operation("queues", None, (), each, int) for each in words]


def _is_there(name: str) -> Operation[bool]:
    prefix = QueueKeys(name).prefix
    return Operation("queues", None, (), ("EXISTS", *(prefix + key for key in _OF_QUEUE)), bool)


def _fitting(found: Any) -> list[str]:
    """The valid queue names among them: other programs may have stored anything."""
    fitting = []
    for name in found:
        with suppress(UsageError):
            fitting.append(QueueKeys(name).name)
    return sorted(fitting)


def nearest(name: str, names: Collection[str]) -> str:
    """`; did you mean NAME?` with the most similar name; '' if none is similar."""
    from difflib import get_close_matches  # for mistakes only

    found = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""
