"""End attempts: complete, fail, retry, snooze, release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from schedq.model.payload import size_of
from schedq.model.records import ClaimedJob, Settlement
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation, chunked

_SETTLE: Final = Binding("settle", "claims", "endings")
MOST_SETTLED: Final = 200
"""The most attempts that end in one script, which blocks all other clients for about 15 µs each."""


def refusal(job: ClaimedJob) -> Settlement:
    """The end of a job whose payload can't be read: it fails without running, and is kept."""
    return Settlement(
        "fail",
        job.id,
        job.claim_token,
        text=f"unreadable payload: {job.problem}",
        note=job.problem,
        gate_key=job.gate_key,
    )


def settle(queue: Settings, items: Sequence[Settlement], *, claims: bool = False) -> Operation[list[str]]:
    """End attempts; returns OK, DUPLICATE, LOST or AGAIN for each. At most 1000, and 1 MiB.

    `claims`: the caller sends a claim of any jobs with it, so no other worker is woken for places that become free. If
    the server did not know the script, the claim came too early to use them.
    """
    endings: list[Any] = []
    for item in items:
        endings += item
        if item.ttl_ms is None:
            endings[-2] = ""
    made = Operation("settle", *_SETTLE(queue, claims=int(claims), endings=endings), list)
    if claims and any(item.gate_key for item in items):
        return made._replace(late_args=_SETTLE(queue, claims=0, endings=endings)[2])
    return made


def chunks(items: Sequence[Settlement]) -> list[list[Settlement]]:
    """Split `items` into chunks for one script each."""
    return chunked(items, _bytes_of, MOST_SETTLED)


def _bytes_of(item: Settlement) -> int:
    return 1024 + size_of(item.text) + (size_of(item.traceback) if item.traceback else 0)
