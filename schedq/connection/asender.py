"""Sends operations and awaits their answers; belongs to the event loop that first used it."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from schedq.clocks import monotonic
from schedq.connection import faults
from schedq.connection.address import Address
from schedq.connection.aline import AsyncLine
from schedq.connection.convoy import Convoy
from schedq.connection.exchange import Exchange
from schedq.connection.listing import Listing
from schedq.connection.sender import TROUBLE_S
from schedq.connection.subscription import Hearing, Subscription
from schedq.errors import ClosedError, SchedqError
from schedq.operations import Block, Flow, Operation, Round, firm
from schedq.operations.waiting import POLL_S
from schedq.settings import Settings

T = TypeVar("T")


class AsyncSender:
    """What an asyncio queue asks Redis through."""

    def __init__(self, address: Address, queue: Settings) -> None:
        self._address = address
        self._queue = queue
        self._listing = Listing(address, queue)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._line = AsyncLine(address, queue)
        self._convoy = Convoy(address, queue)
        self._subscription = Subscription(address, queue)
        self._idle_lines: list[AsyncLine] = []
        self._blocked_lines: set[AsyncLine] = set()
        self._is_closed = False

    def use(self, queue: Settings) -> None:
        """Go by other settings of the same queue from now on."""
        self._queue = queue

    async def aclose(self) -> None:
        """Close the connections; every later call raises ClosedError."""
        self._is_closed = True
        await self._subscription.aclose()
        await self._convoy.aclose()
        for line in (self._line, *self._idle_lines, *self._blocked_lines):
            await line.aclose()

    def check(self) -> None:
        """Make sure that this loop may use it.

        Raises:
            ClosedError: it was closed, or belongs to another loop.
        """
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise ClosedError(f"queue {self._queue.name} is closed")
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise ClosedError(
                f"this AsyncQueue of {self._queue.name} belongs to the event loop that first used it; "
                "make one AsyncQueue per loop"
            )

    async def ask(self, operation: Operation[T]) -> T:
        """The answer to one operation.

        Raises:
            SchedqError: the one it ended in.
        """
        answer: T = firm((await self.exchange([operation]))[0])
        return answer

    async def exchange(self, operations: Round) -> list[Any]:
        """Send operations together; for each its answer, or the SchedqError it ended in."""
        self.check()
        exchange = Exchange(self._listing.along(operations), self._address, self._queue, self._queue.retry_for)
        while not exchange.is_done:
            try:
                if waits := exchange.waits():
                    replies = await self._convoy.ask(exchange.commands(), waits)
                else:
                    replies = await self._line.ask(exchange.commands())
                wait = exchange.take(replies)
            except SchedqError as error:
                wait = exchange.failed(error)
            except faults.BROKEN_LINE as error:
                wait = exchange.failed(error)
            if wait:
                await asyncio.sleep(wait)
        return exchange.answers[: len(operations)]

    async def drive(self, flow: Flow[T]) -> T:
        """Do what a flow asks for until it ends.

        Raises:
            SchedqError: the flow did.
        """
        try:
            step = next(flow)
            while True:
                if isinstance(step, Block):
                    await self._block(step)
                    step = next(flow)
                else:
                    step = flow.send(await self.exchange(step))
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def listen(self, channel: str, hearing: Hearing) -> None:
        """Call `hearing` for each message of a channel, and with '' where some may have been missed."""
        self.check()
        await self._subscription.listen(channel, hearing)

    async def forget(self, channel: str, hearing: Hearing) -> None:
        """Stop calling `hearing`."""
        await self._subscription.forget(channel, hearing)

    async def _block(self, block: Block) -> None:
        """Wait for the wake marker. Whoever took it claims next, so it need not be given back."""
        server_s = max(0.01, block.seconds + (1 if block.is_exact else 0))
        began = monotonic()
        line = self._idle_lines.pop() if self._idle_lines else AsyncLine(self._address, self._queue)
        self._blocked_lines.add(line)
        command = ("BZPOPMIN", self._queue.keys.wake, f"{server_s:.3f}")
        pause_s = 0.0
        try:
            most_s = block.seconds if block.is_exact else block.seconds + 1
            replies = await asyncio.wait_for(line.ask([command], reply_s=server_s + 2), most_s)
            pause_s = POLL_S if isinstance(replies[0], Exception) else 0.0
        except TimeoutError:
            line.close()
        except (*faults.BROKEN_LINE, SchedqError):
            pause_s = TROUBLE_S
        except asyncio.CancelledError:
            line.close()
            raise
        finally:
            self._blocked_lines.discard(line)
            self._idle_lines.append(line)
        if pause_s and not self._is_closed:
            await asyncio.sleep(max(0.0, min(pause_s, block.seconds - (monotonic() - began))))
