"""Questions to Redis: plain commands as operations, asked in rounds of a bounded size.

What a server refuses (by its access rules) or can't answer (a key of another type) is an answer as well: a SchedqError
in the place of the reply, which the rooms take for "not known".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from schedq.errors import SchedqError
from schedq.operations import Argument, Flow, Operation, same

_AT_ONCE: Final = 250


def plain(*words: Argument) -> Operation[Any]:
    """One command, named by what access rules call it."""
    name = str(words[0]).lower()
    if name in ("config", "script"):
        name += f"|{str(words[1]).lower()}"
    return Operation(name, None, (), words, same)


def known(answer: Any, otherwise: Any) -> Any:
    """The answer, or something else where there is none."""
    return otherwise if answer is None or isinstance(answer, SchedqError) else answer


def asked(questions: Sequence[Operation[Any]]) -> Flow[list[Any]]:
    """The answers to any number of questions, few at a time, so that nobody else waits long."""
    answers: list[Any] = []
    for first in range(0, len(questions), _AT_ONCE):
        answers += yield questions[first : first + _AT_ONCE]
    return answers
