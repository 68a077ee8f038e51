"""The connections of one asyncio queue on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from schedq.clocks import monotonic
from schedq.connection import faults
from schedq.connection.address import Address
from schedq.connection.aline import AsyncLine
from schedq.connection.convoy import Convoy
from schedq.connection.sender import TROUBLE_S
from schedq.connection.subscription import Subscription
from schedq.errors import ClosedError, SchedqError
from schedq.operations import Block
from schedq.operations.waiting import POLL_S
from schedq.settings import Settings

_LAST_S: Final = 5.0
"""Seconds that work in the background may take to end when its connections are closed."""


class LoopConnections:
    """What an asyncio queue has on one event loop. Only that loop may use it.

    Attributes:
        loop: the event loop; None once the connections are closed, for good.
        line: for requests.
        convoy: for requests that wait for replicas or a disk.
        subscription: for messages.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, address: Address, queue: Settings) -> None:
        self.loop: asyncio.AbstractEventLoop | None = loop
        self.line = AsyncLine(address, queue)
        self.convoy = Convoy(address, queue)
        self.subscription = Subscription(address, queue)
        self._address = address
        self._queue = queue
        self._idle_lines: list[AsyncLine] = []
        self._blocked_lines: set[AsyncLine] = set()
        self._behind: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """Make sure that a wait which began here can go on.

        Raises:
            ClosedError: the connections were closed meanwhile, or another loop is running now.
        """
        if self.loop is None:
            raise ClosedError(f"queue {self._queue.name} was closed while this was waiting")
        if self.loop is not asyncio.get_running_loop():
            raise ClosedError(f"queue {self._queue.name}: this wait belongs to the event loop on which it began")

    def do_behind(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work that nobody waits for; closing does."""
        task = asyncio.get_running_loop().create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    async def aclose(self) -> None:
        """Let work in the background end, then close the connections. What still waits hears of it."""
        if self._behind:
            await asyncio.wait(self._behind, timeout=_LAST_S)
        self.loop = None
        left = list(self._behind)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.subscription.aclose()
        await self.convoy.aclose()
        for line in (self.line, *self._idle_lines, *self._blocked_lines):
            await line.aclose()

    async def block(self, block: Block) -> None:
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
        if pause_s and self.loop is not None:
            await asyncio.sleep(max(0.0, min(pause_s, block.seconds - (monotonic() - began))))
