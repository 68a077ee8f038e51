"""One or more operations on their way: what to send next, what has been answered, when to give up.

No input or output here: the blocking and the asyncio door both drive it. It knows what it sends again (a reply
that got lost, a server that was loading, a script that was unknown), which an automatic retry does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from schedq.clocks import monotonic
from schedq.connection import faults
from schedq.connection.address import Address
from schedq.durability import Wait
from schedq.errors import SchedqError
from schedq.operations import Argument, Operation
from schedq.settings import Settings

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0


class Exchange:
    """Operations that are sent together and answered one by one.

    Args:
        operations: what to send.
        address: for errors.
        queue: the one that they are about.
        retry_for: seconds until trouble is no longer waited out.
        has_let: whether the server has carried out an operation of this name before, or let us in before if it is '':
            that it refuses now is then waited out as well. If not given, what it refuses ends in an error at once.

    Attributes:
        answers: per operation, its answer or the SchedqError it ended in; complete when `is_done`.
        revoked: what the server last said to an operation that it has carried out before and refuses now, or None.
    """

    def __init__(
        self,
        operations: Sequence[Operation[Any]],
        address: Address,
        queue: Settings,
        retry_for: float,
        has_let: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.answers: list[Any] = [None] * len(operations)
        self.revoked: Exception | None = None
        self._operations = operations
        self._address = address
        self._guard = (queue.keys.never,) if queue.tagged else ()
        self._left = list(range(len(operations)))
        self._has_waits = any(operation.waits for operation in operations)
        self._with_source: set[int] = set()
        self._patience_s = retry_for
        self._has_let = has_let
        self._sent_at: float | None = None  # first, of what may have been carried out
        self._is_unanswered = False  # a sending, of which nobody knows whether it was
        self._trouble_since: float | None = None
        self._trouble: Exception | None = None
        self._wait_s = _FIRST_WAIT_S

    @property
    def is_done(self) -> bool:
        """Every operation has its answer."""
        return not self._left

    def commands(self) -> list[tuple[Argument, ...]]:
        """What to send now, on a connection that is there: from here on it counts as sent."""
        if self._sent_at is None:
            self._sent_at = monotonic()
        return [self._operations[n].command(self._guard, with_source=n in self._with_source) for n in self._left]

    def waits(self) -> tuple[Wait, ...]:
        """What to ask behind the commands, on the same connection: each once, whatever it covers."""
        if not self._has_waits:
            return ()
        return tuple(dict.fromkeys(wait for n in self._left for wait in self._operations[n].waits))

    def take(self, replies: Sequence[Any]) -> float:
        """Read the replies to `commands()`, and behind them those to `waits()`.

        Answers how many seconds to wait before sending the rest (0 mostly).
        """
        again: list[int] = []
        passing: Exception | None = None
        self.revoked = None
        count = len(self._left)
        kept = dict(zip(self.waits(), replies[count:], strict=True)) if len(replies) > count else {}
        for number, reply in zip(self._left, replies[:count], strict=True):
            operation = self._operations[number]
            if not isinstance(reply, Exception):
                broken_off = _broken_off(operation, kept) if kept else None
                if broken_off is None:
                    self.answers[number] = self._confirmed(operation, _read(operation, reply), kept)
                else:
                    passing = broken_off
                    again.append(number)
            elif faults.is_unknown_script(reply) and number not in self._with_source:
                self._with_source.add(number)
                again.append(number)
            elif self._is_revoked(reply, operation):
                passing = self.revoked = reply
                again.append(number)
            elif faults.is_passing(reply):
                passing = reply
                again.append(number)
            else:
                self.answers[number] = faults.named(reply, operation.name, self._address)
        self._left = again
        if not kept and not self._is_unanswered:
            self._sent_at = None  # what is left was refused, and has done nothing
        return 0.0 if passing is None else self._failed(passing, passes=True)

    def failed(self, error: Exception) -> float:
        """The connection failed; answers how many seconds to wait before sending again.

        When the patience is used up, whatever is left ends in the error.
        """
        self._is_unanswered = self._is_unanswered or self._sent_at is not None
        return self._failed(error, passes=faults.is_passing(error) or self._has_let(""))

    def _failed(self, error: Exception, *, passes: bool) -> float:
        now = monotonic()
        if self._trouble_since is None:
            self._trouble_since = now
        is_over = not passes or now - self._trouble_since >= self._patience_s
        wait = min(self._wait_s, max(0.0, self._trouble_since + self._patience_s - now))
        self._trouble = error
        again: list[int] = []
        for number in self._left:
            if is_over or not self._operations[number].is_repeatable or self._is_late(number, now + wait):
                self._end(number, error)
            else:
                again.append(number)
        self._left = again
        if not again:
            return 0.0
        self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s)
        return wait * random.uniform(0.5, 1)  # noqa: S311 - spreads load, guards nothing

    def _is_revoked(self, reply: Exception, operation: Operation[Any]) -> bool:
        return self._has_let(operation.name) and faults.is_refusal(reply)

    def is_in_time(self) -> bool:
        """Whether all that is left may be sent now; what is too late ends in the error of its last sending.

        To be asked when there is a connection: it may have been long in coming.
        """
        if self._sent_at is None or self._trouble is None:
            return True
        late = [number for number in self._left if self._is_late(number, monotonic())]
        for number in late:
            self._end(number, self._trouble)
        self._left = [number for number in self._left if number not in late]
        return not late

    def _is_late(self, number: int, at: float) -> bool:
        """Whether it was sent before, so long ago that what it did may be forgotten."""
        limit = self._operations[number].repeatable_s
        return limit is not None and self._sent_at is not None and at > self._sent_at + limit

    def _end(self, number: int, error: Exception) -> None:
        self.answers[number] = faults.named(error, self._operations[number].name, self._address)

    def _confirmed(self, operation: Operation[Any], answer: Any, kept: Mapping[Wait, Any]) -> Any:
        """The answer, if its waits were kept."""
        for wait in operation.waits:
            reply = kept[wait]
            if isinstance(reply, Exception):
                missing = str(faults.named(reply, wait.durability, self._address))
            else:
                missing = wait.shortfall(reply)
            if missing and not isinstance(answer, SchedqError):
                return operation.unconfirmed(answer, missing)
        return answer


def _broken_off(operation: Operation[Any], kept: Mapping[Wait, Any]) -> Exception | None:
    """Why a wait ended, if it did because the server can't be waited for at the moment: it is no primary any more."""
    for wait in operation.waits:
        reply = kept[wait]
        if isinstance(reply, Exception) and faults.is_passing(reply):
            return reply
    return None


def _read(operation: Operation[Any], reply: Any) -> Any:
    try:
        return operation.read(reply)
    except SchedqError as error:
        return error
