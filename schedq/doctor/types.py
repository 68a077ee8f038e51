"""Keys of a queue that are of another type than schedq's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from schedq.doctor.asking import plain
from schedq.doctor.finding import Finding
from schedq.errors import SchedqError
from schedq.keys import QUEUES_KEY, QueueKeys
from schedq.operations import Flow

_TYPES: Final = {
    "pending": "list",
    "processing": "list",
    "completed": "list",
    "failed": "list",
    "cancelled": "list",
    "broken": "list",
    "samples": "list",
    "delayed": "zset",
    "leases": "zset",
    "suspects": "zset",
    "wake": "zset",
    "workers": "zset",
    "schedules": "zset",
    "stats": "hash",
    "settings": "hash",
    "tasks": "hash",
    "standbys": "hash",
    "promoter": "string",
    "paused": "string",
    "log": "stream",
}
_MEANS: Final = {
    "wake": "idle workers are not woken: jobs wait until a worker looks by itself",
    "samples": "rates and charts have nothing to go by",
    "suspects": "jobs that lost two leases wait seconds longer than they must",
    "log": "no move and no action is put on record any more",
    "stats": "totals are not counted, and stats are refused",
    "workers": "workers can't say that they live",
    "schedules": "no schedule makes a job any more",
    "settings": "tools and promoters go by the library's own settings",
    "tasks": "a job that was made by name is judged by the queue's settings, not its task's, when its worker dies",
    "promoter": "nobody can become the one that wakes: what is delayed waits for claims",
    "standbys": "promoters that stand by forget their places, and delete it",
    "paused": "the queue counts as paused",
}


def look(keys: QueueKeys) -> Flow[dict[str, tuple[str, str]]]:
    """The keys that are of a wrong type: name -> which it is, which it should be."""
    named = {getattr(keys, name): kind for name, kind in _TYPES.items()} | {QUEUES_KEY: "set"}
    answers = yield [plain("TYPE", key) for key in named if key != QUEUES_KEY or not keys.tagged]
    found: dict[str, tuple[str, str]] = {}
    for (key, kind), answer in zip(named.items(), answers, strict=False):
        if not isinstance(answer, SchedqError) and answer not in (kind, "none"):
            found[key] = (answer, kind)
    return found


def judge(keys: QueueKeys, found: dict[str, tuple[str, str]]) -> Iterator[Finding]:
    """The findings about them."""
    for key, (kind, right) in found.items():
        name = key.removeprefix(keys.prefix)
        yield Finding(
            "wrong-type",
            "error",
            f"{key} is a {kind}, not a {right}",
            _MEANS.get(name, "whatever needs this key is refused, with an error that names it"),
            f"another program wrote it: look at it, then put it aside with redis-cli RENAME {key} {key}.aside",
            queue=keys.name,
            examples=(key,),
        )
