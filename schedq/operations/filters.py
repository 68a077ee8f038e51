"""Which jobs are meant, and where a look through them stands: what callers say, checked."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from schedq.errors import UsageError
from schedq.instants import duration_ms
from schedq.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, PENDING, PROCESSING
from schedq.payload import UnreadablePayload, decode
from schedq.registry import is_task_call

STATES: Final = (PENDING, DELAYED, PROCESSING, COMPLETED, FAILED, CANCELLED)
"""The states whose jobs can be found."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs are meant; nothing said means all.

    Attributes:
        task: the name of the task that they call.
        older_ms: at least so old: since the enqueue, the start of the attempt, or the end, as fits the state.
        newer_ms: at most so old. A job that does not say since when is neither.
        text: in the payload as it is stored, or in the last error; case counts.
        error: in the last error.
    """

    task: str = ""
    older_ms: int | None = None
    newer_ms: int | None = None
    text: str = ""
    error: str = ""

    @classmethod
    def of(cls, task: object, older_than: object, newer_than: object, text: object, error: object) -> Filter:
        """A filter as callers say it; ages in seconds or as timedelta.

        Raises:
            UsageError: something in it can't be meant.
        """
        for what, value in (("task", task), ("text", text), ("error", error)):
            if value is not None and (not isinstance(value, str) or not value):
                raise UsageError(f"{what} must be a text that is not empty, got {value!r}")
            if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
                raise UsageError(f"{what} has a lone surrogate, which is no text")
        return cls(
            str(task or ""),
            None if older_than is None else duration_ms(older_than, "older_than"),
            None if newer_than is None else duration_ms(newer_than, "newer_than"),
            str(text or ""),
            str(error or ""),
        )

    @property
    def word(self) -> str:
        """The longest part of the task's name that stands in every JSON text of it: encoders may escape all others."""
        return max(re.findall(r"[A-Za-z0-9_]+", self.task), key=len, default="")

    def says(self) -> str:
        """The filter in words, '' for none."""
        parts = [f"task {self.task}"] if self.task else []
        parts += [f"older than {self.older_ms / 1000:g} s"] if self.older_ms is not None else []
        parts += [f"newer than {self.newer_ms / 1000:g} s"] if self.newer_ms is not None else []
        parts += [f"text {self.text!r:.80}"] if self.text else []
        parts += [f"error {self.error!r:.80}"] if self.error else []
        return ", ".join(parts)

    def is_call(self, payload: str) -> bool:
        """Whether a payload's text calls the task, if one is named."""
        if not self.task:
            return True
        try:
            found = decode(payload)
        except UnreadablePayload:
            return False
        return is_task_call(found) and found["task"] == self.task


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a walk.

    Attributes:
        state: what is walked through.
        position: entries passed over; of `delayed` the score of the last one looked at.
        there: ids that stand there; of `delayed` the last one looked at. Empty at the beginning.
    """

    state: str
    position: str = "0"
    there: tuple[str, ...] = ()

    def text(self) -> str:
        """As a cursor that people can carry along."""
        said = json.dumps([self.state, self.position, *self.there], separators=(",", ":"))
        return base64.urlsafe_b64encode(said.encode(errors="surrogateescape")).decode().rstrip("=")

    @classmethod
    def of(cls, cursor: object, state: str) -> Spot:
        """The spot that a cursor names.

        Raises:
            UsageError: it is none of this state.
        """
        try:
            padded = str(cursor) + "=" * (-len(str(cursor)) % 4)
            named, position, *there = json.loads(base64.b64decode(padded, altchars="-_", validate=True))
            float(position)
        except (ValueError, TypeError) as error:
            raise UsageError(f"cursor {cursor!r:.60} is none that `find` has given") from error
        if named != state or not there or not all(isinstance(part, str) for part in (position, *there)):
            raise UsageError(f"cursor {cursor!r:.60} is none of {state} jobs")
        return cls(state, position, tuple(there))


def checked_state(state: object, states: Sequence[str] = STATES) -> str:
    """Return `state` if it is one of `states`.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(state, str) or state not in states:
        raise UsageError(f"state must be one of {', '.join(states)}, got {state!r}")
    return state
