"""An attribute that is computed at its first use, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class cached_property(Generic[T_co]):  # noqa: N801 - it replaces the class of this name in functools
    """Computes an attribute at its first use and keeps the value.

    In Python 3.11 that of functools has a lock, which all instances share. If a process forks while another thread
    holds it, a child that reads the attribute waits forever. Here, threads that read it first at the same time may each
    compute it, so the value must not depend on who does.
    """

    def __init__(self, compute: Callable[[Any], T_co]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T_co: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T_co:
        if instance is None:
            return self
        # setdefault, so that all threads get the same value
        value: T_co = vars(instance).setdefault(self.name, self._compute(instance))
        return value
