"""An event loop whose timers are exact to a fraction of a millisecond."""

from __future__ import annotations

import asyncio
import select
import selectors
import sys
from typing import Final

_MOST_FD: Final = 1023
"""The highest file descriptor that `select` can wait for."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of asyncio. Others on Linux round timers up to whole milliseconds."""
    return asyncio.SelectorEventLoop(_PreciseSelector()) if sys.platform == "linux" else asyncio.new_event_loop()


if sys.platform == "linux":

    class _PreciseSelector(selectors.EpollSelector):
        """Waits by `select`, for the one file descriptor of epoll, because epoll rounds the time up."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """Wait as `EpollSelector.select` does."""
            if timeout is not None and timeout > 0 and self.fileno() <= _MOST_FD:
                select.select((self.fileno(),), (), (), timeout)
                timeout = 0
            return super().select(timeout)
