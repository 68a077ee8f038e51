"""What registering schedules would do: the same round trips, except for the operations that would write."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from schedq.transitions import MarkerWait, Operation, RoundTrips

T = TypeVar("T")
_READS: Final = frozenset({"peek"})
"""Scripts that write nothing; neither do the plain commands here."""
_ASSUMED: Final[dict[str, Any]] = {"upsert": "changed", "delete": True}
"""Operation that writes -> the result that it would have."""


def preview(trips: RoundTrips[T]) -> RoundTrips[T]:
    """The round trips of `register` without its writes; schedules that would be created count as changed."""
    results: Any = None
    while True:
        try:
            operations = trips.send(results)
        except StopIteration as stop:
            made: T = stop.value
            return made
        assert not isinstance(operations, MarkerWait)
        sent = [one for one in operations if _is_harmless(one)]
        replies = iter((yield sent) if sent else ())
        results = [next(replies) if _is_harmless(one) else _ASSUMED[one.name] for one in operations]


def _is_harmless(operation: Operation[Any]) -> bool:
    return operation.script is None or operation.name in _READS
