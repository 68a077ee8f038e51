"""Names of queues: invalid ones, and ones that are easily confused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from schedq.doctor.checks import Check, Finding, asked, few, findings, known, plain, scan
from schedq.errors import UsageError
from schedq.inspect.display import count
from schedq.model.keys import QUEUES_KEY, QueueKeys, checked_name
from schedq.transitions import RoundTrips

_PATTERN: Final = "queue:*:[pdcf]*[gd]"
_KEY: Final = re.compile(r"queue:(.*):(?:pending|delayed|processing|completed|failed)", re.DOTALL)
_LIKE: Final = str.maketrans({"-": "", "_": "", ".": "", "0": "o", "1": "l", "i": "l", "5": "s"})


@dataclass(frozen=True, slots=True)
class QueueNames:
    """The queue names in use on a server.

    Attributes:
        seen: names found in keys, including any braces.
        registered: names on the list of queues.
        waiting: name -> number of waiting jobs, for queues whose name resembles another.
        workers: name -> number of live workers, for the same queues.
        is_whole: all keys were scanned.
        tagged: keys have the form for a cluster, see `QueueKeys`.
    """

    seen: frozenset[str]
    registered: frozenset[str]
    waiting: dict[str, int]
    workers: dict[str, int]
    is_whole: bool
    tagged: bool

    @property
    def usable(self) -> list[str]:
        """The valid names among those seen in keys."""
        bare = (name[1:-1] for name in self.seen if name[:1] + name[-1:] == "{}") if self.tagged else self.seen
        return [name for name in bare if _is_valid(name)]

    @property
    def braced(self) -> set[str]:
        """Names in braces, which schedq writes only on a cluster."""
        names = self.seen | self.registered if not self.tagged else ()
        return {name for name in names if _is_valid(name[1:-1]) and name == f"{{{name[1:-1]}}}"}

    @property
    def invalid(self) -> set[str]:
        names = self.seen | self.registered
        return {name for name in names if not _is_valid(name.strip("{}") if self.tagged else name)} - self.braced


@dataclass(frozen=True, slots=True)
class Lookalikes:
    """Names that resemble one another.

    Attributes:
        names: all of them.
        abandoned: those in which jobs wait, without a worker.
        served: those that have workers.
    """

    names: list[str]
    abandoned: list[str]
    served: list[str]


def read_queue_names(most: int, *, tagged: bool) -> RoundTrips[QueueNames]:
    """Scan up to `most` keys for queue names, and read the list of queues."""
    found, _, is_whole = yield from scan(_PATTERN, most)
    matches = filter(None, map(_KEY.fullmatch, found))
    seen = {match[1] for match in matches if ":job" not in match[1] and ":group:" not in match[1]}
    (listed,) = yield [plain("PING") if tagged else plain("SMEMBERS", QUEUES_KEY)]
    registered = frozenset(() if tagged else known(listed, []))
    alike = [name for group in resembling(filter(_is_valid, seen | registered)) for name in group]
    queries = [
        query
        for keys in map(QueueKeys, alike)
        for query in (plain("LLEN", keys.pending), plain("ZCARD", keys.delayed), plain("ZCARD", keys.workers))
    ]
    replies = yield from asked(queries)
    counts = [known(reply, 0) for reply in replies]
    waiting = {name: pending + delayed for name, pending, delayed in zip(alike, counts[::3], counts[1::3], strict=True)}
    workers = dict(zip(alike, counts[2::3], strict=True))
    return QueueNames(frozenset(seen), registered, waiting, workers, is_whole, tagged)


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


NAMES: Final[tuple[Check[QueueNames], ...]] = (
    Check(
        "name-invalid",
        "warning",
        lambda it: it.invalid,
        lambda it: f"{count(len(it.invalid), 'queue has a name=queues have names')} that schedq refuses",
        "another program created it: no schedq worker can serve it, and its keys may collide with another queue's",
        "rename it in that program: 1 to 64 of A-Z a-z 0-9 _ . -, the first a letter or digit",
        lambda it: few(it.invalid),
    ),
    Check(
        "name-braced",
        "warning",
        lambda it: it.braced,
        lambda it: f"{count(len(it.braced), 'queue has its name=queues have their names')} in braces",
        "schedq uses braces only on a cluster; here its queue of that name has different keys",
        "remove the braces in the other program, or use redis+cluster:// if this is a cluster",
        lambda it: few(it.braced),
    ),
)
ALIKE: Final[Check[Lookalikes]] = Check(
    "names-alike",
    lambda it: "warning" if it.abandoned and it.served else "note",
    lambda _: True,
    lambda it: (
        f"queues {', '.join(it.names)} look alike"
        + (
            f"; jobs wait in {', '.join(it.abandoned)}, whose workers are at {', '.join(it.served)}"
            if it.abandoned and it.served
            else ""
        )
    ),
    "a producer that misspells the name fills a queue that no worker serves",
    "define the name in one place, and purge the misspelled queue: schedq purge NAME",
    lambda it: few(it.names),
)


def check_queue_names(found: QueueNames) -> Iterator[Finding]:
    """The findings about names."""
    yield from findings(NAMES, found)
    for group in resembling(found.workers):
        served = [name for name in group if found.workers[name]]
        abandoned = [name for name in group if found.waiting[name] and not found.workers[name]]
        yield ALIKE.finding(Lookalikes(group, abandoned, served))
