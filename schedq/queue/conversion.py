"""Converts arguments and results of types that JSON lacks, such as datetime or a dataclass, by their annotations.

A parameter whose annotation JSON can express, or that has none, is not converted. msgspec converts the others. It is
imported when the first function with such an annotation is used.
"""

from __future__ import annotations

import collections.abc
import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple

from schedq.errors import ArgumentsError
from schedq.model.placeholder import ResultPlaceholder
from schedq.model.signatures import annotations_of, signature_of

_PLAIN: Final = frozenset(
    {Any, object, str, int, float, bool, None, type(None), list, dict, inspect.Parameter.empty}
    | {collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection, collections.abc.Mapping}
)
"""Types that JSON has; containers of them too, if their keys are strings."""
_PLAIN_WORDS: Final = frozenset(
    f"{word}{end}"
    for word in ("str", "int", "float", "bool", "None", "list", "dict", "Any", "object")
    for end in ("", " | None")
)
_UNIONS: Final = (typing.Union, types.UnionType)
_AWAITED: Final = (collections.abc.Awaitable, collections.abc.Coroutine)
_KEYED: Final = (dict, collections.abc.Mapping)


class _NotConvertible(Exception):  # noqa: N818 - a fact about an annotation
    """JSON can't be converted to a value of this annotation."""


_FLOW_NODE: Final = "FlowNode"
"""What a function that declares a flow returns; the result of its jobs is that of the node."""
_Convert = Callable[[Any, Any], Any]
"""Returns the converted value, given a value and the type of its annotation."""


class Conversion(NamedTuple):
    """Converts the arguments and the result of one function to JSON types, and back.

    Attributes:
        task: the task's name, for errors.
        by_position: the type of each positional parameter; None: do not convert it.
        by_name: the type of each parameter that may be given by name, except those that are not converted.
        more_args, more_kwargs: the types for `*args` and `**kwargs`.
        returned: the type of the result.
    """

    task: str
    by_position: tuple[Any, ...]
    by_name: Mapping[str, Any]
    more_args: Any
    more_kwargs: Any
    returned: Any

    def encode_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Convert arguments to JSON types.

        Raises:
            ArgumentsError: an argument does not have the type in its annotation.
        """
        return self._each(_encode, args, kwargs)

    def decode_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Convert arguments from JSON types to those in the annotations.

        Raises:
            ArgumentsError: an argument can't be converted.
        """
        return self._each(_decode, args, kwargs)

    def encode_result(self, value: Any) -> Any:
        """Convert a result to JSON types.

        Raises:
            ArgumentsError: it does not have the type in the annotation.
        """
        return self._converted(_encode, value, self.returned, "result")

    def decode_result(self, value: Any) -> Any:
        """Convert a result from JSON types to the type in the annotation.

        Raises:
            ArgumentsError: it can't be converted.
        """
        return self._converted(_decode, value, self.returned, "result")

    def _each(
        self, convert: _Convert, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        named = len(self.by_position)
        by_position, by_name = list(args), dict(kwargs)
        for n, value in enumerate(by_position):
            wanted = self.by_position[n] if n < named else self.more_args
            if wanted is not None and not isinstance(value, ResultPlaceholder):
                by_position[n] = self._converted(convert, value, wanted, "args[{}]", n)
        for name, value in by_name.items():
            wanted = self.by_name.get(name, self.more_kwargs)
            if wanted is not None and not isinstance(value, ResultPlaceholder):
                by_name[name] = self._converted(convert, value, wanted, "kwargs[{!r}]", name)
        return by_position, by_name

    def _converted(self, convert: _Convert, value: Any, wanted: Any, place: str, at: object = "") -> Any:
        if wanted is None:
            return value
        try:
            return convert(value, wanted)
        except Exception as error:
            what, mark, inside = str(error).rpartition(" - at `$")  # as in: Expected `int`, got `str` - at `$.customer`
            what, inside = (what, inside.removesuffix("`")) if mark else (str(error), "")
            raise ArgumentsError(f"task {self.task!r}: {place.format(at)}{inside}: {what}") from error


class Converter:
    """The conversion of one function. It is built at first use, because annotations may name what is defined later."""

    def __init__(self, task: str, function: Callable[..., Any], left_out: Collection[str] = ()) -> None:
        self._task, self._function, self._left_out = task, function, left_out
        self._is_known = False
        self._conversion: Conversion | None = None

    @property
    def conversion(self) -> Conversion | None:
        """The conversion; None if the arguments and the result are JSON already."""
        if not self._is_known:
            self._conversion = conversion_of(self._task, self._function, self._left_out)
            self._is_known = True
        return self._conversion


def may_convert(function: Callable[..., Any]) -> bool:
    """Whether a function has an annotation that must be evaluated. If not, nothing is imported or evaluated."""
    return not all(map(_is_evidently_plain, annotations_of(_inner(function)).values()))


def conversion_of(task: str, function: Callable[..., Any], left_out: Collection[str] = ()) -> Conversion | None:
    """Return the conversion of a function, without the parameters in `left_out`; None if it needs none."""
    try:
        signature = signature_of(function, follow_wrapped=False)
    except (ValueError, TypeError):
        return None
    space = getattr(_inner(function), "__globals__", {})

    def wanted(place: str, annotation: Any) -> Any:
        return _wanted(task, place, annotation, space)

    by_position: list[Any] = []
    by_name: dict[str, Any] = {}
    rest: dict[Any, Any] = {}
    for each in signature.parameters.values():
        if each.name in left_out:
            continue
        found = wanted(f"parameter {each.name}", each.annotation)
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            rest[each.kind] = found
            continue
        if each.kind is not each.KEYWORD_ONLY:
            by_position.append(found)
        if each.kind is not each.POSITIONAL_ONLY:
            by_name[each.name] = found
    more_args, more_kwargs = rest.get(inspect.Parameter.VAR_POSITIONAL), rest.get(inspect.Parameter.VAR_KEYWORD)
    returned = wanted("its result", signature.return_annotation)
    if all(each is None for each in (*by_position, *by_name.values(), more_args, more_kwargs, returned)):
        return None
    return Conversion(task, tuple(by_position), by_name, more_args, more_kwargs, returned)


def _wanted(task: str, place: str, annotation: Any, space: dict[str, Any]) -> Any:
    """Return the type to convert to; None if JSON can express the annotation, or if it can't be used."""
    if _is_evidently_plain(annotation):
        return None
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        evaluated = typing.get_type_hints(holder, globalns=space)["it"]
    except Exception as error:  # noqa: BLE001 - evaluating an annotation runs code of the application
        from schedq.logs import log

        text = "task %s: the annotation of %s can't be evaluated (%s: %s), so it stays plain JSON"
        log.warning(text, task, place, type(error).__name__, error)
        return None
    found = _unwrapped(evaluated)
    if _is_plain(found):
        return None
    try:
        _check(found)
    except _NotConvertible:
        return None
    return found


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, partial):
        function = function.func
    found = getattr(function, "__func__", function)
    if not hasattr(found, "__globals__"):
        called = getattr(type(found), "__call__", None)  # noqa: B004 - an object's own
        found = called if hasattr(called, "__globals__") else found
    return typing.cast("Callable[..., Any]", found)


def _is_evidently_plain(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation in _PLAIN_WORDS
    try:
        return annotation in _PLAIN
    except TypeError:
        return False


def _unwrapped(annotation: Any) -> Any:
    """Return the annotation inside `Awaitable`, `Annotated`, a `NewType` or a type alias."""
    while True:
        origin = typing.get_origin(annotation)
        if origin in _AWAITED or getattr(origin, "__name__", "") == _FLOW_NODE:
            annotation = typing.get_args(annotation)[-1]
        elif origin is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # Python 3.12 and later
            annotation = annotation.__value__
        else:
            return annotation


def _is_plain(annotation: Any) -> bool:
    """Whether JSON can express an annotation without a conversion."""
    annotation = _unwrapped(annotation)
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None:
        return isinstance(annotation, (typing.TypeVar, typing.ParamSpec)) or _is_evidently_plain(annotation)
    if origin is typing.Literal:
        return all(type(each) in (str, int, bool, type(None)) for each in inside)
    if origin in _KEYED:
        return _unwrapped(inside[0]) in (str, Any) and _is_plain(inside[1])
    return (origin in _UNIONS or _is_evidently_plain(origin)) and all(map(_is_plain, inside))


# -- converting values


_HOOKS: Final[dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {}
"""Types that msgspec lacks: their conversions to JSON, and from it."""


def _hooks() -> dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    if not _HOOKS:
        import ipaddress
        import pathlib
        import zoneinfo

        paths = (pathlib.PurePath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.Path, pathlib.PosixPath)
        places = (ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network)
        _HOOKS.update({kind: (str, kind) for kind in (*paths, *places)})
        _HOOKS[zoneinfo.ZoneInfo] = (lambda zone: zone.key, zoneinfo.ZoneInfo)
    return _HOOKS


def _is_model(kind: object) -> bool:
    """Whether it is a pydantic model. pydantic is not imported for this: without it there are no models."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _calendar_class(kind: type) -> Any:
    """The date, datetime or time that a class derives from, found by name because freezegun replaces the classes."""
    found = (each for each in kind.__mro__ if each.__module__ == "datetime" and hasattr(each, "fromisoformat"))
    return next(found, None)


def _is_calendar_class(kind: Any) -> bool:
    """Whether it is such a class itself, or freezegun's in its place, of which each of its instances counts as one."""
    calendar = _calendar_class(kind) if isinstance(kind, type) else None
    return calendar is not None and isinstance(calendar.min, kind)


def _to_json(value: Any) -> Any:
    if _is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    for kind in type(value).__mro__:
        if kind in _hooks():
            return _hooks()[kind][0](value)
        if kind in (str, int, float):  # JSON treats a subclass like its base class
            return kind(value)
    if calendar := _calendar_class(type(value)):
        return calendar.fromisoformat(value.isoformat())
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")


def _from_json(kind: type, value: Any) -> Any:
    if _is_model(kind):
        return kind.model_validate_json(json.dumps(value))  # type: ignore[attr-defined] # strict models take text only here
    if kind in _hooks() and isinstance(value, str):
        return _hooks()[kind][1](value)
    if calendar := _calendar_class(kind):
        import msgspec

        return msgspec.convert(value, calendar)
    raise TypeError(f"expected {kind.__name__}, got {value!r:.80}")


def _check(annotation: Any) -> None:
    """Check that JSON can be converted to values of an annotation.

    Raises:
        _NotConvertible: it contains an unknown class, or a union whose members JSON can't distinguish.
    """
    import msgspec

    def look(inside: Any) -> None:
        if isinstance(inside, msgspec.inspect.CustomType):
            kind = inside.cls
            # msgspec.inspect compares with datetime.datetime, which freezegun has replaced while it holds the time.
            if not (_is_model(kind) or kind in _hooks() or _is_calendar_class(kind)):
                raise _NotConvertible

    try:
        msgspec.json.Decoder(annotation)
        for part in _parts(annotation):
            look(msgspec.inspect.type_info(part))
    except (TypeError, NameError) as error:
        raise _NotConvertible from error


def _parts(annotation: Any) -> list[Any]:
    """Return an annotation and all annotations inside its brackets."""
    inside = [each for each in typing.get_args(annotation) if each is not Ellipsis]
    if typing.get_origin(annotation) is typing.Literal:
        inside = []
    return [annotation, *(part for each in inside for part in _parts(each))]


def _decode(value: Any, wanted: Any) -> Any:
    return _msgspec().convert(value, wanted, str_keys=True, dec_hook=_from_json)


def _encode(value: Any, wanted: Any) -> Any:
    found = _msgspec().to_builtins(value, str_keys=True, enc_hook=_to_json)
    _decode(found, wanted)  # refuse here what a worker could not read
    return found


@cache
def _msgspec() -> Any:
    import msgspec

    return msgspec
