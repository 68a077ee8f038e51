"""The gate of a task and the keys of its jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schedq.errors import UsageError
from schedq.model.gates import Gate, KeyOf, checked_key, declare, gate_name
from schedq.model.settings import Settings
from schedq.queue.handler import Handler

KeyBy = str | Callable[..., Any]
"""The name of a parameter whose value is the key, or a function of the task's arguments that returns it."""


def gate_of(queue: Settings, handler: Handler, given: Mapping[str, Any]) -> tuple[str, KeyOf | None]:
    """The name of a task's gate, and how its jobs get their keys; None if they have none.

    Args:
        queue: the queue of the task. Limits of the task itself are defined there as a gate with its name.
        handler: the task's function.
        given: the options of the task that concern its gate.

    Raises:
        UsageError: an option is invalid, or options contradict each other.
    """
    said = {name: value for name, value in given.items() if value is not None}
    gate, key = said.pop("gate", None), said.pop("key", None)
    try:
        if gate is not None and said:
            limits = ", ".join(f"{name}=" for name in said)
            raise UsageError(f"give gate= or limits of the task alone ({limits}), not both: a job has one gate")
        if gate is None and not said:
            raise UsageError(f"key={key!r:.100} needs a gate: give gate=, or limits such as key_concurrency= or rate=")
        rule = None if key is None else _checked_rule(handler, key)
        name = gate_name(queue.gates, gate) if gate is not None else _own_gate(queue, handler, said)
    except UsageError as error:
        raise UsageError(f"task {handler.name!r}: {error}") from None
    return name, rule


def _own_gate(queue: Settings, handler: Handler, limits: dict[str, Any]) -> str:
    try:
        gate = Gate(handler.name, **limits)
    except UsageError as error:
        more = "; limits of a task make a gate with its name, so give name=, or gate=queue.gate(...)"
        raise UsageError(f"{error}{more if str(error).startswith('gate name') else ''}") from None
    return declare(queue.gates, gate).name


def _checked_rule(handler: Handler, key: object) -> KeyOf:
    if isinstance(key, str):
        handler.parameters.check_names([key])
    elif not callable(key):
        raise UsageError(
            f"key must be the name of a parameter or a function of the arguments, got {key!r:.100}; for one call write "
            "options(key=...)"
        )
    return KeyOf(key)


def key_text(handler: Handler, rule: KeyOf, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The key of a call with these arguments, which the function accepts; '' without one.

    Raises:
        UsageError: it is invalid.
    """
    if isinstance(rule.by, str):
        value = handler.stored_arguments(args, kwargs).get(rule.by)
    else:
        value = rule.by(*args, **kwargs)
    try:
        return checked_key(value)
    except UsageError as error:
        raise UsageError(f"task {handler.name!r}: {error}") from None
