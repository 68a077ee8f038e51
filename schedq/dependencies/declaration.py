"""Reads which dependencies a function declares in its parameters; once, when the function is registered."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import _AsyncGeneratorContextManager, _GeneratorContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeVar, cast, overload

from schedq.errors import UsageError
from schedq.model.callables import place_of
from schedq.model.signatures import signature_of

T = TypeVar("T")
Scope = Literal["attempt", "worker"]
SCOPES: Final = ("attempt", "worker")
_KINDS: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_REPEATED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Marker:
    """The default of a parameter that schedq fills in.

    Attributes:
        function: provides the value.
        scope: how long the value lives.
        is_shared: within one attempt, all parameters that name the same function get the same value.
    """

    ATTRIBUTE: ClassVar = "schedq_marker"
    """A dependency of a web application has a marker in this attribute if it stands for another one in tasks."""
    function: Callable[..., Any]
    scope: Scope = "attempt"
    is_shared: bool = True

    def __repr__(self) -> str:
        return f"Depends({place_of(self.function)})"


@overload
def Depends(dependency: Callable[..., _AsyncGeneratorContextManager[T]], *, scope: Scope = "attempt") -> T: ...
@overload
def Depends(dependency: Callable[..., _GeneratorContextManager[T]], *, scope: Scope = "attempt") -> T: ...
@overload
def Depends(dependency: Callable[..., AsyncIterator[T]], *, scope: Scope = "attempt") -> T: ...
@overload
def Depends(dependency: Callable[..., Iterator[T]], *, scope: Scope = "attempt") -> T: ...
@overload
def Depends(dependency: Callable[..., Awaitable[T]], *, scope: Scope = "attempt") -> T: ...
@overload
def Depends(dependency: Callable[..., T], *, scope: Scope = "attempt") -> T: ...
def Depends(dependency: Callable[..., Any], *, scope: Scope = "attempt") -> Any:  # noqa: N802 - FastAPI's name
    """Use it as the default of a parameter that schedq fills in. Callers leave the parameter out.

    Args:
        dependency: a function, plain or async, that returns the value, or that yields it once and cleans up afterwards.
            It may be decorated with `contextmanager` or `asynccontextmanager`, and have its own dependencies. A
            queue's `lifespan` provides the value that it has yielded.
        scope: "attempt": created for each attempt, and cleaned up when the attempt ends. "worker": created once per
            worker process, when it is first needed, and cleaned up when the worker stops.

    Raises:
        UsageError: the dependency is not callable, or the scope is invalid.
    """
    if not callable(dependency):
        raise UsageError(f"Depends takes a function, got {dependency!r:.200}")
    if scope not in SCOPES:
        raise UsageError(f"the scope of a dependency must be 'attempt' or 'worker', got {scope!r:.200}")
    return Marker(dependency, scope)


@dataclass(frozen=True, slots=True, eq=False)
class Provider:
    """One dependency and its own dependencies.

    Attributes:
        function: provides the value.
        scope: how long the value lives.
        is_shared: it is created once per scope.
        is_async: it is called and cleaned up on the event loop.
        yields: it yields its value and cleans up afterwards.
        needs: its own dependencies, by parameter.
    """

    function: Callable[..., Any]
    scope: Scope
    is_shared: bool
    is_async: bool
    yields: bool
    needs: Mapping[str, Provider]


def injected(function: Callable[..., Any]) -> frozenset[str]:
    """Return the parameters of a task's function that schedq fills in. Only defaults are read; nothing is evaluated."""
    defaults = getattr(function, "__kwdefaults__", None) or {}
    plain = getattr(function, "__defaults__", None) or ()
    if not any(isinstance(each, Marker) for each in (*defaults.values(), *plain)):
        return frozenset()
    parameters = signature_of(function, follow_wrapped=False).parameters.values()
    found = [each.name for each in parameters if isinstance(each.default, Marker)]
    names = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    for name in found:
        after = names[names.index(name) + 1 :] if name in names else []
        if wrong := next((each for each in after if each not in found), ""):
            raise UsageError(
                f"{place_of(function)}: parameter {wrong!r} follows {name!r}, which schedq fills in; move it to the "
                "front, or put * before them"
            )
    return frozenset(found)


def providers(function: Callable[..., Any]) -> dict[str, Provider]:
    """Return the dependencies of a task's function, by parameter.

    Raises:
        UsageError: a dependency depends on itself, or has a parameter that nothing provides.
    """
    parameters = signature_of(function, follow_wrapped=False).parameters.values()
    return {each.name: provider_of(each.default) for each in parameters if isinstance(each.default, Marker)}


def provider_of(marker: Marker, above: tuple[Callable[..., Any], ...] = ()) -> Provider:
    """Return the provider of a marked parameter.

    Args:
        marker: the marker of the parameter.
        above: functions that depend on it, outermost first.

    Raises:
        UsageError: as `providers`.
    """
    if isinstance(found := getattr(marker.function, Marker.ATTRIBUTE, None), Marker):
        marker = found
    function = marker.function
    if function in above:
        circle = " → ".join(place_of(each) for each in (*above[above.index(function) :], function))
        raise UsageError(f"these dependencies need each other: {circle}")
    needs = {name: provider_of(found, (*above, function)) for name, found in _markers(function, marker.scope).items()}
    inner = inspect.unwrap(function)
    called = inner if inspect.isroutine(inner) else getattr(type(inner), "__call__", inner)  # noqa: B004
    is_generator, is_async_generator = inspect.isgeneratorfunction(called), inspect.isasyncgenfunction(called)
    return Provider(
        function,
        marker.scope,
        marker.is_shared,
        is_async=is_async_generator or inspect.iscoroutinefunction(called),
        yields=is_generator or is_async_generator,
        needs=needs,
    )


def _markers(function: Callable[..., Any], scope: Scope) -> dict[str, Marker]:
    """Return the markers of a dependency's own dependencies, by parameter."""
    try:
        parameters = signature_of(function).parameters.values()
    except (ValueError, TypeError):  # some classes of the standard library have no signature; they need no arguments
        return {}
    needs_hints = any(not isinstance(each.default, Marker) for each in parameters)
    hints = _hints(function) if needs_hints else {}
    found = {}
    for each in parameters:
        hint = hints.get(each.name)
        markers = [_marker(one, hint, scope) for one in (each.default, *_metadata(hint))]
        marker = next(filter(None, markers), None)
        if marker is not None:
            found[each.name] = marker
        elif each.default is each.empty and each.kind not in _REPEATED:
            raise UsageError(
                f"dependency {place_of(function)}: nothing provides its parameter {each.name!r}; give it a default, "
                "such as Depends(...)"
            )
        elif _is_foreign(each.default):
            raise UsageError(
                f"dependency {place_of(function)}: parameter {each.name!r} needs data of a web request, which a job "
                "does not have"
            )
    return found


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function.__init__ if inspect.isclass(function) else function
    if not inspect.isroutine(inspect.unwrap(target)):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # noqa: BLE001 - evaluating annotations runs code of the application
        return {}


def _metadata(hint: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", hint.__metadata__) if typing.get_origin(hint) is typing.Annotated else ()


def _marker(default: object, hint: Any, scope: Scope) -> Marker | None:
    """Return the marker in a default or in an annotation, or None. FastAPI's `Depends` means the same."""
    if isinstance(default, Marker):
        return default
    fastapi = _fastapi()
    if fastapi is None or not isinstance(default, fastapi.Depends):
        return None
    function = default.dependency
    if function is None:  # Depends() without an argument means the class in the annotation
        function = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
    if not callable(function):
        raise UsageError(f"{default!r} names no dependency")
    return Marker(function, scope, default.use_cache)


def _is_foreign(default: object) -> bool:
    """Whether a default is one of FastAPI's markers for data of a web request."""
    fastapi = _fastapi()
    return fastapi is not None and isinstance(default, (fastapi.Param, fastapi.Body))


def _fastapi() -> Any:
    """Return FastAPI's module of markers; None if it is not imported, because then there are no such markers."""
    return sys.modules.get("fastapi.params")
