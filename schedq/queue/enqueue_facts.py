"""The object that a function of `Queue.before_enqueue` receives for a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schedq.model.expiry import Expiry
from schedq.model.times import Duration, Instant


@dataclass(frozen=True, slots=True, eq=False)
class EnqueueFacts:
    """One job that is about to be stored. Only its headers can be changed.

    Attributes:
        queue: name of the queue.
        task: name of the task that it calls; None for a payload that is not a task call.
        args: positional arguments of the call, in the form that they have in Redis.
        kwargs: keyword arguments of the call, likewise.
        payload: the whole payload, likewise; a copy, so changing it has no effect.
        job_id: the caller's own id, or None.
        delay, run_at: when it is due, as given by the caller; None for now.
        expires: until when it must begin, as given by the caller, or None.
        headers: the headers so far; names and values that are added are stored.
        gate: the name of its gate; '' without one.
        key: its key within its gate; '' without one.
    """

    queue: str
    task: str | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    payload: Any
    job_id: str | None
    delay: Duration | None
    run_at: Instant | None
    expires: Expiry | None
    headers: dict[str, str]
    gate: str = ""
    key: str = ""
