"""The parts of every check: queries to Redis, tables that judge the facts, and the findings they produce.

Queries are plain commands, sent in batches of bounded size. If the server's access rules refuse one, or it fails (for
example on a key of another type), a SchedqError takes the place of its reply; checks treat that as "unknown".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, TypeVar

from schedq.errors import SchedqError
from schedq.inspect.display import count
from schedq.transitions import Argument, Operation, RoundTrips, identity

T = TypeVar("T")
Level = Literal["error", "warning", "note"]
LEVELS: Final[tuple[Level, ...]] = ("error", "warning", "note")
"""Worst first. error: jobs are or will be lost or stuck; warning: act before that happens; note: good to know."""
MOST_EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of the examination.

    Attributes:
        code: identifies the kind of finding, for programs; never renamed.
        level: how bad it is; a note needs no action.
        says: what was found, with figures.
        means: the consequences.
        remedy: what to do.
        queue: the queue, or '' if it is about the server or all queues.
        examples: the first few ids, keys or names that it is about.
        about: the task, gate, key or setting, where one queue may have several findings of this code; else ''.
        value: its main figure, such as a number of jobs; None without one.
    """

    code: str
    level: Level
    says: str
    means: str
    remedy: str
    queue: str = ""
    examples: tuple[str, ...] = ()
    about: str = ""
    value: int | None = None

    def tagged(self, prefix: str) -> Finding:
        """The same finding with the key names of a cluster, which begin with `prefix`."""
        return replace(self, remedy=self.remedy.replace(f"queue:{self.queue}:", prefix))


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """One row of a table: when facts of type `T` are a finding, and what it says.

    Level and texts are constants or functions of the facts. In `means` and `remedy`, `{queue}` is replaced by the
    queue's name.
    """

    code: str
    level: Level | Callable[[T], Level]
    when: Callable[[T], object]
    says: str | Callable[[T], str]
    means: str | Callable[[T], str]
    remedy: str | Callable[[T], str]
    examples: Callable[[T], tuple[str, ...]] = lambda _: ()
    about: Callable[[T], str] = lambda _: ""
    value: Callable[[T], int | None] = lambda _: None

    def finding(self, facts: T, queue: str = "") -> Finding:
        """The finding of this row for these facts."""
        return Finding(
            self.code,
            self.level(facts) if callable(self.level) else self.level,
            self.says(facts) if callable(self.says) else self.says,
            (self.means(facts) if callable(self.means) else self.means).replace("{queue}", queue),
            (self.remedy(facts) if callable(self.remedy) else self.remedy).replace("{queue}", queue),
            queue,
            self.examples(facts),
            self.about(facts),
            self.value(facts),
        )


def findings(checks: Iterable[Check[T]], facts: T, queue: str = "") -> Iterator[Finding]:
    """The findings of all rows that apply to these facts."""
    return (check.finding(facts, queue) for check in checks if check.when(facts))


def first_of(checks: Iterable[Check[T]], facts: T) -> Check[T] | None:
    """The first row that applies to these facts."""
    return next((check for check in checks if check.when(facts)), None)


def grouped(
    checks: Sequence[Check[T]], things: Iterable[T], queue: str, *, at_least: bool = False
) -> Iterator[Finding]:
    """Classify things by the first row that applies to each, and return one finding per row.

    `says` of such a row has a singular and a plural form, separated by `=`. The first thing of each kind determines
    level and texts.
    """
    kinds = [(first_of(checks, thing), thing) for thing in things]
    for check in checks:
        if found := [thing for kind, thing in kinds if kind is check]:
            one = check.finding(found[0], queue)
            says = ("at least " if at_least else "") + count(len(found), one.says)
            examples = few(name for thing in found for name in check.examples(thing))
            yield replace(one, says=says, examples=examples, value=len(found))


def few(things: Iterable[str]) -> tuple[str, ...]:
    """The first few names, sorted, for `Finding.examples`."""
    return tuple(sorted(things)[:MOST_EXAMPLES])


PAGE: Final = 500
"""Number of entries or keys per request."""
_AT_ONCE: Final = 250
SCANNED: Final = 2_500
"""Number of keys per scan, which blocks all other clients for about a millisecond."""


def plain(*words: Argument) -> Operation[Any]:
    """An operation that sends one command, named as in access rules."""
    name = str(words[0]).lower()
    if name in ("config", "script"):
        name += f"|{str(words[1]).lower()}"
    return Operation(name, None, (), words, identity)


def known(reply: Any, default: Any) -> Any:
    """The reply, or `default` if it is None or an error."""
    return default if reply is None or isinstance(reply, SchedqError) else reply


def asked(queries: Sequence[Operation[Any]]) -> RoundTrips[list[Any]]:
    """The replies to any number of queries, sent in small batches so that no other client waits long."""
    replies: list[Any] = []
    for first in range(0, len(queries), _AT_ONCE):
        replies += yield queries[first : first + _AT_ONCE]
    return replies


def scan(pattern: str, most: int) -> RoundTrips[tuple[list[str], int, bool]]:
    """Scan up to `most` keys of the server; returns the matching keys, the number scanned, and whether it was all."""
    found: list[str] = []
    cursor, scanned, page_size = "0", 0, min(most, SCANNED)
    while scanned < most:
        (reply,) = yield [plain("SCAN", cursor, "MATCH", pattern, "COUNT", page_size)]
        if isinstance(reply, SchedqError):
            break
        cursor, page = reply
        scanned += page_size
        found += page
        if cursor == "0":
            return found, scanned, True
    return found, scanned, False


def own_id(thing: Any) -> tuple[str, ...]:
    """The id of a job or schedule, for `Finding.examples`."""
    return (thing.id,)
