"""The settings that are written down in Redis, and those that each live worker goes by: they should be the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from schedq.doctor.asking import asked, known, plain
from schedq.doctor.finding import Finding, few, many, span
from schedq.operations import Flow
from schedq.operations.upkeep import pairs
from schedq.settings import Settings

_MOST_WORKERS: Final = 200
_SHORT_MS: Final = 5000
_AHEAD_MS: Final = 2000


@dataclass(frozen=True, slots=True)
class Agreement:
    """What is said of a queue's settings, and by whom.

    Attributes:
        stored: the `settings` hash.
        workers: worker id -> the settings that it said it goes by.
        furthest_ms: how far in the future the last lease ends; 0 without one.
        visibility_ms: as stored.
        unreadable: stored fields that make no sense.
    """

    stored: Mapping[str, str]
    workers: Mapping[str, Mapping[str, str]]
    furthest_ms: int
    visibility_ms: int
    unreadable: tuple[str, ...] = field(default=())


def look(queue: Settings, now_ms: int) -> Flow[Agreement]:
    """Ask the hash and the workers; `queue` has learnt what is stored."""
    keys = queue.keys
    stored, ids, last = yield [
        plain("HGETALL", keys.settings),
        plain("ZREVRANGE", keys.workers, 0, _MOST_WORKERS - 1),
        plain("ZRANGE", keys.leases, -1, -1, "WITHSCORES"),
    ]
    names: list[str] = known(ids, [])
    answers = yield from asked([plain("HGET", keys.worker(name), "settings") for name in names])
    said = {name: found for name, answer in zip(names, answers, strict=True) if (found := _said(known(answer, "")))}
    found = pairs(known(stored, []))
    end = known(last, [])
    furthest = int(float(end[1])) - now_ms if end and now_ms else 0
    learnt = Settings(queue.name).with_fields(found).to_fields()
    unreadable = tuple(
        name for name, value in found.items() if name in learnt and value and not _is_same(value, learnt[name])
    )
    return Agreement(found, said, furthest, queue.visibility_ms, unreadable)


def _said(text: str) -> dict[str, str]:
    try:
        found: Any = json.loads(text or "{}")
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _is_same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def judge(queue: str, found: Agreement) -> Iterator[Finding]:
    """The findings about them."""
    for name in found.unreadable:
        yield Finding(
            "settings-unreadable",
            "warning",
            f"the setting {name} is written down as {found.stored[name]!r:.60}",
            "promoters and tools that lack the application go by the library's own value instead",
            f"restart a worker, which writes the settings anew; or redis-cli HDEL queue:{queue}:settings {name}",
            queue=queue,
        )
    yield from _disagreements(queue, found)
    if found.stored and found.visibility_ms < _SHORT_MS:
        yield Finding(
            "visibility-short",
            "note",
            f"visibility_ms is {found.visibility_ms:,}",
            "a stall of the server or the network of that length takes jobs from workers that are well, and they run "
            "twice",
            "5,000 or more, unless a job must not wait that long after a crash",
            queue=queue,
        )
    if found.furthest_ms > 2 * found.visibility_ms + _AHEAD_MS:
        yield Finding(
            "lease-too-long",
            "warning",
            f"a lease ends in {span(found.furthest_ms)}; visibility_ms is {found.visibility_ms:,}",
            "a worker goes by a longer visibility, or Redis's clock has gone back: its death would go unnoticed for "
            "that long",
            "give all workers of the queue the same settings; after a step of the clock a reclaimer shortens such "
            "leases",
            queue=queue,
        )


def _disagreements(queue: str, found: Agreement) -> Iterator[Finding]:
    if found.workers and not found.stored:
        return
    names = {name for said in found.workers.values() for name in said if name in found.stored}
    for name in sorted(names):
        others = {
            worker: said[name]
            for worker, said in found.workers.items()
            if name in said and not _is_same(said[name], found.stored[name])
        }
        if others:
            yield Finding(
                "settings-disagree",
                "warning",
                f"{name} is written down as {found.stored[name]}, and {many(len(others), 'live worker')} "
                f"{'goes' if len(others) == 1 else 'go'} by {', '.join(few(set(others.values())))}",
                "each judges jobs by its own: histories are cut, or attempts counted, by whoever comes last",
                "deploy the same Queue(...) settings everywhere, and restart the workers that have others",
                queue=queue,
                examples=few(others),
            )
