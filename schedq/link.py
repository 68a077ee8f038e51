"""A connection for roles that run for ever: it waits for Redis as long as it takes, and says so once."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from schedq.application import Application
from schedq.clocks import monotonic
from schedq.connection import faults
from schedq.connection.aline import AsyncLine
from schedq.connection.exchange import Exchange
from schedq.errors import SchedqError, UsageError
from schedq.operations import Block, Flow, Operation, Round, firm

T = TypeVar("T")
REFUSED_S: Final = 1.0
"""Seconds until something that Redis refused is tried again."""
_AGAIN_S: Final = 60.0
log: Final = logging.getLogger("schedq")


class Outage:
    """Whether one Redis can be reached, as all links of a process see it; one log line per change.

    Attributes:
        losses: how many times it was lost so far.
    """

    def __init__(self, label: str) -> None:
        self.losses = 0
        self._label = label
        self._since: float | None = None

    def lost(self, error: Exception) -> None:
        """It did not answer."""
        if self._since is None:
            self._since = monotonic()
            self.losses += 1
            log.warning(
                "%s: lost (%s); trying again until it is back",
                self._label,
                str(error) or type(error).__name__,
            )

    def back(self) -> None:
        """It answered."""
        if self._since is not None:
            log.warning("%s: back after %.1f s", self._label, monotonic() - self._since)
            self._since = None


class Complaint:
    """What a loop has to say about a refusal of Redis: once, and then once a minute while it lasts."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def say(self, what: str, error: Exception) -> None:
        """Log it, if that was not done a moment ago."""
        text = f"{what}: {error}"
        if monotonic() - self._said.get(text, -_AGAIN_S) >= _AGAIN_S:
            self._said = {text: monotonic()}
            log.error("%s", text)


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
        self._line = AsyncLine(queue.address, queue.settings)

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

    async def exchange(self, operations: Round) -> list[Any]:
        """Send operations together until all are answered; those that may not be repeated end in an error instead."""
        exchange = Exchange(operations, self._address, math.inf)
        while not exchange.is_done:
            try:
                replies = await self._line.ask(exchange.commands())
            except (SchedqError, *faults.BROKEN_LINE) as error:
                if faults.is_passing(error):
                    self.outage.lost(error)
                wait = exchange.failed(error)
            else:
                self.outage.back()
                wait = exchange.take(replies)
            if wait:
                await asyncio.sleep(wait)
        return exchange.answers

    async def aclose(self) -> None:
        """Close the connection."""
        await self._line.aclose()
