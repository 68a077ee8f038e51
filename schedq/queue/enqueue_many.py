"""The calls that `Task.enqueue_many` is given, each made into a payload or a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from schedq.errors import ArgumentsError
from schedq.model.records import NewJob

T = TypeVar("T")
Calls = Sequence[tuple[Sequence[Any], Mapping[str, Any]] | NewJob]
"""Several calls, from `with_args` or as [((positional, ...), {name: value, ...}), ...]."""
_Make = Callable[[Sequence[Any], Mapping[str, Any]], T]
_Own = Callable[[NewJob], NewJob]


def of_each(task: str, calls: Calls, make: _Make[T], own: _Own) -> Iterator[T | NewJob]:
    """Yield what `make` makes of each pair of arguments, and `own` of each call from `with_args`.

    Raises:
        ArgumentsError: a call is invalid; the message has its number.
    """
    try:
        for call in calls:
            yield own(call) if isinstance(call, NewJob) else make(*call)
    except (TypeError, ValueError) as error:
        raise _located(task, calls, make, own, error) from None


def _located(task: str, calls: Calls, make: _Make[Any], own: _Own, error: Exception) -> Exception:
    """The error with the number of the call it concerns, if that can be determined."""
    rows: Sequence[Any] = calls if isinstance(calls, Sequence) else ()
    for number, call in enumerate(rows):
        is_pair = isinstance(call, Sequence) and not isinstance(call, (str, bytes)) and len(call) == 2
        if not is_pair and not isinstance(call, NewJob):
            what = "a call is a pair (positional arguments, keyword arguments)"
            return ArgumentsError(f"task {task!r}: {what}, call {number} is {call!r:.200}")
        try:
            own(call) if isinstance(call, NewJob) else make(*call)
        except ArgumentsError as problem:
            return ArgumentsError(f"{problem} (call {number})")
        except (TypeError, ValueError):
            break
    return error
