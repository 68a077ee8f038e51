"""Headers of a job: short texts by name, fixed when it is enqueued, such as a tenant, a locale or a request id.

They are stored in the field `headers` as the text of a JSON object, and only if there are any. Other programs may write
the field too; headers that break the rules count as none, so that they block no job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from schedq.errors import UsageError
from schedq.model.payload import decoded, encode, size_of

MOST_BYTES: Final = 4096
"""The most bytes of JSON in the headers of one job; `shared/claimed.lua` has the same limit."""
_LONGEST_NAME: Final = 200
_NO_LIMIT: Final = 1 << 62


class Headers(Mapping[str, str]):
    """The headers of one job: a mapping that can't be changed."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


NO_HEADERS: Final = Headers({})


def stored_headers(given: object) -> str:
    """Headers in the stored form; '' if there are none.

    Raises:
        UsageError: they are not a mapping of names to texts, or they are too large.
    """
    if not isinstance(given, Mapping):
        raise UsageError(f"headers must be a dict of texts, such as {{'tenant': 'acme'}}, got {given!r:.200}")
    if not given:
        return ""
    if fault := _fault(given):
        raise UsageError(fault)
    text = encode(dict(given), _NO_LIMIT, "headers")
    if (size := size_of(text)) > MOST_BYTES:
        raise UsageError(
            f"headers are {size:,} bytes of JSON, more than {MOST_BYTES:,}: put the data into the payload, "
            "or store it elsewhere and pass a reference"
        )
    return text


def is_stored_headers(text: object) -> bool:
    """Whether it is in the stored form."""
    return isinstance(text, str) and bool(headers_of(text))


def headers_of(text: str | None) -> Headers:
    """The headers in the stored form; none if the text is invalid."""
    if not text or len(text) > MOST_BYTES:
        return NO_HEADERS
    values = decoded(text)
    if not isinstance(values, dict) or size_of(text) > MOST_BYTES or _fault(values):
        return NO_HEADERS
    return Headers(values)


def merged_headers(common: Mapping[str, str] | None, own: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Common headers, and a job's own, which take precedence; what is not a mapping is returned and refused later."""
    if own is None or not isinstance(own, Mapping) or not isinstance(common, Mapping | None):
        return common if own is None else own
    return {**common, **own} if common else dict(own)


def _fault(values: Mapping[Any, Any]) -> str:
    """What is wrong with the first header that breaks the rules; '' if none does."""
    for name, value in values.items():
        if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
            return f"a header's name must be 1 to {_LONGEST_NAME} printable characters, got {name!r:.250}"
        if not isinstance(value, str):
            return f"header {name!r} must be a text, got {value!r:.200}; convert it with str()"
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            return f"header {name!r} has a lone surrogate, which is not valid text"
    return ""
