"""The operator's two doors to a queue: `queue.inspector`, blocking or awaited."""

from __future__ import annotations

from schedq.application import Application
from schedq.connection.asender import AsyncSender
from schedq.connection.sender import Sender
from schedq.schedules import AsyncScheduling, Scheduling


class Inspector:
    """What those who run a queue ask of it, and do to many jobs at once."""

    def __init__(self, queue: Application, sender: Sender) -> None:
        self._queue = queue
        self._ask, self._drive = sender.ask, sender.drive


class AsyncInspector:
    """`Inspector`, awaited."""

    def __init__(self, queue: Application, sender: AsyncSender) -> None:
        self._queue = queue
        self._ask, self._drive = sender.ask, sender.drive


class Inspected(Scheduling, door=""):
    """What the blocking queue has for operators."""

    @property
    def inspector(self) -> Inspector:
        """Looking and acting as an operator."""
        return Inspector(self, self._sender)


class AsyncInspected(AsyncScheduling, door=""):
    """What the asyncio queue has for operators."""

    @property
    def inspector(self) -> AsyncInspector:
        """Looking and acting as an operator."""
        return AsyncInspector(self, self._sender)
