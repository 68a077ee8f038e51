"""Verbs: methods written once for both clients, called on a blocking one, awaited on an asyncio one.

A verb is a method that returns a request: what to send, as data. `@verb` and `@stream` turn it into a method with the
same arguments and docstring that carries the request out. `Queue` and `AsyncQueue`, `Inspector` and `AsyncInspector`,
`Schedules` and `AsyncSchedules` share their verbs; they differ only in how a request is carried out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing
from functools import update_wrapper
from types import FunctionType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from schedq.queue.requests import AnyRequest, Connections, Listening, acarry_out, alisten, carry_out, listen
from schedq.transitions import Operation

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")


class Verb(Generic[P, T, A]):
    """The two functions that `@verb` or `@stream` makes of a method. A client's class replaces it by one of them.

    Attributes:
        blocking: the function for a blocking client; returns a T.
        awaited: the function for an asyncio client; returns an A.
    """

    def __init__(self, blocking: FunctionType, awaited: FunctionType) -> None:
        self.blocking, self.awaited = blocking, awaited

    @overload
    def __get__(self, client: BlockingVerbs, owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncVerbs, owner: Any) -> Callable[P, A]: ...
    @overload
    def __get__(self, client: None, owner: type[BlockingVerbs]) -> Callable[Concatenate[Any, P], T]: ...
    @overload
    def __get__(self, client: None, owner: type[AsyncVerbs]) -> Callable[Concatenate[Any, P], A]: ...
    def __get__(self, client: object, owner: Any) -> Any:
        return self


def verb(make: Callable[Concatenate[Any, P], AnyRequest[T]]) -> Verb[P, T, Coroutine[Any, Any, T]]:
    """Turn a method that returns a request into a verb."""

    def blocking(self: BlockingVerbs, /, *args: Any, **kwargs: Any) -> Any:
        request: Any = make(self, *args, **kwargs)
        return self._ask(request) if request.__class__ is Operation else carry_out(self._client, request)

    async def awaited(self: AsyncVerbs, /, *args: Any, **kwargs: Any) -> Any:
        request: Any = make(self, *args, **kwargs)
        return await (self._ask(request) if request.__class__ is Operation else acarry_out(self._client, request))

    return Verb(_like(make, blocking, "{}"), _like(make, awaited, "{}"))


def stream(
    make: Callable[Concatenate[Any, P], Listening[T]],
) -> Verb[P, Generator[T, None, None], AsyncGenerator[T, None]]:
    """Turn a method that returns a listening request into a generator."""

    def blocking(self: BlockingVerbs, /, *args: Any, **kwargs: Any) -> Any:
        yield from listen(self._client, make(self, *args, **kwargs))

    async def awaited(self: AsyncVerbs, /, *args: Any, **kwargs: Any) -> Any:
        async with aclosing(alisten(self._client, make(self, *args, **kwargs))) as found:
            async for item in found:
                yield item

    return Verb(_like(make, blocking, "Generator[{}, None, None]"), _like(make, awaited, "AsyncGenerator[{}, None]"))


class BlockingVerbs:
    """A client whose verbs block the caller."""

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        for name, made in _verbs_of(cls):
            setattr(cls, name, made.blocking)

    def _follow(self, connections: Connections) -> None:
        client = connections.blocking
        self._client, self._ask, self._drive = client, client.ask, client.drive
        connections.followers.add(self)


class AsyncVerbs:
    """A client whose verbs are coroutines and use the running event loop."""

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        for name, made in _verbs_of(cls):
            setattr(cls, name, made.awaited)

    def _follow(self, connections: Connections) -> None:
        client = connections.aio
        self._client, self._ask, self._drive = client, client.ask, client.drive
        connections.followers.add(self)


def _verbs_of(cls: type) -> list[tuple[str, Verb[Any, Any, Any]]]:
    found = ((name, getattr(cls, name)) for name in dir(cls) if not name.startswith("__"))
    return [(name, made) for name, made in found if isinstance(made, Verb)]


def _like(make: Any, call: Any, returns: str) -> FunctionType:
    """Give `call` the name, docstring and signature of `make`, the method that returns its request.

    Only the return type differs: the result of the request instead of the request.
    """
    shown = FunctionType(make.__code__, make.__globals__, make.__name__, make.__defaults__, make.__closure__)
    shown.__kwdefaults__ = make.__kwdefaults__
    returned = make.__annotations__["return"].partition("[")[2][:-1]
    shown.__annotations__ = {**make.__annotations__, "return": returns.format(returned)}
    shown.__doc__, shown.__qualname__, shown.__module__ = make.__doc__, make.__qualname__, make.__module__
    update_wrapper(call, shown)
    return cast(FunctionType, call)
