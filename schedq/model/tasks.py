"""What Redis and other processes know of a task: its name, its options, what a call of it looks like."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from schedq.model import backoff as plans
from schedq.model.payload import decoded, loaded


class TaskOptions(NamedTuple):
    """What a task says of its jobs, as workers write it down for processes without the application's code.

    Attributes:
        max_attempts: claims that its jobs get; None for the queue's.
        backoff: waits between attempts; None for the queue's, also where the task has a function for that.
        timeout_ms: what one attempt may take; None for no limit.
    """

    max_attempts: int | None = None
    backoff: plans.Plan | None = None
    timeout_ms: int | None = None

    def to_text(self) -> str:
        """JSON text of what is said, or ''."""
        plan = None if self.backoff is None else json.loads(plans.to_text(self.backoff))
        said = {"max_attempts": self.max_attempts, "backoff": plan, "timeout_ms": self.timeout_ms}
        given = {name: value for name, value in said.items() if value is not None}
        return json.dumps(given, separators=(",", ":")) if given else ""

    @classmethod
    def from_text(cls, text: str | None) -> TaskOptions:
        """Read what `to_text` wrote; what makes no sense (foreign or newer data) is passed over."""
        said = loaded(text)
        if not isinstance(said, dict):
            return cls()
        most, timeout = (_positive(said.get(name)) for name in ("max_attempts", "timeout_ms"))
        return cls(most, plans.from_text(json.dumps(said.get("backoff"))), timeout)


NO_OPTIONS: Final = TaskOptions()


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def is_task_name(name: object) -> bool:
    """Whether a task may have this name."""
    return isinstance(name, str) and 1 <= len(name) <= 200 and name.isprintable()


def is_task_call(payload: object) -> bool:
    """Whether a payload asks for a task by name."""
    return (
        isinstance(payload, dict)
        and isinstance(payload.get("task"), str)
        and payload.keys() <= {"task", "args", "kwargs"}
        and isinstance(payload.get("args", []), list)
        and isinstance(payload.get("kwargs", {}), dict)
    )


def task_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The payload that asks for a call of a task."""
    payload: dict[str, Any] = {"task": name}
    if args:
        payload["args"] = list(args)
    if kwargs:
        payload["kwargs"] = dict(kwargs)
    return payload


def task_name(text: str) -> str:
    """The task that a payload's JSON text asks for by name; '' if it asks for none, or by what can't be a name."""
    payload = decoded(text)
    name = payload["task"] if is_task_call(payload) else ""
    return name if is_task_name(name) else ""
