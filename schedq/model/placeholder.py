"""What stands for a result that is not there yet, in calls that are made later."""

from __future__ import annotations

import json
from typing import Any, Final

RESULT_TEXT: Final = "\ue000result\ue000"
MARKER: Final = json.dumps(RESULT_TEXT, ensure_ascii=False)
"""How `RESULT` looks in a stored call. Scripts put the result in its place."""
REFERENCE: Final = "schedq:batch"
"""The name in the JSON object that stands for the results of a batch."""
QUEUE: Final = "queue"
"""A second name in it, if the batch is one of another queue."""


def is_reference(value: Any) -> bool:
    """Whether a JSON value stands for the results of a batch."""
    return (
        isinstance(value, dict)
        and REFERENCE in value
        and value.keys() <= {REFERENCE, QUEUE}
        and all(isinstance(each, str) for each in value.values())
    )


class ResultPlaceholder(str):
    """Stands for what came before, as an argument of a call that will follow."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "RESULT"


RESULT: Final[Any] = ResultPlaceholder(RESULT_TEXT)
"""Stands for what came before, as an argument of a call that will follow.

In a chain it is what the call before returned. In `then=` of a batch it is the `BatchResults`.
"""
