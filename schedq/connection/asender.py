"""Sends operations and awaits their answers, on any event loop: each has connections of its own."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from schedq.connection import faults
from schedq.connection.address import Address
from schedq.connection.exchange import Exchange
from schedq.connection.listing import Listing
from schedq.connection.loop_close import LoopClose
from schedq.connection.loop_connections import LoopConnections
from schedq.errors import ClosedError, SchedqError, UsageError
from schedq.operations import Block, Flow, Operation, Round, firm
from schedq.settings import Settings

T = TypeVar("T")


class AsyncSender:
    """What an asyncio queue asks Redis through."""

    def __init__(self, address: Address, queue: Settings) -> None:
        self._address = address
        self._queue = queue
        self._listing = Listing(address, queue)
        self._here: LoopConnections | None = None  # those that were used last, by whichever loop

    def use(self, queue: Settings) -> None:
        """Go by other settings of the same queue from now on."""
        self._queue = queue

    def here(self) -> LoopConnections:
        """The connections of the running loop.

        Raises:
            ClosedError: the loop is being closed.
            UsageError: this is no asyncio event loop.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise self._no_loop() from None
        here = self._here
        if here is None or here.loop is not loop:
            here = self._here = self._on(loop)
        return here

    async def aclose(self) -> None:
        """Close the connections of the running loop; the next request opens them again."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise self._no_loop() from None
        await LoopClose.of(loop).aclose(self)

    def _no_loop(self) -> UsageError:
        return UsageError(
            f"queue {self._queue.name}: awaited verbs need a running asyncio event loop (trio's is another kind); "
            "without one call the blocking verbs in a thread, as in `await anyio.to_thread.run_sync(queue.stats)`"
        )

    def _on(self, loop: asyncio.AbstractEventLoop) -> LoopConnections:
        """The connections of the running loop, which may be new."""
        end = LoopClose.of(loop)
        here = end.find(self)
        if isinstance(here, LoopConnections) and here.loop is not None:
            return here
        if end.is_closing:
            raise ClosedError(f"queue {self._queue.name}: this event loop is being closed")
        here = LoopConnections(loop, self._address, self._queue)
        end.keep(self, here)
        return here

    async def ask(self, operation: Operation[T]) -> T:
        """The answer to one operation.

        Raises:
            SchedqError: the one it ended in.
        """
        answer: T = firm((await self.exchange([operation]))[0])
        return answer

    async def exchange(self, operations: Round) -> list[Any]:
        """Send operations together; for each its answer, or the SchedqError it ended in."""
        exchange = Exchange(self._listing.along(operations), self._address, self._queue, self._queue.retry_for)
        while not exchange.is_done:
            here = self.here()
            try:
                if waits := exchange.waits():
                    replies = await here.convoy.ask(exchange.commands, waits, exchange.is_in_time)
                else:
                    line = here.line
                    if not line.is_ready:
                        await line.connect()
                        if not exchange.is_in_time():
                            continue
                    replies = await line.ask(exchange.commands())
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
            ClosedError: the connections were closed before it ended.
            SchedqError: the flow did.
        """
        here = self.here()
        try:
            step = next(flow)
            while True:
                here.check()
                if isinstance(step, Block):
                    await here.block(step)
                    here.check()
                    step = next(flow)
                else:
                    step = flow.send(await self.exchange(step))
        except StopIteration as stop:
            result: T = stop.value
            return result
