"""What every check is made of: queries to Redis, rows of a table that judge the facts, and the findings of those rows.

Queries are plain commands, sent in rounds of a bounded size. A refusal (by the server's access rules) or an error (a
key of another type) stands as a SchedqError in the place of the reply; the checks take it for "not known".
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
"""Worst first. error: jobs are lost or stand still, or will; warning: act before that; note: good to know."""
MOST_EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        code: names the kind of finding, for programs; never renamed.
        level: how bad it is; a note needs no action.
        says: what was found, with its figures.
        means: what follows from it.
        remedy: what to do.
        queue: the queue, or '' if it is about the server or all queues.
        examples: ids, keys or names that it is about, the first few.
    """

    code: str
    level: Level
    says: str
    means: str
    remedy: str
    queue: str = ""
    examples: tuple[str, ...] = ()

    def tagged(self, prefix: str) -> Finding:
        """The same where a cluster's keys begin with `prefix`."""
        return replace(self, remedy=self.remedy.replace(f"queue:{self.queue}:", prefix))


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """One row of a table: when facts of type `T` are a finding, and what it says.

    Level and texts are fixed, or made from the facts. `{queue}` in `means` and `remedy` stands for the queue's name.
    """

    code: str
    level: Level | Callable[[T], Level]
    when: Callable[[T], object]
    says: str | Callable[[T], str]
    means: str | Callable[[T], str]
    remedy: str | Callable[[T], str]
    examples: Callable[[T], tuple[str, ...]] = lambda _: ()

    def finding(self, facts: T, queue: str = "") -> Finding:
        """What this row says about these facts."""
        return Finding(
            self.code,
            self.level(facts) if callable(self.level) else self.level,
            self.says(facts) if callable(self.says) else self.says,
            (self.means(facts) if callable(self.means) else self.means).replace("{queue}", queue),
            (self.remedy(facts) if callable(self.remedy) else self.remedy).replace("{queue}", queue),
            queue,
            self.examples(facts),
        )


def findings(checks: Iterable[Check[T]], facts: T, queue: str = "") -> Iterator[Finding]:
    """The findings of those rows of a table that hold for these facts."""
    return (check.finding(facts, queue) for check in checks if check.when(facts))


def first_of(checks: Iterable[Check[T]], facts: T) -> Check[T] | None:
    """The first row that holds for these facts."""
    return next((check for check in checks if check.when(facts)), None)


def grouped(
    checks: Sequence[Check[T]], things: Iterable[T], queue: str, *, at_least: bool = False
) -> Iterator[Finding]:
    """One finding for all things of a kind, which is the first row that holds for them.

    Such a row says what one thing is, and after a `=` what several are; the first one decides on level and texts.
    """
    kinds = [(first_of(checks, thing), thing) for thing in things]
    for check in checks:
        if found := [thing for kind, thing in kinds if kind is check]:
            one = check.finding(found[0], queue)
            says = ("at least " if at_least else "") + count(len(found), one.says)
            yield replace(one, says=says, examples=few(name for thing in found for name in check.examples(thing)))


def few(things: Iterable[str]) -> tuple[str, ...]:
    """The first of many, for `Finding.examples`."""
    return tuple(sorted(things)[:MOST_EXAMPLES])


PAGE: Final = 500
"""Entries or keys of one request."""
_AT_ONCE: Final = 250


def plain(*words: Argument) -> Operation[Any]:
    """One command, under the name that access rules have for it."""
    name = str(words[0]).lower()
    if name in ("config", "script"):
        name += f"|{str(words[1]).lower()}"
    return Operation(name, None, (), words, identity)


def known(answer: Any, otherwise: Any) -> Any:
    """The answer, or something else where there is none."""
    return otherwise if answer is None or isinstance(answer, SchedqError) else answer


def asked(questions: Sequence[Operation[Any]]) -> RoundTrips[list[Any]]:
    """The answers to any number of questions, few at a time, so that no other client waits long."""
    answers: list[Any] = []
    for first in range(0, len(questions), _AT_ONCE):
        answers += yield questions[first : first + _AT_ONCE]
    return answers


def scan(pattern: str, most: int) -> RoundTrips[tuple[list[str], int, bool]]:
    """The keys that match among the first `most` of the server; how many were looked at; whether these were all."""
    found: list[str] = []
    cursor, scanned = "0", 0
    while scanned < most:
        (answer,) = yield [plain("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE)]
        if isinstance(answer, SchedqError):
            break
        cursor, page = answer
        scanned += PAGE
        found += page
        if cursor == "0":
            return found, scanned, True
    return found, scanned, False


def own_id(thing: Any) -> tuple[str, ...]:
    """The id of what was found, for `Finding.examples`."""
    return (thing.id,)
