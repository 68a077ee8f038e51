"""Verbs that are written once and work on both clients: plain calls on a blocking one, awaited on an asyncio one.

A verb is a method that returns a request: what to send, as data. `@verb` and `@stream` turn it into a call that has
the method's arguments and docstring. `Queue` and `AsyncQueue`, `Inspector` and `AsyncInspector`, `Schedules` and
`AsyncSchedules` share their verbs; they differ in how a request is carried out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing
from functools import update_wrapper
from types import FunctionType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from schedq.connection.async_client import AsyncClient
from schedq.connection.client import Client
from schedq.queue.requests import AnyRequest, Listening, acarry_out, alisten, carry_out, listen
from schedq.transitions import Operation

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")


class Verb(Generic[P, T, A]):
    """What `@verb` or `@stream` makes of a method, until a client's class puts one of its functions in its place.

    Attributes:
        blocking: the function of a blocking client, which returns a T.
        awaited: that of an asyncio client, which returns an A.
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
    """Make a verb of a method that returns a request."""

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
    """Make a generator of a method that returns a request which listens."""

    def blocking(self: BlockingVerbs, /, *args: Any, **kwargs: Any) -> Any:
        yield from listen(self._client, make(self, *args, **kwargs))

    async def awaited(self: AsyncVerbs, /, *args: Any, **kwargs: Any) -> Any:
        async with aclosing(alisten(self._client, make(self, *args, **kwargs))) as found:
            async for item in found:
                yield item

    return Verb(_like(make, blocking, "Generator[{}, None, None]"), _like(make, awaited, "AsyncGenerator[{}, None]"))


class BlockingVerbs:
    """A client whose verbs block their caller."""

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        for name, made in _verbs_of(cls):
            setattr(cls, name, made.blocking)

    def _use_client(self, client: Client) -> None:
        self._client, self._ask, self._drive = client, client.ask, client.drive


class AsyncVerbs:
    """A client whose verbs are coroutines, on whichever event loop is running."""

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        for name, made in _verbs_of(cls):
            setattr(cls, name, made.awaited)

    def _use_client(self, client: AsyncClient) -> None:
        self._client, self._ask, self._drive = client, client.ask, client.drive


def _verbs_of(cls: type) -> list[tuple[str, Verb[Any, Any, Any]]]:
    found = ((name, getattr(cls, name)) for name in dir(cls) if not name.startswith("__"))
    return [(name, made) for name, made in found if isinstance(made, Verb)]


def _like(make: Any, call: Any, answer: str) -> FunctionType:
    """Give a call the name, docstring and signature of the method that makes its request.

    Only what it returns differs: not the request, but what that comes to.
    """
    shown = FunctionType(make.__code__, make.__globals__, make.__name__, make.__defaults__, make.__closure__)
    shown.__kwdefaults__ = make.__kwdefaults__
    returned = make.__annotations__["return"].partition("[")[2][:-1]
    shown.__annotations__ = {**make.__annotations__, "return": answer.format(returned)}
    shown.__doc__, shown.__qualname__, shown.__module__ = make.__doc__, make.__qualname__, make.__module__
    update_wrapper(call, shown)
    return cast(FunctionType, call)
