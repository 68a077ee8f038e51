"""Names of queues: those that can't be one, and those that are easily taken for one another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from schedq.doctor.asking import asked, known, plain
from schedq.doctor.finding import Finding, few, many
from schedq.errors import SchedqError, UsageError
from schedq.keys import QUEUES_KEY, QueueKeys, checked_name
from schedq.operations import Flow, Operation

_PATTERN: Final = "queue:*:[pdcf]*[gd]"
_PLACE: Final = re.compile(r"queue:(.*):(?:pending|delayed|processing|completed|failed)", re.DOTALL)
_PAGE: Final = 500
_LIKE: Final = str.maketrans({"-": "", "_": "", ".": "", "0": "o", "1": "l", "i": "l", "5": "s"})


@dataclass(frozen=True, slots=True)
class Names:
    """The names that are in use at a server.

    Attributes:
        seen: as they stand in keys, braces and all.
        enlisted: on the list of queues.
        crews: name -> (jobs that wait, live workers), of those that resemble another.
        is_whole: all keys were looked at.
    """

    seen: frozenset[str]
    enlisted: frozenset[str]
    crews: dict[str, tuple[int, int]]
    is_whole: bool


def look(most: int, *, tagged: bool) -> Flow[Names]:
    """Look through at most `most` keys for places of queues, and at the list of queues."""
    seen: set[str] = set()
    cursor, scanned, is_whole = "0", 0, False
    while scanned < most and not is_whole:
        (answer,) = yield [plain("SCAN", cursor, "MATCH", _PATTERN, "COUNT", _PAGE)]
        if isinstance(answer, SchedqError):
            break
        cursor, page = answer
        scanned += _PAGE
        seen.update(match[1] for key in page if (match := _PLACE.fullmatch(key)) and ":job" not in match[1])
        is_whole = cursor == "0"
    (listed,) = yield [plain("SMEMBERS", QUEUES_KEY)] if not tagged else [plain("PING")]
    enlisted = frozenset(known(listed, [])) if not tagged else frozenset()
    valid = sorted(name for name in {*seen, *enlisted} if _is_valid(name))
    alike = [name for group in resembling(valid) for name in group]
    answers = yield from asked([question for name in alike for question in _crew(name)])
    crews = {
        name: (sum(known(count, 0) for count in answers[3 * n : 3 * n + 2]), known(answers[3 * n + 2], 0))
        for n, name in enumerate(alike)
    }
    return Names(frozenset(seen), enlisted, crews, is_whole)


def _crew(name: str) -> list[Operation[Any]]:
    keys = QueueKeys(name)
    return [plain("LLEN", keys.pending), plain("ZCARD", keys.delayed), plain("ZCARD", keys.workers)]


def _is_valid(name: str) -> bool:
    try:
        return bool(checked_name(name))
    except UsageError:
        return False


def resembling(names: Iterable[str]) -> list[list[str]]:
    """Groups of names that differ by case, punctuation, a plural, or letters that look the same."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(name.casefold().translate(_LIKE).removesuffix("s"), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def usable(seen: Iterable[str], *, tagged: bool) -> list[str]:
    """The queues that schedq can ask about, of those that are seen in keys."""
    bare = (name[1:-1] for name in seen if name[:1] + name[-1:] == "{}") if tagged else seen
    return [name for name in bare if _is_valid(name)]


def judge(found: Names, *, tagged: bool) -> Iterator[Finding]:
    """The findings about them."""
    bad = {name for name in {*found.seen, *found.enlisted} if not _is_valid(name.strip("{}") if tagged else name)}
    braced = {name for name in bad if not tagged and _is_valid(name[1:-1]) and name == f"{{{name[1:-1]}}}"}
    if invalid := bad - braced:
        yield Finding(
            "name-invalid",
            "warning",
            f"{many(len(invalid), 'queue has a name=queues have names')} that schedq refuses",
            "another program made it: no worker of schedq's can serve it, and its keys may collide with another "
            "queue's",
            "rename it there: 1 to 64 of A-Z a-z 0-9 _ . -, the first a letter or digit",
            examples=few(invalid),
        )
    if braced:
        yield Finding(
            "name-braced",
            "warning",
            f"{many(len(braced), 'queue has its name=queues have their names')} in braces",
            "schedq writes such keys on a cluster only: here its queue of this name is another one",
            "let the other program leave the braces out, or use redis+cluster:// where this is a cluster",
            examples=few(braced),
        )
    for group in resembling(found.crews):
        abandoned = [name for name in group if found.crews[name][0] and not found.crews[name][1]]
        served = [name for name in group if found.crews[name][1]]
        is_typo = bool(abandoned and served)
        yield Finding(
            "names-alike",
            "warning" if is_typo else "note",
            f"queues {', '.join(group)} look alike"
            + (f"; jobs wait in {', '.join(abandoned)}, whose workers are at {', '.join(served)}" if is_typo else ""),
            "a producer with the wrong spelling fills a queue that nobody works on",
            "spell it in one place, and purge what is left of the other: schedq purge NAME",
            examples=few(group),
        )
