"""One or more operations as a request: what to send next, what has been answered, when to give up.

No input or output here: the blocking and the asyncio client both drive it. It knows what it sends again (a reply that
got lost, a server that was loading, a script that was unknown), which an automatic retry does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from schedq.connection import redis_errors
from schedq.connection.address import Address
from schedq.errors import SchedqError, StoreUnavailable
from schedq.model.durability import Wait
from schedq.model.settings import Settings
from schedq.model.times import monotonic
from schedq.transitions import Argument, Operation, Pipeline, announce

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0
AGAIN_S: Final = 14.0
"""Seconds after which a request writes the name again."""
CLUSTER_AGAIN_S: Final = 60.0
"""The same on a cluster, where the list is on another node: it takes a connection of its own."""


class Request:
    """Operations that are sent together, and their answers.

    Args:
        operations: what to send.
        address: for errors.
        queue: the one that they are about.
        retry_for: seconds for which trouble is waited out.
        has_let: whether the server has executed an operation of this name before, or let us in before if it is '': then
            a refusal is waited out as well. If not given, a refusal ends in an error at once.

    Attributes:
        answers: per operation, its answer or the SchedqError it ended in; complete when nothing is left.
        left: numbers of the operations that have no answer yet.
        revoked: the last error of an operation that the server has executed before and refuses now, or None.
    """

    # Where trouble begins: most requests have none, and are made for each request.
    revoked: Exception | None = None
    _sent_at: float | None = None  # first, of what may have been carried out
    _is_unanswered = False  # a sending, of which nobody knows whether it was
    _trouble_since: float | None = None
    _trouble: Exception | None = None
    _wait_s = _FIRST_WAIT_S

    def __init__(
        self,
        operations: Sequence[Operation[Any]],
        address: Address,
        queue: Settings,
        retry_for: float,
        has_let: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.answers: list[Any] = [None] * len(operations)
        self._operations = operations
        self._address = address
        self._extra_keys = (queue.keys.never,) if queue.tagged else ()
        self.left = list(range(len(operations)))
        self._has_waits = False
        for operation in operations:
            if operation.waits:
                self._has_waits = True
        self._with_source: set[int] = set()
        self._retry_for = retry_for
        self._has_let = has_let

    def commands(self) -> list[tuple[Argument, ...]]:
        """What to send now, on a connection that is there: from here on it counts as sent."""
        if self._sent_at is None:
            self._sent_at = monotonic()
        return [self._operations[n].command(self._extra_keys, with_source=n in self._with_source) for n in self.left]

    def waits(self) -> tuple[Wait, ...]:
        """What to ask behind the commands, on the same connection: each once, whatever it covers."""
        if not self._has_waits:
            return ()
        return tuple(dict.fromkeys(wait for n in self.left for wait in self._operations[n].waits))

    def on_replies(self, replies: Sequence[Any]) -> float:
        """Read the replies to `commands()`, and behind them those to `waits()`.

        Returns how many seconds to wait before sending the rest (0 mostly).
        """
        again: list[int] = []
        passing: Exception | None = None
        self.revoked = None
        count = len(self.left)
        kept = dict(zip(self.waits(), replies[count:], strict=True)) if len(replies) > count else {}
        for number, reply in zip(self.left, replies[:count], strict=True):
            operation = self._operations[number]
            problem = _broken_off(operation, kept) if kept else None
            if isinstance(reply, Exception):
                problem = reply
            if problem is None:
                self.answers[number] = self._read(operation, reply, kept)
                continue
            if redis_errors.is_unknown_script(problem) and number not in self._with_source:
                self._with_source.add(number)
            elif self._has_let(operation.name) and redis_errors.is_refusal(problem):
                passing = self.revoked = problem
            elif redis_errors.is_transient(problem):
                passing = problem
            else:
                self._end([number], problem)
                continue
            again.append(number)
        self.left = again
        if not kept and not self._is_unanswered:
            self._sent_at = None  # what is left was refused, and has done nothing
        return 0.0 if passing is None else self._failed(passing, passes=True)

    def on_error(self, error: Exception) -> float:
        """The connection failed; returns how many seconds to wait before sending again.

        When the time for retries is used up, whatever is left ends in the error.
        """
        self._is_unanswered = self._is_unanswered or self._sent_at is not None
        return self._failed(error, passes=redis_errors.is_transient(error) or self._has_let(""))

    def _failed(self, error: Exception, *, passes: bool) -> float:
        now = monotonic()
        if self._trouble_since is None:
            self._trouble_since = now
        is_over = not passes or now - self._trouble_since >= self._retry_for
        wait = min(self._wait_s, max(0.0, self._trouble_since + self._retry_for - now))
        self._trouble = error
        self._end(
            [n for n in self.left if is_over or not self._operations[n].is_repeatable or self._is_late(n, now + wait)],
            error,
        )
        if not self.left:
            return 0.0
        self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s)
        return wait * random.uniform(0.5, 1)  # noqa: S311 - spreads load, guards nothing

    def is_in_time(self) -> bool:
        """Whether all that is left may be sent now; what is too late ends in the error of its last sending.

        To be called when there is a connection: it may have been long in coming.
        """
        if self._sent_at is None or self._trouble is None:
            return True
        late = [number for number in self.left if self._is_late(number, monotonic())]
        self._end(late, self._trouble)
        return not late

    def _is_late(self, number: int, at: float) -> bool:
        """Whether it was sent before, so long ago that what it did may be forgotten."""
        limit = self._operations[number].repeatable_s
        return limit is not None and self._sent_at is not None and at > self._sent_at + limit

    def _end(self, numbers: Sequence[int], error: Exception) -> None:
        """Let operations end in an error."""
        for number in numbers:
            operation = self._operations[number]
            answer = self.answers[number] = redis_errors.translate(
                error, operation.name, self._address.label, is_default=self._address.is_default
            )
            if operation.job_ids and type(answer) is StoreUnavailable:
                answer.job_ids = operation.job_ids
        self.left = [number for number in self.left if number not in numbers]

    def _read(self, operation: Operation[Any], reply: Any, kept: Mapping[Wait, Any]) -> Any:
        """The result, or the error it is; an error if its waits were not kept."""
        try:
            answer = operation.read(reply)
        except SchedqError as error:
            return error
        for wait in operation.waits:
            reply = kept[wait]
            if isinstance(reply, Exception):
                missing = str(redis_errors.translate(reply, wait.durability, self._address.label))
            else:
                missing = wait.shortfall(reply)
            if missing and not isinstance(answer, SchedqError):
                return operation.unconfirmed(answer, missing)
        return answer


def _broken_off(operation: Operation[Any], kept: Mapping[Wait, Any]) -> Exception | None:
    """Why a wait ended, if it did because the server can't be waited for at the moment: it is no primary any more."""
    for wait in operation.waits:
        reply = kept[wait]
        if isinstance(reply, Exception) and redis_errors.is_transient(reply):
            return reply
    return None


class BaseClient:
    """What the blocking and the asyncio client of a queue have in common: its settings and how its requests begin.

    The handshake of a first connection writes the queue's name. Redis may lose it later without breaking a connection,
    as by FLUSHALL, and a process that only enqueues has no heartbeat that would notice: so requests write it again from
    time to time.
    """

    def __init__(self, address: Address, queue: Settings) -> None:
        self._address = address
        self._queue = queue
        self._name_due_at = monotonic() + self._again_s()

    def use(self, queue: Settings) -> None:
        """Use other settings of the same queue from now on."""
        self._queue = queue

    def _request(self, operations: Pipeline) -> Request:
        """A request of these operations, and from time to time of one more that writes the queue's name."""
        queue, now = self._queue, monotonic()
        if now >= self._name_due_at:
            self._name_due_at = now + self._again_s()
            if queue.listed and queue.tagged:
                self._address.enlist(queue.name, again=True)
            elif queue.listed:
                operations = [*operations, announce.enlist(queue)]
        return Request(operations, self._address, queue, queue.retry_for)

    def _again_s(self) -> float:
        return CLUSTER_AGAIN_S if self._queue.tagged else AGAIN_S
