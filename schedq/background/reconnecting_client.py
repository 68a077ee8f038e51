"""A connection for tasks that run forever: it waits for Redis as long as necessary, and logs each outage once."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from schedq.connection import redis_errors
from schedq.connection.async_connection import AsyncConnection
from schedq.connection.request import Request
from schedq.errors import SchedqError, StoreUnavailable, UsageError
from schedq.logs import log
from schedq.model.times import monotonic
from schedq.queue.queue import QueueBase
from schedq.transitions import MarkerWait, Operation, Pipeline, RoundTrips, unwrap

_AGAIN_S: Final = 60.0
_MOST_SAID: Final = 20
_MOST_REASONS: Final = 4
"""The maximum number of reasons of one outage that are logged within a minute."""
_SETTLED_S: Final = 2.0


class LogThrottle:
    """Limits log messages: each text at most once a minute, and a limited number of texts per minute.

    Args:
        most: the maximum number of texts per minute.
    """

    def __init__(self, most: int = _MOST_SAID) -> None:
        self._most = most
        self._said: dict[str, float] = {}

    def is_news(self, text: str) -> bool:
        """Whether the caller should log a text now."""
        now = monotonic()
        self._said = {said: at for said, at in self._said.items() if now - at < _AGAIN_S}
        if text in self._said or len(self._said) >= self._most:
            return False
        self._said[text] = now
        return True

    def log(self, what: str, error: Exception, level: int = logging.ERROR) -> None:
        """Log a rejection by Redis, unless the limits forbid it."""
        if self.is_news(f"{what}: {error}"):
            log.log(level, "%s: %s", what, error)


class Availability:
    """Whether one Redis is available to the connections of a process; each change is logged once. Thread-safe.

    Only clients with a request in progress count. A client that lost Redis and sends no more requests would otherwise
    never notice that Redis is back.

    A server that rejects the password or an operation counts as unavailable if it accepted the same before, because
    passwords and access rules are not changed on a server and its clients at the same moment. If it never did, this is
    a configuration mistake and the error is final.

    Args:
        label: the name of the server in logs.
        claimed: called once, when the first claim was executed, on the loop that had sent it.

    Attributes:
        losses: the number of outages so far.
        carried_out: the names of operations that the server has executed.
        accepted: the names of queues for which the server has passed the handshake.
    """

    def __init__(self, label: str, claimed: Callable[[], object] = lambda: None) -> None:
        self.losses = 0
        self._label = label
        self._claimed = claimed
        self._since = 0.0
        self._is_lost = False
        self._is_answering = False  # a client got a reply since the last loss
        self._without: set[object] = set()
        self._reasons = LogThrottle(_MOST_REASONS)
        self._parts: dict[str, QueueAvailability] = {}
        self._answered: set[str] = set()  # empty until the server has accepted a connection
        self.carried_out: set[str] = set()
        self.accepted: set[str] = set()
        self._lock = threading.RLock()

    def of_queue(self, name: str) -> QueueAvailability:
        """The availability of the node of a cluster that holds this queue."""
        return self._parts.setdefault(name, QueueAvailability(self))

    @property
    def has_answered(self) -> bool:
        """Whether the server has accepted a connection at least once."""
        return bool(self._answered)

    @property
    def lost_at(self) -> float:
        """When the server was lost last, by the monotonic clock."""
        return self._since

    @property
    def lost_for_s(self) -> float:
        """Seconds since the server was lost; 0 while it replies to all clients."""
        with self._lock:
            return monotonic() - self._since if self._is_lost else 0.0

    def has_let(self, operation: str) -> bool:
        """Whether the server has executed an operation with this name; for '', whether it accepted a connection."""
        return operation in self.carried_out if operation else self.has_answered

    def is_final(self, operation: str) -> bool:
        """Whether a rejection of this operation is a configuration mistake rather than an outage.

        It is one if the server never executed this operation, and either the operation is a claim or the server never
        executed the main operation of this process: a claim or, in a process without workers, promoting.
        """
        done = self.carried_out
        return operation not in done and (
            not done or operation == "claim" or not ("claim" in done or "promote" in done)
        )

    def has_carried_out(self, operation: str) -> None:
        """Note that the server has executed an operation with this name for the first time."""
        self.carried_out.add(operation)
        if operation == "claim":
            self._claimed()

    def lost(self, who: object, error: Exception) -> None:
        """Note that the server did not reply to `who`, which repeats its request until it does."""
        with self._lock:
            now, reason = monotonic(), redis_errors.reason(error)
            if not self._is_lost:
                self._since, self._reasons = now, LogThrottle(_MOST_REASONS)
                self._reasons.is_news(reason)
                self.losses += 1
                self._say("lost (%s); trying again until it is back", reason)
            # At first connections break in different ways that all mean the same: the server does not respond.
            elif not (now - self._since < _SETTLED_S and redis_errors.is_unresponsive(error)) and self._reasons.is_news(
                reason
            ):
                self._say("still lost after %.0f s (%s)", now - self._since, reason)
            self._is_lost, self._is_answering = True, False
            self._without.add(who)

    def back(self, who: object) -> None:
        """Note that the server replied to `who`. It is back once it has replied to all clients that wait for it."""
        if not self._answered:
            self._answered.add(self._label)
        # Checked after every reply, so without the lock. A client reports its own losses before its replies.
        if not self._is_lost:
            return
        with self._lock:
            self._is_answering = True
            self.rest(who)

    def rest(self, who: object) -> None:
        """Note that `who` has no request in progress. Whether Redis is back depends on the other clients then."""
        if not self._is_lost:
            return
        with self._lock:
            self._without.discard(who)
            if self._is_lost and self._is_answering and not self._without:
                self._is_lost = False
                self._say("back after %.1f s", monotonic() - self._since)

    def forget(self, who: object) -> None:
        """Note that `who` has been closed. If no other client had lost the server, the next loss is a new outage."""
        with self._lock:
            self.rest(who)
            if not self._without:
                self._is_lost = False

    def _say(self, text: str, *facts: object) -> None:
        log.warning("%s: " + text, self._label, *facts)


class QueueAvailability(Availability):
    """Whether the node of a cluster that holds one queue is available; other queues may be served meanwhile.

    What the cluster has executed and accepted counts for all of its queues, and it logs outages once for all.
    """

    def __init__(self, cluster: Availability) -> None:
        super().__init__("")
        self._cluster = cluster
        self._answered, self.carried_out, self.accepted = cluster._answered, cluster.carried_out, cluster.accepted

    def has_carried_out(self, operation: str) -> None:
        """Note that the cluster has executed an operation with this name for the first time."""
        self._cluster.has_carried_out(operation)

    def lost(self, who: object, error: Exception) -> None:
        """Note that the node did not reply to `who`."""
        super().lost(who, error)
        self._cluster.lost(who, error)

    def back(self, who: object) -> None:
        """Note that the node of the queue, which may be another one now, replied to `who`."""
        if self._is_lost:
            self._cluster.back(who)
        super().back(who)

    def rest(self, who: object) -> None:
        """Note that `who` has no request in progress."""
        super().rest(who)
        self._cluster.rest(who)

    def forget(self, who: object) -> None:
        """Note that `who` has been closed."""
        super().forget(who)
        self._cluster.forget(who)

    def _say(self, text: str, *facts: object) -> None:
        pass  # the cluster does


REFUSED_S: Final = 1.0
"""Seconds until a rejected request is tried again."""


async def run_forever(what: str, step: Callable[[], Awaitable[float]]) -> None:
    """Repeat `step` forever, sleeping for the seconds that it returns. Rejections by Redis are logged and retried.

    Raises:
        UsageError: Redis rejects a request for a permanent reason, such as a wrong password.
    """
    throttle = LogThrottle()
    while True:
        try:
            wait = await step()
        except UsageError:
            raise
        except SchedqError as error:
            throttle.log(what, error)
            wait = REFUSED_S
        if wait > 0:
            await asyncio.sleep(wait)


T = TypeVar("T")
_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0


class ReconnectingClient:
    """Sends a queue's requests on one asyncio connection and retries until Redis replies.

    Args:
        queue: the queue.
        availability: whether its Redis is available.
        shared: a connection of several queues, which `aclose` does not close; None for one of its own.

    Attributes:
        availability: as given.
    """

    def __init__(self, queue: QueueBase, availability: Availability, shared: AsyncConnection | None = None) -> None:
        self.availability = availability
        self._address = queue.address
        self._queue = queue.settings
        self._is_shared = shared is not None
        self._line = shared or AsyncConnection(queue.address, queue.settings, accepted=availability.accepted)
        self._throttle = LogThrottle()
        self._asking = 0

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection. Its loss may not have been noticed yet."""
        return self._line.is_connected

    async def connect(self, failed: Callable[[], None]) -> None:
        """Wait until there is a connection. `failed` is called as in `execute`.

        Raises:
            UsageError: Redis rejects the connection for a permanent reason.
        """
        wait = _FIRST_WAIT_S
        self._asking += 1
        try:
            while not self.is_connected:
                try:
                    await self._line.connect()
                except (SchedqError, *redis_errors.CONNECTION_LOST) as error:
                    if not (redis_errors.is_transient(error) or self.availability.has_answered):
                        raise redis_errors.translate(
                            error, "connect", self._address.label, is_default=self._address.is_default
                        ) from error
                    self.availability.lost(self, error)
                    failed()
                    await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311 - spreads load
                    wait = min(_LONGEST_WAIT_S, 2 * wait)
            self.availability.back(self)
        finally:
            self._asks_no_more()

    async def ask(self, operation: Operation[T]) -> T:
        """Send one operation until Redis replies, and return its result.

        Raises:
            SchedqError: Redis rejected the operation.
        """
        answer: T = unwrap((await self.execute([operation]))[0])
        return answer

    async def drive(self, trips: RoundTrips[T]) -> T:
        """Execute round trips, repeating each until Redis replies, and return their result.

        Raises:
            SchedqError: Redis rejected a request.
        """
        try:
            step = next(trips)
            while True:
                assert not isinstance(step, MarkerWait)
                step = trips.send(await self.execute(step))
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def execute(self, operations: Pipeline, failed: Callable[[], None] | None = None) -> list[Any]:
        """Send operations together until all have a result. Those that must not be repeated fail after a lost reply.

        Args:
            operations: what to send.
            failed: called after each attempt without a reply; the next attempt may be much later.
        """
        availability = self.availability
        request = Request(operations, self._address, self._queue, math.inf, availability.has_let)
        self._asking += 1
        try:
            while request.left:
                try:
                    replies = await self._line.ask(request.commands())
                except (SchedqError, *redis_errors.CONNECTION_LOST) as error:
                    if redis_errors.is_transient(error) or availability.has_answered:
                        availability.lost(self, error)
                    wait = request.on_error(error)
                    if failed is not None:
                        failed()
                else:
                    wait = request.on_replies(replies)
                    self._look_at(replies, request.revoked)
                if wait:
                    await asyncio.sleep(wait)
        finally:
            self._asks_no_more()
        answers = request.answers
        for number, operation in enumerate(operations):
            if isinstance(answers[number], SchedqError):
                answers[number] = self._refusal(operation.name, answers[number])
            elif operation.name not in availability.carried_out:
                availability.has_carried_out(operation.name)
        return answers

    def _asks_no_more(self) -> None:
        """Count the end of a request, also by cancellation; after the last one, report that none is in progress."""
        self._asking -= 1
        if not self._asking:
            self.availability.rest(self)

    async def aclose(self) -> None:
        """Close the connection, unless it is shared."""
        self.availability.forget(self)
        if not self._is_shared:
            await self._line.aclose()

    def _refusal(self, operation: str, error: SchedqError) -> SchedqError:
        """Return the error; a rejection that is not a configuration mistake becomes StoreUnavailable."""
        if isinstance(error, UsageError) and not self.availability.is_final(operation):
            return StoreUnavailable(str(error))
        return error

    def _look_at(self, replies: list[Any], revoked: Exception | None) -> None:
        """Update `availability` from the replies, and log transient errors."""
        if revoked is not None:
            self.availability.lost(self, revoked)
            # The credential provider may have a new user or password for the next connection.
            self._line.close(redis_errors.reason(revoked))
            return
        problems = [reply for reply in replies if isinstance(reply, Exception)]
        if not problems:
            self.availability.back(self)
            return
        if len(problems) < len(replies) or not all(map(redis_errors.is_refusal, problems)):
            self.availability.back(self)
        for problem in problems:
            if redis_errors.is_transient(problem):
                if redis_errors.is_moved(problem):
                    self._throttle.log(f"queue {self._queue.name} has moved to another node", problem, logging.INFO)
                else:
                    self._throttle.log(f"{self._address.label} replies but does not serve requests", problem)
                return
