"""Which functions can run as jobs, and which arguments they take; checked once, at registration."""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import _AsyncGeneratorContextManager, _GeneratorContextManager
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType, MethodType
from typing import Any, Final, cast

from schedq.errors import ArgumentsError, UsageError
from schedq.model.signatures import signature_of

_UNLIMITED: Final = 1 << 62
_SHOWN: Final = 300
_NOT_RUN: Final[Mapping[type, str]] = {
    GeneratorType: "a generator",
    AsyncGeneratorType: "an async generator",
    CoroutineType: "a coroutine",
    _GeneratorContextManager: "a context manager",
    _AsyncGeneratorContextManager: "an async context manager",
    map: "a map object",
    filter: "a filter object",
}
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_REPEATED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Parameters:
    """The arguments a function takes, prepared so that checking a valid call costs almost nothing.

    Functions that `inspect` knows nothing about (some builtins) are not checked.

    Args:
        name: the task's name, for errors.
        function: the function to call.
        left_out: parameters that callers do not pass.

    Attributes:
        least: the fewest positional arguments of a call without keywords; more than any call has if keywords are
            required.
        most: the most positional arguments of a call.
    """

    __slots__ = ("_name", "_named", "_positional", "_required", "_signature", "least", "most")

    def __init__(self, name: str, function: Callable[..., Any], *, left_out: Collection[str] = ()) -> None:
        self._name = name
        self._signature = _signature(function)
        if left_out and self._signature is not None:
            kept = [each for each in self._signature.parameters.values() if each.name not in left_out]
            self._signature = self._signature.replace(parameters=kept)
        self.least, self.most = 0, _UNLIMITED
        self._positional: tuple[str, ...] = ()
        self._named: frozenset[str] = frozenset()
        self._required: frozenset[str] = frozenset()
        if self._signature is not None:
            self._analyze(list(self._signature.parameters.values()))

    def _analyze(self, parameters: Sequence[inspect.Parameter]) -> None:
        positional = [each for each in parameters if each.kind in _POSITIONAL]
        needed = [each for each in parameters if each.kind not in _REPEATED and each.default is each.empty]
        self.least = len(needed) if all(each.kind in _POSITIONAL for each in needed) else _UNLIMITED
        self.most = _UNLIMITED if any(each.kind is each.VAR_POSITIONAL for each in parameters) else len(positional)
        self._positional = tuple(each.name for each in positional)
        self._required = frozenset(each.name for each in needed)
        if all(each.kind is not each.POSITIONAL_ONLY for each in parameters):
            self._named = frozenset(each.name for each in parameters if each.kind not in _REPEATED)

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Check that a call may have these arguments.

        Raises:
            ArgumentsError: it may not.
        """
        check_kinds(self._name, args, kwargs)
        if not self._accepts(len(args), kwargs):
            self._refuse(args, kwargs)

    def check_names(self, names: Sequence[str]) -> None:
        """Check that the function has parameters of these names.

        Raises:
            UsageError: it has not.
        """
        known = {} if self._signature is None else self._signature.parameters
        for name in names:
            if name not in known:
                raise UsageError(f"it has no parameter {name!r}; its parameters are {', '.join(known) or 'not known'}")

    def with_defaults(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """A valid call with the defaults of the parameters that it does not give."""
        if self._signature is None:
            return args, kwargs
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a valid call by the names of their parameters."""
        if self._signature is None:
            return {"args": list(args), "kwargs": dict(kwargs)}
        return dict(self._signature.bind(*args, **kwargs).arguments)

    def _accepts(self, count: int, kwargs: Mapping[str, Any]) -> bool:
        """Whether a call is certainly valid; if not, the signature decides."""
        if not kwargs:
            return self.least <= count <= self.most
        given = self._positional[:count]
        return (
            count <= len(self._positional)
            and kwargs.keys() <= self._named
            and kwargs.keys().isdisjoint(given)
            and self._required <= kwargs.keys() | given
        )

    def _refuse(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise an error in Python's own words, unless Python would accept the call."""
        if self._signature is None:
            return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            bare = [each.replace(annotation=each.empty) for each in self._signature.parameters.values()]
            shown = f"{self._name}{inspect.Signature(bare)}"
            shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
            raise ArgumentsError(f"task {self._name!r}: {error}; it is {shown}") from None


def check_kinds(task: str, args: object, kwargs: object) -> None:
    """Check that these are a sequence and a mapping: a str or a dict would be split into its letters or keys.

    Raises:
        ArgumentsError: they are not.
    """
    if not isinstance(args, Sequence) or isinstance(args, (str, bytes, bytearray, memoryview)):
        raise ArgumentsError(f"task {task!r}: positional arguments must be a list or tuple, got {args!r:.100}")
    if kwargs and not isinstance(kwargs, Mapping):
        raise ArgumentsError(f"task {task!r}: keyword arguments must be a dict, got {kwargs!r:.100}")


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of the function itself; None if it is not known.

    The function inside a decorator does not count: the decorator may pass arguments of its own.
    """
    try:
        return signature_of(function, follow_wrapped=False)
    except (ValueError, TypeError):
        return None


def runnable(function: object, what: str) -> Callable[..., Any]:
    """Return a function that jobs can call; `what` ("task" or "handler") is for errors.

    Raises:
        UsageError: it is not a function, or calling it would not do its work.
    """
    if isinstance(function, staticmethod):
        function = function.__func__
    kind = f"a {what} must be a function"
    if inspect.iscoroutine(function):
        function.close()
        raise UsageError(f"{kind}, got the coroutine {function.__qualname__}: leave out the () after its name")
    if isinstance(function, classmethod):
        raise UsageError(
            f"{kind}, got a classmethod object: register the method of the class, as in {what}(Class.name)"
        )
    if inspect.isclass(function):
        raise UsageError(f"{kind}, got the class {place_of(function)}: register a function that uses it")
    if not callable(function):
        raise UsageError(f"{kind}, got {function!r:.200}")
    if _is_generator(function):
        raise UsageError(
            f"{kind}, and {place_of(function)} is a generator: calling it runs none of its code; collect what it "
            "yields in a plain function"
        )
    if _is_unbound(function):
        raise UsageError(
            f"{kind}, and {place_of(function)} is a method, for which a job has no object: use a function, a "
            f"staticmethod, or the method of an object, as in {what}(object.name)"
        )
    return cast(Callable[..., Any], function)


def global_at(module: str, name: str) -> Any:
    """The object of a module at a dotted name; None if there is none. The module is not imported for this."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function's task: the function's own.

    Raises:
        UsageError: it has none.
    """
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise UsageError(f"{function!r:.200} has no name of its own: give its task one, name='...'")
    return name


def not_run(result: object) -> str:
    """What a function returned, such as 'a generator', if it is code that has not run; else ''."""
    return _NOT_RUN.get(type(result), "")


def place_of(function: Callable[..., Any]) -> str:
    """A function's module and qualified name."""
    inner = _inner(function)
    return f"{getattr(inner, '__module__', '?')}.{getattr(inner, '__qualname__', inner)}"


def is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether they are the same function, even if its module was loaded again."""
    if _is_one(one, other):
        return True
    place = place_of(one)
    return place == place_of(other) and "<locals>" not in place and not _are_distinct(one, other)


def _are_distinct(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether both are in one file, where the second would silently replace the first.

    A file that was edited and reloaded contains only one of them now. Reloading creates a new code object, so two
    functions with the same code object are methods of two objects, partials with different arguments, or come from a
    `def` in a loop.
    """
    first, second = (getattr(inspect.unwrap(_inner(function)), "__code__", None) for function in (one, other))
    if first is None or second is None:
        return False
    if first is second:
        return not hasattr(_inner(one), "__wrapped__")
    if first.co_filename != second.co_filename or first.co_firstlineno == second.co_firstlineno:
        return False
    linecache.checkcache(first.co_filename)
    # Code run by `exec` has the file name <string>; since Python 3.13 linecache holds the text of `python -c` under it.
    lines = [] if first.co_filename.startswith("<") else linecache.getlines(first.co_filename)
    if not lines:
        return True  # no file that could have been edited
    found = [_defined_at(lines, code.co_firstlineno, code.co_name) for code in (first, second)]
    return found[0] is not None and found[1] is not None and found[0] != found[1]


def _is_one(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two objects are the same function: each access to a method creates a new object."""
    if isinstance(one, partial) and isinstance(other, partial):
        return _is_one(one.func, other.func) and (one.args, one.keywords) == (other.args, other.keywords)
    return one is other or (isinstance(one, MethodType) and one == other)


def _defined_at(lines: Sequence[str], first: int, name: str) -> int | None:
    """The line of a function's `def`, if its code begins, perhaps with decorators, at line `first`."""
    if not 1 <= first <= len(lines):
        return None
    if name == "<lambda>":
        return first if "lambda" in lines[first - 1] else None
    if not re.match(r"\s*(@|def\b|async\b)", lines[first - 1]):
        return None
    for number, line in enumerate(lines[first - 1 :], first):
        if found := re.match(r"\s*(?:async\s+)?def\s+(\w+)", line):
            return number if found[1] == name else None
    return None


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, partial):
        function = function.func
    return cast(Callable[..., Any], getattr(function, "__func__", function))


def _is_generator(function: Callable[..., Any]) -> bool:
    asked = [function, getattr(type(_inner(function)), "__call__", None)]  # noqa: B004 - its __call__ may be a generator
    return any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in asked)


def _is_unbound(function: Callable[..., Any]) -> bool:
    """Whether it is a method that is not bound to an object."""
    outer = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    if not inspect.isfunction(function) or not outer or outer.endswith("<locals>"):
        return False
    try:
        first = next(iter(signature_of(function).parameters), "")
    except (ValueError, TypeError):
        return False
    return first in ("self", "cls")
