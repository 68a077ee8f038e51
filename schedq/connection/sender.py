"""Sends operations and waits for their answers, blocking the caller; threads may share one."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeVar

from schedq.clocks import monotonic, sleep
from schedq.connection import faults
from schedq.connection.address import Address
from schedq.connection.exchange import Exchange
from schedq.connection.line import Pool
from schedq.connection.listing import Listing
from schedq.errors import SchedqError
from schedq.operations import Block, Flow, Operation, Round, firm
from schedq.operations.waiting import POLL_S
from schedq.settings import Settings

T = TypeVar("T")
TROUBLE_S: Final = 0.2
"""Seconds until a wait goes on whose connection was lost."""
_LONGEST_LISTEN_S: Final = 3600.0


class Sender:
    """What a blocking queue asks Redis through."""

    def __init__(self, address: Address, queue: Settings) -> None:
        self._address = address
        self._queue = queue
        self._listing = Listing(address, queue)
        self._pool = Pool(address, queue)

    def use(self, queue: Settings) -> None:
        """Go by other settings of the same queue from now on."""
        self._queue = queue

    def close(self) -> None:
        """Close the connections; every later call raises ClosedError."""
        self._pool.close()

    def ask(self, operation: Operation[T]) -> T:
        """The answer to one operation.

        Raises:
            SchedqError: the one it ended in.
        """
        answer: T = firm(self.exchange([operation])[0])
        return answer

    def exchange(self, operations: Round) -> list[Any]:
        """Send operations together; for each its answer, or the SchedqError it ended in."""
        exchange = Exchange(self._listing.along(operations), self._address, self._queue, self._queue.retry_for)
        while not exchange.is_done:
            try:
                line = self._pool.take()
                try:
                    if not line.is_connected:
                        line.connect()
                        if not exchange.is_in_time():
                            continue
                    replies = line.ask(exchange.commands(), exchange.waits())
                finally:
                    self._pool.give_back(line)
            except SchedqError as error:
                wait = exchange.failed(error)
            except faults.BROKEN_LINE as error:
                wait = exchange.failed(error)
            else:
                wait = exchange.take(replies)
            if wait:
                sleep(wait)
        return exchange.answers[: len(operations)]

    def drive(self, flow: Flow[T]) -> T:
        """Do what a flow asks for until it ends.

        Raises:
            SchedqError: the flow did.
        """
        try:
            step = next(flow)
            while True:
                if isinstance(step, Block):
                    self._block(step)
                    step = next(flow)
                else:
                    step = flow.send(self.exchange(step))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def messages(self, channel: str) -> Generator[str | None, float | None, None]:
        """Messages of a channel, and '' where some may have been missed: at first, and around a loss of the connection.

        It is sent how many seconds the next one may take, None for any; None comes when they have passed.
        """
        wait: float | None = 0.0
        while True:
            with self._pool.line() as line:
                try:
                    line.ask([("SUBSCRIBE", channel)])
                    wait = yield ""
                    while True:
                        message = line.listen(_LONGEST_LISTEN_S if wait is None else wait)
                        wait = yield message[2] if message is not None else None
                except faults.BROKEN_LINE:
                    pass
                finally:
                    line.close()
            sleep(POLL_S if wait is None else min(POLL_S, wait))
            wait = yield ""

    def _block(self, block: Block) -> None:
        """Wait for the wake marker. Whoever took it claims next, so it need not be given back."""
        server_s = max(0.01, block.seconds + (1 if block.is_exact else 0))
        began, pause_s = monotonic(), POLL_S
        try:
            with self._pool.line() as line:
                reply = line.wait(
                    ("BZPOPMIN", self._queue.keys.wake, f"{server_s:.3f}"),
                    block.seconds if block.is_exact else block.seconds + 1,
                )
        except (*faults.BROKEN_LINE, SchedqError) as error:
            reply = error
            pause_s = TROUBLE_S
        if isinstance(reply, Exception):
            sleep(max(0.0, min(pause_s, block.seconds - (monotonic() - began))))
