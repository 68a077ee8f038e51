"""Signatures and annotations of functions, as far as they are known while a program runs.

From Python 3.14 on, an annotation is evaluated when it is asked for. A name that only type checkers know raises a
NameError then, so such an annotation is taken as it is written.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

_WRITTEN: Final[dict[str, Any]] = {}
if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations

    _WRITTEN["annotation_format"] = Format.FORWARDREF


def signature_of(function: Callable[..., Any], *, follow_wrapped: bool = True) -> inspect.Signature:
    """As `inspect.signature`.

    Raises:
        TypeError, ValueError: there is none.
    """
    return inspect.signature(function, follow_wrapped=follow_wrapped, **_WRITTEN)


def annotations_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotations of a function; {} if it has none."""
    if sys.version_info >= (3, 14) and inspect.isroutine(function):
        return get_annotations(function, format=Format.FORWARDREF)
    return getattr(function, "__annotations__", None) or {}
