"""Creates dependencies, and cleans them up in reverse order whatever happened in between."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol

from schedq.dependencies.declaration import Marker, Provider, injected, provider_of, providers
from schedq.errors import ArgumentsError, UsageError
from schedq.model.cached_property import cached_property
from schedq.model.callables import place_of
from schedq.model.current_job import current_job

_AT_ONCE: Final = (current_job,)
"""Plain functions that never block: they are called on the event loop, without a thread."""
overrides: Final[dict[Callable[..., Any], Callable[..., Any]]] = {}
"""Replacements of dependencies; `schedq.testing.override` changes them."""
RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in a thread. It waits for the end of the function even if its caller is cancelled."""


class Need(NamedTuple):
    """One value to create.

    Attributes:
        key: functions that need the value find it under this key.
        provider: creates the value.
    """

    key: object
    provider: Provider


class WorkerValues(Protocol):
    """Values that live as long as the worker."""

    def has(self, key: object) -> bool:
        """Whether the value comes from a lifespan."""

    async def get(self, need: Need, values: Values) -> Any:
        """Return the value; create it if it is needed for the first time."""


class Values(dict[object, Any]):
    """The values created for one attempt, by key."""

    def arguments(self, needs: Mapping[str, Provider]) -> dict[str, Any]:
        """Return the values for the parameters of a function."""
        return {name: self[key_of(provider)] for name, provider in needs.items()}


def key_of(provider: Provider) -> object:
    """Return the key of a provider's value. Providers with the same key share it."""
    return provider.function if provider.is_shared else provider


@dataclass(frozen=True, slots=True)
class CreationOrder:
    """The order in which to create the values that one function needs.

    Attributes:
        of_worker: values that live as long as the worker.
        on_loop: values that are created from the event loop, up to the last async one.
        in_thread: plain ones after it, for the thread of a plain function.
    """

    of_worker: tuple[Need, ...]
    on_loop: tuple[Need, ...]
    in_thread: tuple[Need, ...]

    @property
    def of_attempt(self) -> tuple[Need, ...]:
        """All values that are created for the attempt."""
        return self.on_loop + self.in_thread


class Injection:
    """The dependencies of one registered function.

    Attributes:
        names: the parameters that schedq fills in.
    """

    def __init__(self, function: Callable[..., Any], names: frozenset[str]) -> None:
        self._function = function
        self.names = names

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Injection | None:
        """Return the injection of a function; None if it declares no dependency."""
        names = injected(function)
        return cls(function, names) if names else None

    def check(self, given: Mapping[str, Any]) -> None:
        """Check that a call passes none of the parameters.

        Raises:
            ArgumentsError: it passes one.
        """
        if taken := sorted(self.names & given.keys()):
            raise ArgumentsError(
                f"{place_of(self._function)}: schedq fills in {taken[0]!r}, so leave it out; tests replace the "
                "dependency with schedq.testing.override"
            )

    @cached_property
    def needs(self) -> dict[str, Provider]:
        """The provider of each parameter. Read at first use, because annotations may name what is defined later.

        Raises:
            UsageError: a dependency can't be provided.
        """
        return providers(self._function)

    def order(self, worker: WorkerValues) -> CreationOrder:
        """Return the order in which to create the values.

        Raises:
            UsageError: a dependency can't be provided, or one of the worker scope needs one of the attempt scope.
        """
        needs: dict[object, Provider] = {}
        for provider in self.needs.values():
            _add(needs, key_of(provider), provider, worker)
        found = [Need(key, provider) for key, provider in needs.items()]
        of_worker = tuple(each for each in found if each.provider.scope == "worker" or worker.has(each.key))
        of_attempt = [each for each in found if each not in of_worker]
        last = max((n for n, each in enumerate(of_attempt, 1) if each.provider.is_async), default=0)
        return CreationOrder(of_worker, tuple(of_attempt[:last]), tuple(of_attempt[last:]))


def _add(needs: dict[object, Provider], key: object, provider: Provider, worker: WorkerValues) -> None:
    """Add a provider after all its own dependencies."""
    if key in needs:
        return
    if (other := overrides.get(provider.function)) is not None:
        provider = provider_of(Marker(other, provider.scope, provider.is_shared))
    if not worker.has(key):
        for name, each in provider.needs.items():
            if provider.scope == "worker" and each.scope == "attempt" and not worker.has(key_of(each)):
                raise UsageError(
                    f"{place_of(provider.function)} lives as long as the worker, but its parameter {name!r} depends on "
                    f"{place_of(each.function)}, which is created for each attempt"
                )
            _add(needs, key_of(each), each, worker)
    needs[key] = provider


async def enter(needs: Sequence[Need], values: Values, stack: AsyncExitStack, run_in_thread: RunInThread) -> None:
    """Create values from the event loop; the stack cleans them up."""
    for key, provider in needs:
        arguments = values.arguments(provider.needs)
        if provider.is_async and provider.yields:
            values[key] = await stack.enter_async_context(_async_manager(provider)(**arguments))
        elif provider.is_async:
            values[key] = await provider.function(**arguments)
        elif provider.yields:
            manager = _Threaded(_manager(provider)(**arguments), run_in_thread)
            stack.push_async_exit(manager.exit)  # first, because the thread enters it even if this is cancelled
            values[key] = await run_in_thread(manager.enter)
        elif provider.function in _AT_ONCE:
            values[key] = provider.function(**arguments)
        else:
            values[key] = await run_in_thread(partial(provider.function, **arguments))


def call_within(needs: Sequence[Need], values: Values, function: Callable[[Values], Any]) -> Any:
    """Call a plain function with plain dependencies, in this thread. They see its exception but can't suppress it."""
    raised: BaseException | None = None
    with ExitStack() as stack:
        for key, provider in needs:
            arguments = values.arguments(provider.needs)
            if provider.yields:
                values[key] = stack.enter_context(_manager(provider)(**arguments))
            else:
                values[key] = provider.function(**arguments)
        try:
            return function(values)
        except BaseException as error:
            raised = error
            raise
    raise raised  # a dependency has suppressed it


class _Threaded:
    """A plain context manager that is entered and exited in threads."""

    def __init__(self, manager: Any, run_in_thread: RunInThread) -> None:
        self._manager = manager
        self._run_in_thread = run_in_thread
        self._is_entered = False

    def enter(self) -> Any:
        value = self._manager.__enter__()
        self._is_entered = True
        return value

    async def exit(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._is_entered:
            await self._run_in_thread(partial(self._manager.__exit__, kind, error, trace))
        return False


def _manager(provider: Provider) -> Callable[..., Any]:
    function = provider.function
    return contextmanager(function) if inspect.isgeneratorfunction(function) else function


def _async_manager(provider: Provider) -> Callable[..., Any]:
    function = provider.function
    return asynccontextmanager(function) if inspect.isasyncgenfunction(function) else function
