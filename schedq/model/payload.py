"""Payloads and results as JSON text. A value reads back unchanged, or is refused with the place of the problem.

Only tuples become lists, because JSON has no tuples. Everything else that JSON would change silently is refused:
NaN, keys that are not strings, bytes, lone surrogates.
"""

from __future__ import annotations

import json
import json.encoder
from collections.abc import Callable
from typing import Any, Final

from schedq.errors import UsageError

DEEPEST: Final = 100
"""The deepest nesting of a payload; far below what a decoder can handle inside a handler's stack."""
_NESTED: Final = (dict, list, tuple)
_FLAT: Final = frozenset((str, int, float, bool, type(None)))
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _reusable_encoder() -> Callable[[object], str]:
    """`JSONEncoder.encode` with one C encoder for all values; creating one per value would take most of the time."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encoder.encode
    quote = json.encoder.encode_basestring
    encoder = make(None, _encoder.default, quote, None, ":", ",", False, False, False)  # noqa: FBT003 - takes no keywords
    return lambda value: "".join(encoder(value, 0))


_encode = _reusable_encoder()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)  # `json.loads` would create one for each text
_scan = _decoder.scan_once  # type: ignore[attr-defined] # missing in the stubs


def _decode(text: str) -> Any:
    """Decode a text; quickly if there are no blanks around the value, as schedq writes it."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:  # there is no value at its beginning
        end = -1
    return value if end == len(text) else _decoder.decode(text)


class UnreadablePayload(ValueError):  # noqa: N818 - a fact about data, handled, never raised to users
    """Stored text is not JSON; the job is not run."""


def encode(value: object, limit: int, what: str = "payload") -> str:
    """The JSON text of `value`, at most `limit` bytes of UTF-8.

    Raises:
        UsageError: not JSON (the place is named), nested deeper than 100, or larger than `limit`.
    """
    if isinstance(value, _NESTED) and not _is_sound(value, DEEPEST):
        _raise_fault(value, what, DEEPEST)
    try:
        text = _encode(value)
        size = size_of(text)
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} has a lone surrogate, which is not valid text: {error.reason}") from error
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, TypeError) and (place := _place_of_other(value, what)):
            way_out = "use a JSON type"
            if what in ("payload", "result"):
                way_out = f"name the type in the task's annotations, or {way_out}"
            if what == "payload" and callable(value):
                way_out = "enqueue a call of a task as task.enqueue(...)"
            raise UsageError(f"{place}, which is not JSON; {way_out}") from error
        raise UsageError(f"{what} is not JSON: {error}") from error
    if size > limit:
        raise UsageError(
            f"{what} is {size:,} bytes of JSON, more than max_payload={limit:,}; "
            "store the data elsewhere and pass a reference"
        )
    return text


def size_of(text: str) -> int:
    """The number of bytes of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def decode(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        UnreadablePayload: it is not JSON, or not UTF-8.
    """
    try:
        if not text.isascii():
            text.encode()  # bytes that are not UTF-8 arrive as lone surrogates
        return _decode(text)
    except (ValueError, RecursionError) as error:
        raise UnreadablePayload(f"payload is not JSON: {error}") from error


def decoded(text: str | None) -> Any:
    """The value of a JSON text; None if it can't be read."""
    try:
        return None if text is None else decode(text)
    except UnreadablePayload:
        return None


def loaded(text: str | None) -> Any:
    """The value of a JSON text that some release of schedq wrote; None if it is not JSON."""
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None


def encode_result(value: object, limit: int, convert: Callable[[object], object] | None = None) -> tuple[str, str]:
    """The JSON text of a result, and what was wrong with it ('' if nothing).

    The work is done whatever the handler returned, so a result that can't be stored never fails the job: its `repr`
    is stored instead, with the reason.
    """
    if value is None:
        return "null", ""
    try:
        return encode(value if convert is None else convert(value), limit, "result"), ""
    except BaseException as error:  # noqa: BLE001 - a user's object may do anything, even while it is inspected
        problem = str(error) if isinstance(error, UsageError) else f"result is not JSON: {type(error).__name__}"
        return _encode(clean_text(_shown(value, 500), 500)), clean_text(problem)


def _shown(value: object, limit: int) -> str:
    """The value's `repr`, or a replacement if that raises."""
    try:
        return repr(value)[:limit]
    except BaseException as problem:  # noqa: BLE001 - a user's __repr__ may do anything
        return f"<{type(value).__name__}, whose repr raised {type(problem).__name__}>"


def clean_text(text: str, limit: int = 8192) -> str:
    """Text that is safe for a hash, a log and a terminal: printable, valid UTF-8, at most `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    kept = cut if cut.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "�" for c in cut)
    return kept if kept.isascii() else kept.encode(errors="replace").decode()


def _is_sound(value: Any, depth: int) -> bool:
    """Whether all keys are strings, and there are at most `depth` levels."""
    if depth == 0:
        return False
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return False
        value = value.values()
    for item in value:
        if type(item) not in _FLAT and isinstance(item, _NESTED) and not _is_sound(item, depth - 1):
            return False
    return True


def _place_of_other(value: Any, place: str) -> str:
    """The place and type of the first value that is not of a JSON type; '' if there is none."""
    if isinstance(value, (str, int, float, type(None))):
        return ""
    if not isinstance(value, _NESTED):
        return f"{place} is a {type(value).__name__}"
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return next(filter(None, (_place_of_other(item, f"{place}[{key!r}]") for key, item in items)), "")


def _raise_fault(value: Any, place: str, depth: int) -> None:
    """Raise an error that names the place of the problem."""
    if depth == 0:
        raise UsageError(f"{place.partition('[')[0]} is nested deeper than {DEEPEST} levels")
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(value, dict) and not isinstance(key, str):
            raise UsageError(f"{place} has the key {_shown(key, 80)}; JSON keys are strings")
        if isinstance(item, _NESTED):
            _raise_fault(item, f"{place}[{key!r}]", depth - 1)
