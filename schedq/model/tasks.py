"""What Redis and other processes know about a task: its name, its options, the payload of a call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from schedq.model import backoff as plans
from schedq.model.payload import decoded, loaded


class TaskOptions(NamedTuple):
    """The options of a task's jobs, which workers store for processes without the application's code.

    Attributes:
        max_attempts: how often its jobs may be claimed; None for the queue's setting.
        backoff: waits between attempts; None for the queue's setting, or if the task has a backoff function.
        timeout_ms: the longest an attempt may take; None for no limit.
        completed_ttl_ms: how long records of completed jobs are kept; None for the queue's setting.
        failed_ttl_ms: how long records of failed and cancelled jobs are kept; None for the queue's setting.
    """

    max_attempts: int | None = None
    backoff: plans.Plan | None = None
    timeout_ms: int | None = None
    completed_ttl_ms: int | None = None
    failed_ttl_ms: int | None = None

    def to_text(self) -> str:
        """The options that are set, as JSON text; '' if none is."""
        plan = None if self.backoff is None else json.loads(plans.to_text(self.backoff))
        given = {name: value for name, value in (self._asdict() | {"backoff": plan}).items() if value is not None}
        return json.dumps(given, separators=(",", ":")) if given else ""

    @classmethod
    def from_text(cls, text: str | None) -> TaskOptions:
        """Read what `to_text` wrote; invalid values (foreign or newer data) are ignored."""
        said = loaded(text)
        if not isinstance(said, dict):
            return cls()
        most, timeout = (_at_least(1, said.get(name)) for name in ("max_attempts", "timeout_ms"))
        ttls = (_at_least(0, said.get(name)) for name in ("completed_ttl_ms", "failed_ttl_ms"))
        return cls(most, plans.from_text(json.dumps(said.get("backoff"))), timeout, *ttls)


NO_OPTIONS: Final = TaskOptions()


def _at_least(least: int, value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else None


def is_task_name(name: object) -> bool:
    """Whether it is a valid name of a task."""
    return isinstance(name, str) and 1 <= len(name) <= 200 and name.isprintable()


def is_task_call(payload: object) -> bool:
    """Whether a payload is a call of a task by name."""
    return (
        isinstance(payload, dict)
        and isinstance(payload.get("task"), str)
        and payload.keys() <= {"task", "args", "kwargs"}
        and isinstance(payload.get("args", []), list)
        and isinstance(payload.get("kwargs", {}), dict)
    )


def task_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of a call of a task."""
    payload: dict[str, Any] = {"task": name}
    if args:
        payload["args"] = list(args)
    if kwargs:
        payload["kwargs"] = dict(kwargs)
    return payload


def task_name(text: str) -> str:
    """The name of the task that a payload, given as JSON text, calls; '' if there is none or it is invalid."""
    payload = decoded(text)
    name = payload["task"] if is_task_call(payload) else ""
    return name if is_task_name(name) else ""
