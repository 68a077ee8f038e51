"""Former public names. Each works as before, and warns with the new name when it is used."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class RenamedMethod:
    """The former name of a method."""

    def __init__(self, new: str) -> None:
        self._new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, thing: object, owner: type) -> Any:
        return partial(self._call, owner if thing is None else thing, owner.__name__)

    def _call(self, thing: object, owner: str, *args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"{owner}.{self._name} is now {owner}.{self._new}", DeprecationWarning, stacklevel=2)
        return getattr(thing, self._new)(*args, **kwargs)


class QueueAliases:
    """Former names in `Queue` and `AsyncQueue`."""

    learn_settings = RenamedMethod("load_settings")
    visiting = RenamedMethod("for_operator")


class JobAliases:
    """Former names in `Job`."""

    __slots__ = ()
    await_ = RenamedMethod("await_end")


class WorkerAliases:
    """Former names in `Worker`."""

    stir = RenamedMethod("wake")
    vitals = RenamedMethod("health")


def renamed_option(former: str, new: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take an option by its former name, too."""

    def taking(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if former in kwargs:
                if new in kwargs:
                    raise TypeError(f"{former}= is the former name of {new}=: give only {new}=")
                text = f"{former}= of {function.__qualname__} is now {new}="
                warnings.warn(text, DeprecationWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(former)
            return function(*args, **kwargs)

        return call

    return taking


NAMES: Final = {"Step": "TimelineEvent", "Vital": "QueueHealth"}
"""Former names in `schedq` → current names."""


def name_now(name: str) -> str | None:
    """The current name for a former name in `schedq`; None if it is not a former name."""
    now = NAMES.get(name)
    if now:
        warnings.warn(f"schedq.{name} is now schedq.{now}", DeprecationWarning, stacklevel=3)
    return now
