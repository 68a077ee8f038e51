"""A connection for roles that run for ever: it waits for Redis as long as it takes, and says so once."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from schedq.application import Application
from schedq.clocks import monotonic
from schedq.connection import faults
from schedq.connection.aline import AsyncLine
from schedq.connection.exchange import Exchange
from schedq.errors import SchedqError, StoreUnavailable, UsageError
from schedq.logger import log
from schedq.operations import Block, Flow, Operation, Round, firm

T = TypeVar("T")
REFUSED_S: Final = 1.0
"""Seconds until something that Redis refused is tried again."""
_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0
_AGAIN_S: Final = 60.0
_MOST_SAID: Final = 20
_MOST_REASONS: Final = 4
"""Reasons of one outage that are logged within a minute."""
_SETTLED_S: Final = 2.0


class Outage:
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
        self._said: dict[str, float] = {}  # reasons, and when they were logged last
        self.carried_out: set[str] = set()
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
            now, reason = monotonic(), faults.reason(error)
            if not self._is_lost:
                self._since, self._said = now, {reason: now}
                self.losses += 1
                log.warning("%s: lost (%s); trying again until it is back", self._label, reason)
            elif self._is_news(reason, now, faults.is_silence(error)):
                self._said[reason] = now
                log.warning("%s: still lost after %.0f s (%s)", self._label, now - self._since, reason)
            self._is_lost, self._is_answering = True, False
            self._without.add(who)

    def _is_news(self, reason: str, now: float, is_silence: bool) -> bool:  # noqa: FBT001 - a fact
        """Whether a lasting outage's reason is to be said: another one, or the same a minute later.

        In the first moments connections break in several ways, which all say the same: nobody answers.
        """
        if is_silence and now - self._since < _SETTLED_S:
            return False
        self._said = {said: at for said, at in self._said.items() if now - at < _AGAIN_S}
        return reason not in self._said and len(self._said) < _MOST_REASONS

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


class Complaint:
    """What a loop has to say about refusals of Redis: each once, and then once a minute while it lasts."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def say(self, what: str, error: Exception, level: int = logging.ERROR) -> None:
        """Log it, if that was not done a moment ago, nor much else."""
        text = f"{what}: {error}"
        now = monotonic()
        self._said = {said: at for said, at in self._said.items() if now - at < _AGAIN_S}
        if text not in self._said and len(self._said) < _MOST_SAID:
            self._said[text] = now
            log.log(level, "%s", text)


async def steadily(what: str, step: Callable[[], Awaitable[float]]) -> None:
    """Do `step` for ever, sleeping as many seconds as it answers. A refusal by Redis is said, and tried again.

    Raises:
        UsageError: Redis refuses for a reason that does not pass by itself, such as a wrong password.
    """
    complaint = Complaint()
    while True:
        try:
            wait = await step()
        except UsageError:
            raise
        except SchedqError as error:
            complaint.say(what, error)
            wait = REFUSED_S
        if wait > 0:
            await asyncio.sleep(wait)


class Link:
    """One asyncio connection that does not give up.

    Attributes:
        outage: what is known of the Redis it leads to.
    """

    def __init__(self, queue: Application, outage: Outage) -> None:
        self.outage = outage
        self._address = queue.address
        self._queue = queue.settings
        self._line = AsyncLine(queue.address, queue.settings)
        self._complaint = Complaint()
        self._asking = 0

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._line.is_connected

    async def connect(self, failed: Callable[[], None]) -> None:
        """Wait until there is a connection; nothing of any request is sent before. `failed` as in `exchange`.

        Raises:
            UsageError: Redis refuses for a reason that does not pass by itself.
        """
        wait = _FIRST_WAIT_S
        self._asking += 1
        try:
            while not self.is_connected:
                try:
                    await self._line.connect()
                except (SchedqError, *faults.BROKEN_LINE) as error:
                    if not (faults.is_passing(error) or self.outage.has_answered):
                        raise faults.named(error, "connect", self._address) from error
                    self.outage.lost(self, error)
                    failed()
                    await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311 - spreads load
                    wait = min(_LONGEST_WAIT_S, 2 * wait)
            self.outage.back(self)
        finally:
            self._asks_no_more()

    async def ask(self, operation: Operation[T]) -> T:
        """Send one operation until it is answered.

        Raises:
            SchedqError: Redis answered, and refused.
        """
        answer: T = firm((await self.exchange([operation]))[0])
        return answer

    async def drive(self, flow: Flow[T]) -> T:
        """Send the rounds of a flow until they are answered.

        Raises:
            SchedqError: Redis answered, and refused.
        """
        try:
            step = next(flow)
            while True:
                assert not isinstance(step, Block)
                step = flow.send(await self.exchange(step))
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def exchange(self, operations: Round, failed: Callable[[], None] | None = None) -> list[Any]:
        """Send operations together until all are answered; those that may not be repeated end in an error instead.

        Args:
            operations: what to send.
            failed: called after each sending that was not answered; the next one may be long in coming.
        """
        outage = self.outage
        exchange = Exchange(operations, self._address, self._queue, math.inf, outage.has_let)
        self._asking += 1
        try:
            while not exchange.is_done:
                try:
                    replies = await self._line.ask(exchange.commands())
                except (SchedqError, *faults.BROKEN_LINE) as error:
                    if faults.is_passing(error) or outage.has_answered:
                        outage.lost(self, error)
                    wait = exchange.failed(error)
                    if failed is not None:
                        failed()
                else:
                    wait = exchange.take(replies)
                    self._look_at(replies, exchange.revoked)
                if wait:
                    await asyncio.sleep(wait)
        finally:
            self._asks_no_more()
        answers = exchange.answers
        for number, operation in enumerate(operations):
            if isinstance(answers[number], SchedqError):
                answers[number] = self._refusal(operation.name, answers[number])
            elif operation.name not in outage.carried_out:
                outage.has_carried_out(operation.name)
        return answers

    def _asks_no_more(self) -> None:
        """A request has ended, also by a cancellation; the last one leaves word that nothing is asked for now."""
        self._asking -= 1
        if not self._asking:
            self.outage.rest(self)

    async def aclose(self) -> None:
        """Close the connection."""
        self.outage.forget(self)
        await self._line.aclose()

    def _refusal(self, operation: str, error: SchedqError) -> SchedqError:
        """The error; a refusal that is no mistake is one that passes."""
        if isinstance(error, UsageError) and not self.outage.is_final(operation):
            return StoreUnavailable(str(error))
        return error

    def _look_at(self, replies: list[Any], revoked: Exception | None) -> None:
        """Notice whether Redis serves; say what it answers instead. The address may lead to another server by now."""
        if revoked is not None:
            self.outage.lost(self, revoked)
            self._line.close(faults.reason(revoked))  # there may be another user or password to come back with
            return
        problems = [reply for reply in replies if isinstance(reply, Exception)]
        if not problems:
            self.outage.back(self)
            return
        if len(problems) < len(replies) or not all(map(faults.is_refusal, problems)):
            self.outage.back(self)
        for problem in problems:
            if faults.is_passing(problem):
                if faults.is_moved(problem):
                    self._complaint.say(f"queue {self._queue.name} has moved to another node", problem, logging.INFO)
                else:
                    self._complaint.say(f"{self._address.label} answers, and does not serve", problem)
                return
