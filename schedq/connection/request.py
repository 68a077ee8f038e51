"""One or more operations as a request: what to send next, which results are known, and when to give up.

It does no I/O; the blocking and the asyncio client both drive it. It knows why it sends something again (a lost reply,
a server that is loading its data, an unknown script), unlike the automatic retries of a client library.
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
"""Seconds after which a request adds the queue's name to the list of queues again."""
CLUSTER_AGAIN_S: Final = 60.0
"""The same on a cluster. There the list is on another node, so that writing to it takes a separate connection."""


class Request:
    """Operations that are sent together, and their results.

    Args:
        operations: what to send.
        address: used in error messages.
        queue: the queue of the operations.
        retry_for: seconds for which transient errors are retried.
        has_let: returns whether the server has executed an operation with this name before; for '', whether it has
            accepted a connection before. If so, a rejection is retried like a transient error. By default a rejection
            is final.

    Attributes:
        answers: the result of each operation, or a SchedqError; complete when `left` is empty.
        left: the numbers of the operations without a result.
        revoked: the last error of an operation that the server has executed before and rejects now, or None.
    """

    # Defaults on the class, because a Request is made for each request and most never meet an error.
    revoked: Exception | None = None
    _sent_at: float | None = None  # when operations that may have been executed were first sent
    _is_unanswered = False  # a request was sent and its connection lost, so it may have been executed
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
        """Return the commands to send now, on an open connection. From then on they count as sent."""
        if self._sent_at is None:
            self._sent_at = monotonic()
        return [self._operations[n].command(self._extra_keys, with_source=n in self._with_source) for n in self.left]

    def waits(self) -> tuple[Wait, ...]:
        """Return the waits to send after the commands, on the same connection. Equal waits are sent once."""
        if not self._has_waits:
            return ()
        return tuple(dict.fromkeys(wait for n in self.left for wait in self._operations[n].waits))

    def on_replies(self, replies: Sequence[Any]) -> float:
        """Read the replies to `commands()`, followed by those to `waits()`.

        Returns the seconds to wait before sending what is left, mostly 0.
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
            self._sent_at = None  # what is left was rejected, and so not executed
        return 0.0 if passing is None else self._failed(passing, passes=True)

    def on_error(self, error: Exception) -> float:
        """Handle a failed connection. Returns the seconds to wait before sending again.

        When `retry_for` has passed, the operations that are left fail with the error.
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
        """Whether all operations that are left may still be sent. Those that are too late fail with their last error.

        Call it once the connection is open, because connecting may have taken long.
        """
        if self._sent_at is None or self._trouble is None:
            return True
        late = [number for number in self.left if self._is_late(number, monotonic())]
        self._end(late, self._trouble)
        return not late

    def _is_late(self, number: int, at: float) -> bool:
        """Whether it was first sent so long ago that Redis may have forgotten its result, so a repeat is unsafe."""
        limit = self._operations[number].repeatable_s
        return limit is not None and self._sent_at is not None and at > self._sent_at + limit

    def _end(self, numbers: Sequence[int], error: Exception) -> None:
        """Fail operations with an error."""
        for number in numbers:
            operation = self._operations[number]
            answer = self.answers[number] = redis_errors.translate(
                error, operation.name, self._address.label, is_default=self._address.is_default
            )
            if operation.job_ids and type(answer) is StoreUnavailable:
                answer.job_ids = operation.job_ids
            if operation.failed is not None:
                operation.failed(answer)
        self.left = [number for number in self.left if number not in numbers]

    def _read(self, operation: Operation[Any], reply: Any, kept: Mapping[Wait, Any]) -> Any:
        """Return the result or the error in a reply; if a wait was not fulfilled, the error that says so."""
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
    """Return the error that ended a wait, if it is transient, such as a primary that became a replica; else None."""
    for wait in operation.waits:
        reply = kept[wait]
        if isinstance(reply, Exception) and redis_errors.is_transient(reply):
            return reply
    return None


class BaseClient:
    """The common part of the blocking and the asyncio client of a queue: its settings and how its requests begin.

    The handshake of the first connection adds the queue's name to the list of queues. Redis may lose that list without
    closing a connection, for example by FLUSHALL. A process that only enqueues has no heartbeat that would notice, so
    requests add the name again from time to time.
    """

    def __init__(self, address: Address, queue: Settings) -> None:
        self._address = address
        self._queue = queue
        self._name_due_at = monotonic() + self._again_s()

    @property
    def address(self) -> Address:
        """Where Redis is."""
        return self._address

    def use(self, queue: Settings) -> None:
        """Replace the settings of the queue from now on."""
        self._queue = queue

    def _request(self, operations: Pipeline) -> Request:
        """Return a request of these operations. From time to time it also adds the queue's name to the list."""
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
