"""A connection for roles that run forever: it waits for Redis as long as it takes, and says so once."""

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
"""Reasons of one outage that are logged within a minute."""
_SETTLED_S: Final = 2.0


class LogThrottle:
    """Lets each text through once, and then once a minute while it comes; not many in one minute.

    Args:
        most: texts that are let through in a minute.
    """

    def __init__(self, most: int = _MOST_SAID) -> None:
        self._most = most
        self._said: dict[str, float] = {}

    def is_news(self, text: str) -> bool:
        """Whether a text is to be logged now; the caller does it."""
        now = monotonic()
        self._said = {said: at for said, at in self._said.items() if now - at < _AGAIN_S}
        if text in self._said or len(self._said) >= self._most:
            return False
        self._said[text] = now
        return True

    def log(self, what: str, error: Exception, level: int = logging.ERROR) -> None:
        """Log a refusal by Redis, if that was not done a moment ago."""
        if self.is_news(f"{what}: {error}"):
            log.log(level, "%s: %s", what, error)


class Availability:
    """Whether one Redis can be reached, as all connections of a process see it; one log line per change.

    Only those that are asking count: one that lost Redis and has nothing to ask for now would never hear it answer.
    Any thread may use it.

    A server that refuses the password, or an operation, is out as well once it has let us in, or carried that
    operation out: passwords and access rules are changed on a server and its clients at different moments. Before
    that it is a mistake, which is final.

    Args:
        label: the place, for logs.
        claimed: called once, when it has answered a claim, by the loop that had sent it.

    Attributes:
        losses: how many times it was lost so far.
        has_answered: it has let us in, at least once.
        carried_out: names of the operations that it has not refused.
        accepted: names of the queues whose handshakes it has passed.
    """

    def __init__(self, label: str, claimed: Callable[[], object] = lambda: None) -> None:
        self.losses = 0
        self.has_answered = False
        self._label = label
        self._claimed = claimed
        self._since = 0.0
        self._is_lost = False
        self._is_answering = False  # somebody got an answer since it was last lost
        self._without: set[object] = set()
        self._reasons = LogThrottle(_MOST_REASONS)
        self.carried_out: set[str] = set()
        self.accepted: set[str] = set()
        self._lock = threading.RLock()

    @property
    def lost_for_s(self) -> float:
        """Seconds since it was lost; 0 while it answers all that ask it."""
        with self._lock:
            return monotonic() - self._since if self._is_lost else 0.0

    def has_let(self, operation: str) -> bool:
        """Whether it has carried out an operation of this name before; or has let us in, if it is ''."""
        return operation in self.carried_out if operation else self.has_answered

    def is_final(self, operation: str) -> bool:
        """Whether it is a mistake, and no outage, that it refuses an operation of this name.

        It is one if this, or what this process is there for, was never carried out: claims, or else promoting.
        """
        done = self.carried_out
        return operation not in done and (
            not done or operation == "claim" or not ("claim" in done or "promote" in done)
        )

    def has_carried_out(self, operation: str) -> None:
        """It did not refuse an operation of this name, for the first time."""
        self.carried_out.add(operation)
        if operation == "claim":
            self._claimed()

    def lost(self, who: object, error: Exception) -> None:
        """It did not answer `who`, which asks again until it does."""
        with self._lock:
            now, reason = monotonic(), redis_errors.reason(error)
            if not self._is_lost:
                self._since, self._reasons = now, LogThrottle(_MOST_REASONS)
                self._reasons.is_news(reason)
                self.losses += 1
                log.warning("%s: lost (%s); trying again until it is back", self._label, reason)
            # In the first moments connections break in several ways, which all say the same: nobody answers.
            elif not (now - self._since < _SETTLED_S and redis_errors.is_unresponsive(error)) and self._reasons.is_news(
                reason
            ):
                log.warning("%s: still lost after %.0f s (%s)", self._label, now - self._since, reason)
            self._is_lost, self._is_answering = True, False
            self._without.add(who)

    def back(self, who: object) -> None:
        """It answered `who`. It is back when it has answered all that had lost it and still ask."""
        self.has_answered = True
        if not self._is_lost:  # asked after every answer, so without the lock: a loss of its own each has told before
            return
        with self._lock:
            self._is_answering = True
            self.rest(who)

    def rest(self, who: object) -> None:
        """`who` asks nothing for now, answered or not: the others find out whether Redis answers."""
        if not self._is_lost:  # then nobody is without it
            return
        with self._lock:
            self._without.discard(who)
            if self._is_lost and self._is_answering and not self._without:
                self._is_lost = False
                log.warning("%s: back after %.1f s", self._label, monotonic() - self._since)

    def forget(self, who: object) -> None:
        """`who` has gone. If nobody else had lost it, the next loss is another one."""
        with self._lock:
            self.rest(who)
            if not self._without:
                self._is_lost = False


REFUSED_S: Final = 1.0
"""Seconds until something that Redis refused is tried again."""


async def run_forever(what: str, step: Callable[[], Awaitable[float]]) -> None:
    """Do `step` forever, sleeping as many seconds as it returns. A refusal by Redis is logged, and tried again.

    Raises:
        UsageError: Redis refuses for a reason that does not pass with time, such as a wrong password.
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
    """One asyncio connection that does not give up.

    Attributes:
        availability: what is known of the Redis it leads to.
    """

    def __init__(self, queue: QueueBase, availability: Availability) -> None:
        self.availability = availability
        self._address = queue.address
        self._queue = queue.settings
        self._line = AsyncConnection(queue.address, queue.settings, availability.accepted)
        self._throttle = LogThrottle()
        self._asking = 0

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._line.is_connected

    async def connect(self, failed: Callable[[], None]) -> None:
        """Wait until there is a connection; nothing of any request is sent before. `failed` as in `execute`.

        Raises:
            UsageError: Redis refuses for a reason that does not pass with time.
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
        """Send one operation until it is answered.

        Raises:
            SchedqError: Redis answered, and refused.
        """
        answer: T = unwrap((await self.execute([operation]))[0])
        return answer

    async def drive(self, trips: RoundTrips[T]) -> T:
        """Make round trips, each again until Redis replies.

        Raises:
            SchedqError: Redis answered, and refused.
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
        """Send operations together until all are answered; those that may not be repeated end in an error instead.

        Args:
            operations: what to send.
            failed: called after each sending that was not answered; the next one may be long in coming.
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
        """A request has ended, also by a cancellation; the last one leaves word that nothing is asked for now."""
        self._asking -= 1
        if not self._asking:
            self.availability.rest(self)

    async def aclose(self) -> None:
        """Close the connection."""
        self.availability.forget(self)
        await self._line.aclose()

    def _refusal(self, operation: str, error: SchedqError) -> SchedqError:
        """The error; a refusal that is no mistake is one that passes."""
        if isinstance(error, UsageError) and not self.availability.is_final(operation):
            return StoreUnavailable(str(error))
        return error

    def _look_at(self, replies: list[Any], revoked: Exception | None) -> None:
        """Notice whether Redis serves; log what it answers instead. The address may lead to another server by now."""
        if revoked is not None:
            self.availability.lost(self, revoked)
            self._line.close(redis_errors.reason(revoked))  # there may be another user or password to come back with
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
                    self._throttle.log(f"{self._address.label} answers, and does not serve", problem)
                return
