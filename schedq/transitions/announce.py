"""Store a queue's name, settings and task options for processes without the application's code; read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from schedq.model.keys import QUEUES_KEY
from schedq.model.settings import Settings
from schedq.model.tasks import TaskOptions
from schedq.transitions import Binding, Operation, identity, pairs

_WRITE_SETTINGS: Final = Binding("write_settings", "count", "words")
NO_TASKS: Final[Mapping[str, TaskOptions]] = {}


def enlist(*queues: Settings) -> Operation[bool]:
    """Register the queues' names in `schedq:queues`; if another node has that key, see `Address.enlist`."""
    return Operation("enlist", None, (), ("SADD", QUEUES_KEY, *(queue.name for queue in queues)), bool)


def announce(queue: Settings, tasks: Mapping[str, TaskOptions] = NO_TASKS) -> Operation[bool]:
    """Store the settings, and the options of the application's tasks, for processes without the application's code."""
    flat = [word for pair in queue.stored_fields().items() for word in pair]
    options = [word for name, said in tasks.items() for word in (name, said.to_text())]
    return Operation("announce", *_WRITE_SETTINGS(queue, count=len(flat), words=[*flat, *options]), bool)


def read_task_options(queue: Settings, names: Sequence[str]) -> Operation[dict[str, TaskOptions]]:
    """The stored options of some tasks; tasks without stored options are left out."""
    key = queue.keys.tasks

    def read(reply: list[str | None]) -> dict[str, TaskOptions]:
        return {name: TaskOptions.from_text(text) for name, text in zip(names, reply, strict=True) if text}

    return Operation(f"read {key}", None, (), ("HMGET", key, *names), read)


def read_settings(queue: Settings) -> Operation[dict[str, str]]:
    """The fields of the `settings` hash; empty if no worker has written it."""
    key = queue.keys.settings
    return Operation(f"read {key}", None, (), ("HGETALL", key), pairs)


def report_outbox(queue: Settings, name: str, facts: str) -> Operation[object]:
    """Store how many rows of an outbox wait for a relay, since when, and when that was read; see `inspect.stats`."""
    return Operation("report", None, (), ("HSET", queue.keys.stats, f"outbox:{name}", facts), identity)
