"""Why nothing is stored of a job, as far as the queue's totals and settings tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schedq.clocks import wall_ns
from schedq.errors import JobGone, SchedqError
from schedq.ids import made_at_ms
from schedq.job import whole
from schedq.operations import Flow, Operation
from schedq.operations.upkeep import pairs, read_settings
from schedq.settings import HIGH_MEMORY_HISTORY, Settings

_MOMENT_S: Final = 5
"""Seconds by which a producer's clock may differ."""


def absent(queue: Settings, job_id: str) -> Flow[JobGone]:
    """The error to raise about a job of which nothing is stored; it names the setting that keeps results for longer."""
    totals, stored = yield [_read_totals(queue), read_settings(queue)]
    facts: dict[str, str] = {} if isinstance(totals, SchedqError) else totals
    settings = queue if isinstance(stored, SchedqError) else queue.with_fields(stored)
    reasons = _reasons(settings, job_id, whole(facts.get("trimmed_total")), whole(facts.get("memory_high_at_ms")))
    return JobGone("; ".join([f"nothing is stored of job {job_id}: trimmed, purged, or never there", *reasons]))


def _read_totals(queue: Settings) -> Operation[Mapping[str, str]]:
    key = queue.keys.stats
    return Operation(f"read {key}", None, (), ("HGETALL", key), pairs)


def _reasons(settings: Settings, job_id: str, trimmed: int, memory_high_at_ms: int) -> list[str]:
    made = made_at_ms(job_id)
    age_s = None if made is None else wall_ns() / 1e9 - made / 1000
    may_be_expired = age_s is None or age_s > settings.completed_ttl - _MOMENT_S
    reasons = []
    if settings.completed_history == 0 or settings.completed_ttl == 0:
        name = "completed_history" if settings.completed_history == 0 else "completed_ttl"
        reasons.append(f"this queue keeps no results ({name}=0): raise {name} to keep them")
    if trimmed:
        limit = "" if settings.completed_history < 0 else f"={settings.completed_history}"
        reasons.append(
            f"completed_history{limit} has deleted {trimmed:,} results of this queue early: raise it to keep more"
        )
        is_less_kept = not 0 <= settings.completed_history <= HIGH_MEMORY_HISTORY
        if is_less_kept and memory_high_at_ms and (made is None or memory_high_at_ms >= made):
            reasons[-1] += (
                f", and maxmemory, since Redis used over 80 % of that and then {HIGH_MEMORY_HISTORY:,} results are kept"
            )
    if may_be_expired and settings.completed_ttl:
        reasons.append(
            f"results expire after completed_ttl={settings.completed_ttl:g} seconds: raise it to keep them longer"
        )
    return reasons
