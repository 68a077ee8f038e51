"""Unique jobs: what makes two jobs the same, and what happens to the second one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from schedq.errors import UsageError
from schedq.model.times import Duration, duration_ms

_LONGEST: Final = 200
_CONFLICTS: Final = ("keep", "replace", "raise")
_RULE: Final = re.compile(r"(?:done|start) \d+ (?:keep|replace|raise|debounce \d+(?: \d+)?)")
By = str | Callable[..., Any]
"""The name of a parameter, or a function of the task's arguments whose value identifies the job."""


class UniqueKey(NamedTuple):
    """The key of one job, and the rule that goes with it.

    Attributes:
        key: jobs of the queue with the same key count as the same.
        rule: the rule as `enqueue_unique.lua` reads it.
        wait_ms: how long the job is delayed; 0 unless it is debounced.
    """

    key: str
    rule: str
    wait_ms: int = 0


@dataclass(frozen=True, init=False)
class Unique:
    """At most one job of the same key waits or runs.

    Args:
        by: names of the parameters whose values make the key, or one function that gets the arguments and returns
            something that JSON can hold. Without any, all arguments count.
        key: a key of your own instead, 1 to 200 printable characters.
        until: "done": the key is held until the job has ended, whatever happens to it; "start": until it is claimed for
            the first time, so one job may wait while another one runs.
        per: seconds or a timedelta after the enqueue of a job in which no other one gets its key, even if it has ended.
        on_conflict: "keep": `enqueue` returns the job that is there; "replace": if that job has never been claimed, it
            also gets the new arguments and options, and keeps its place; "raise": `enqueue` raises `Conflict`.

    Raises:
        UsageError: an argument is invalid.
    """

    by: tuple[By, ...]
    key: str | None
    until: Literal["done", "start"]
    per: Duration | None
    on_conflict: Literal["keep", "replace", "raise"]

    def __init__(
        self,
        *by: By,
        key: str | None = None,
        until: Literal["done", "start"] = "done",
        per: Duration | None = None,
        on_conflict: Literal["keep", "replace", "raise"] = "keep",
    ) -> None:
        _check_choice("until", until, ("done", "start"))
        _check_choice("on_conflict", on_conflict, _CONFLICTS)
        for name, value in (("by", _checked_by(by, key)), ("key", key), ("until", until), ("per", per)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "on_conflict", on_conflict)
        if per is not None:
            duration_ms(per, "per")

    def with_key(self, key: str) -> UniqueKey:
        """Return the key of one job with this rule."""
        per_ms = 0 if self.per is None else duration_ms(self.per, "per")
        return UniqueKey(key, f"{self.until} {per_ms} {self.on_conflict}")


@dataclass(frozen=True, init=False)
class Debounce:
    """Run a job once calls of the same key have ceased; it gets the arguments of the last call.

    Each call moves the job that waits to `wait` from then. One that runs already is left alone, and another one waits.

    Args:
        by: as for `Unique`.
        key: as for `Unique`.
        wait: seconds or a timedelta from the last call until the job is due.
        max_wait: seconds or a timedelta from the first call until it is due at the latest; None for no limit.

    Raises:
        UsageError: an argument is invalid.
    """

    by: tuple[By, ...]
    key: str | None
    wait: Duration
    max_wait: Duration | None

    def __init__(self, *by: By, key: str | None = None, wait: Duration, max_wait: Duration | None = None) -> None:
        wait_ms = duration_ms(wait, "wait")
        if max_wait is not None and duration_ms(max_wait, "max_wait") < wait_ms:
            raise UsageError(f"max_wait={max_wait!r} must be at least wait={wait!r}")
        for name, value in (("by", _checked_by(by, key)), ("key", key), ("wait", wait), ("max_wait", max_wait)):
            object.__setattr__(self, name, value)

    def with_key(self, key: str) -> UniqueKey:
        """Return the key of one job with this rule."""
        wait_ms = duration_ms(self.wait, "wait")
        most = "" if self.max_wait is None else f" {duration_ms(self.max_wait, 'max_wait')}"
        return UniqueKey(key, f"start 0 debounce {wait_ms}{most}", wait_ms)


Uniqueness = Unique | Debounce | str | bool
"""The option `unique`: a rule; a key of your own for `Unique(key=…)`; True for `Unique()`, False for none."""


def checked_rule(given: object) -> Unique | Debounce | None:
    """Return the rule that the option `unique` stands for; None for False.

    Raises:
        UsageError: it is none.
    """
    if isinstance(given, (Unique, Debounce)):
        return given
    if isinstance(given, bool):
        return Unique() if given else None
    if isinstance(given, str):
        return Unique(key=given)
    raise UsageError(f"unique must be True, False, a key, Unique(…) or Debounce(…), got {given!r:.100}")


def resolved(given: object) -> UniqueKey | None:
    """Return the key that the option `unique` of one job stands for; None for False.

    Raises:
        UsageError: it is invalid, or its key depends on a task's arguments.
    """
    if isinstance(given, UniqueKey):
        return given
    rule = checked_rule(given)
    if rule is None:
        return None
    if rule.key is None:
        raise UsageError(f"unique={given!r:.100} needs a task whose arguments make the key; here give key='…'")
    return rule.with_key(rule.key)


def stored_unique(key: str, rule: str) -> list[tuple[str, str]]:
    """The fields of an imported job.

    Raises:
        UsageError: the key or the rule is not in the form that schedq writes.
    """
    if not _RULE.fullmatch(rule):
        raise UsageError(f"unique_rule is not in the form that schedq writes: {rule!r:.80}")
    return [("unique", checked_key(key)), ("unique_rule", rule)]


def checked_key(key: object) -> str:
    """Return a key of the caller's own.

    Raises:
        UsageError: it is not 1 to 200 printable characters.
    """
    if not (isinstance(key, str) and 1 <= len(key) <= _LONGEST and key.isprintable()):
        raise UsageError(f"a unique key must be 1 to {_LONGEST} printable characters, got {key!r:.300}; use a digest")
    return key


def _checked_by(by: tuple[Any, ...], key: object) -> tuple[By, ...]:
    if key is not None and by:
        raise UsageError(f"give parameters or key, not both (got {', '.join(map(repr, by))} and key={key!r:.100})")
    if key is not None:
        checked_key(key)
    for each in by:
        if not isinstance(each, str) and (not callable(each) or len(by) > 1):
            raise UsageError(f"a job is unique by names of parameters or by one function, got {each!r:.100}")
    return by


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r:.80}")
