"""Settle any number of attempts, for tools and tests; a worker does it in batches, together with its claims."""

from __future__ import annotations

from collections.abc import Sequence

from schedq.model.records import Settlement
from schedq.model.settings import Settings
from schedq.transitions import RoundTrips, settle, unwrap


def settle_all(queue: Settings, items: Sequence[Settlement]) -> RoundTrips[list[str]]:
    """Settle all attempts; returns OK, DUPLICATE or LOST for each, in order.

    Raises:
        SchedqError: a batch was rejected; earlier batches stay settled.
    """
    words: dict[int, str] = {}
    while left := [number for number in range(len(items)) if words.get(number, "AGAIN") == "AGAIN"]:
        results = yield [settle.settle(queue, batch) for batch in settle.chunks([items[number] for number in left])]
        words.update(zip(left, (word for result in results for word in unwrap(result)), strict=True))
    return [words[number] for number in range(len(items))]
