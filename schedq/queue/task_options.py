"""The options of a task as its decorator takes them, and the options that its jobs get from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from schedq.errors import ArgumentsError, UsageError
from schedq.model.durability import Durability, checked_durability
from schedq.model.records import Options
from schedq.model.settings import Settings
from schedq.queue.handler import Handler, HandlerOptions
from schedq.queue.other_engines import no_option

if TYPE_CHECKING:  # imported by the first task that has a gate or is unique
    from schedq.model.gates import Gate, Rates
    from schedq.model.unique import Debounce, Unique, Uniqueness
    from schedq.queue.gate_options import KeyBy


class GivenOptions(HandlerOptions, total=False):
    """All options of a task, except its name; None means not given."""

    durability: Durability | None
    unique: Uniqueness | None
    gate: Gate | str | None
    key: KeyBy | None
    concurrency: int | None
    rate: Rates | None
    key_concurrency: int | None
    key_rate: Rates | None
    serial: bool | None


_NAMES: Final = GivenOptions.__required_keys__ | GivenOptions.__optional_keys__
_LIMITS: Final = frozenset({"concurrency", "rate", "key_concurrency", "key_rate", "serial"})
_OF_GATES: Final = frozenset({"gate", "key"}) | _LIMITS
_NOT_OF_HANDLERS: Final = frozenset({"durability", "unique"}) | _OF_GATES
_UNCHANGED: Final = ("max_attempts", "timeout", "completed_ttl", "failed_ttl")
"""Options that apply to the jobs of a task as they were given."""


def checked_names(task: str, given: GivenOptions) -> GivenOptions:
    """The options of a task, if all of them have names that tasks know.

    Raises:
        ArgumentsError: one has not.
    """
    for name in given:
        if name not in _NAMES:
            raise ArgumentsError(no_option(task, name, _NAMES))
    return given


def inherited(own: GivenOptions, given: GivenOptions) -> GivenOptions:
    """The options of a task that is registered with a second queue: those given there take precedence."""
    new = {name: value for name, value in given.items() if value is not None}
    if "gate" in new or not _LIMITS.isdisjoint(new):
        own = cast(GivenOptions, {name: value for name, value in own.items() if name not in {"gate"} | _LIMITS})
    return cast(GivenOptions, {**own, **new})


def of_handler(given: GivenOptions) -> HandlerOptions:
    """Those of a task's options that concern its attempts."""
    return cast(HandlerOptions, {name: value for name, value in given.items() if name not in _NOT_OF_HANDLERS})


def of_jobs(queue: Settings, handler: Handler, given: GivenOptions) -> Options:
    """The options of a task's jobs. Its own limits, if it has any, become a gate of the queue.

    Raises:
        UsageError: an option is invalid; the message names it.
    """
    plan, durability = given.get("backoff"), given.get("durability")
    own: dict[str, Any] = {name: given.get(name) for name in _UNCHANGED}
    made = Options(
        backoff=None if callable(plan) else plan,
        durability=None if durability is None else checked_durability(durability),
        unique=_rule_of(handler, given.get("unique")),
        **own,
    )
    if _OF_GATES.isdisjoint(given):
        return made
    from schedq.queue.gate_options import gate_of

    said = {name: value for name, value in given.items() if name in _OF_GATES}
    gate, key = gate_of(queue, handler, said)
    return made._replace(gate=gate, key=key)


def _rule_of(handler: Handler, unique: object) -> Unique | Debounce | None:
    if unique is None:
        return None
    from schedq.queue.unique_key import checked_for

    return checked_for(handler, unique)


def with_keys(
    queue: Settings, handler: Handler, options: Options, unique: object, gate: object, key: object
) -> Options:
    """The options with another rule for unique jobs, another gate and another key, where they are given.

    Raises:
        UsageError: one is invalid, or there is a key without a gate.
    """
    if unique is not None:
        options = options._replace(unique=_rule_of(handler, unique))
    if gate is None and key is None:
        return options
    from schedq.model import gates

    try:
        name = options.gate if gate is None else gates.gate_name(queue.gates, gate)
        rule = options.key if key is None else gates.checked_key(key)
        if not isinstance(rule, gates.KeyOf):
            gates.stored_gate(queue.gates, name, rule)
    except UsageError as error:
        raise UsageError(f"task {handler.name!r}: {error}") from None
    return options._replace(gate=name, key=rule)


def is_keyed(options: Options) -> bool:
    """Whether a key of each job may depend on its arguments."""
    return options.unique is not None or isinstance(options.key, tuple)


def of_all(options: Options) -> Options:
    """Those options that all jobs of one request have in common."""
    key = None if isinstance(options.key, tuple) else options.key
    return options._replace(job_id=None, unique=None, key=key)


def keyed(handler: Handler, options: Options, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Options:
    """The options of a job that calls the function with these arguments: its unique key, and its key in its gate.

    Raises:
        UsageError: a value that makes a key is invalid.
    """
    if options.unique is not None:
        from schedq.queue.unique_key import key_of

        options = options._replace(unique=key_of(handler, cast("Unique | Debounce", options.unique), args, kwargs))
    if isinstance(options.key, tuple):
        from schedq.queue.gate_options import key_text

        options = options._replace(key=key_text(handler, options.key, args, kwargs))
    return options
