"""Records and figures as objects of JSON: what commands print with `--json`, and what the dashboard's API returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from schedq.inspect.task_stats import CountedTime
from schedq.model.task_stats import Counts, Histogram


def plain(record: Any) -> dict[str, Any]:
    """A job or a schedule: decoded fields, times in ms. `payload_text` is added only if the payload can't be read."""
    found = {name: getattr(record, name) for name in record.__slots__ if name != "fields"}
    if (progress := found.get("progress")) is not None:
        found["progress"] = {**asdict(progress), "fraction": progress.fraction}
    text = record.fields.get("payload")
    if record.payload is None and text not in (None, "null"):
        found["payload_text"] = text
    return found


def schedule_page(
    queue: str, now_ms: int, records: Sequence[Any], offset: int, next_offset: int | None
) -> dict[str, Any]:
    """A page of schedules, each with the outcome of its last slot; `next_offset` is None on the last page."""
    found = {"queue": queue, "now_ms": now_ms, "schedules": [_brief(record) for record in records]}
    return found | {"offset": offset, "next_offset": next_offset}


def _brief(record: Any) -> dict[str, Any]:
    found = plain(record)
    slots = found.pop("slots")
    return found | {"last_slot": asdict(slots[0]) if slots else None}


def schedule(queue: str, now_ms: int, record: Any) -> dict[str, Any]:
    """Everything stored about one schedule."""
    found = {**plain(record), "slots": [asdict(slot) for slot in record.slots]}
    return {"queue": queue, "now_ms": now_ms, **found, "fields": dict(record.fields)}


def by_run_time(period: CountedTime) -> list[tuple[str, Counts]]:
    """Tasks and counts, the task that ran most in front."""
    return sorted(period.tasks.items(), key=lambda each: (-each[1].run_ms, each[0]))


def task_figures(queue: str, period: CountedTime, task: str | None) -> dict[str, Any]:
    """The figures of all tasks, or of one."""
    return {
        "queue": queue,
        "since_ms": period.since_ms,
        "until_ms": period.until_ms,
        "tasks": [{"task": each, **figures(counts)} for each, counts in by_run_time(period) if task in (None, each)],
    }


def figures(counts: Counts) -> dict[str, Any]:
    """Counts; a bin is named by the first duration above it, in ms."""
    return {
        "completed": counts.completed,
        "failed": counts.failed,
        "retried": counts.retried,
        "cancelled": counts.cancelled,
        "error_rate": counts.error_rate,
        "run": _histogram(counts.run, counts.run_quantile_ms, counts.longest_ms),
        "lateness": _histogram(counts.lateness, counts.lateness_quantile_ms, counts.latest_ms),
    }


def _histogram(found: Histogram, quantile: Callable[[float], float | None], longest_ms: int) -> dict[str, Any]:
    bins = [
        {"below_ms": round(found.edges(number)[1], 3), "count": count} for number, count in sorted(found.bins.items())
    ]
    p50, p99 = quantile(0.5), quantile(0.99)
    return {"count": found.count, "p50_ms": p50, "p99_ms": p99, "longest_ms": longest_ms, "bins": bins}
