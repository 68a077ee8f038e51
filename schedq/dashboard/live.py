"""Pages that stay true while one looks: the parts that changed, as server-sent events.

However many browsers show a page, it is drawn once for all of them, every second or so, and not at all when nobody
looks. A slow browser misses drawings, never piles them up.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final

from starlette.types import Receive, Send

from schedq.dashboard.guard import Refusal
from schedq.errors import SchedqError

MOST_STREAMS: Final = 100
TICK_S: Final = 1.0
_SILENCE_S: Final = 10.0
_LONGEST_S: Final = 600.0
"""Seconds after which a stream ends and the browser comes again, to be examined at the door again."""
_MOST_SHARE: Final = 4
"""Times that a drawing took that pass before the next, at least: pages that are slow to draw must not fill Redis."""

Regions = dict[str, str]
Draw = Callable[[], Awaitable[tuple[Regions, float]]]
"""Draws a page; answers with its parts, and the seconds that pass before the next drawing at the least."""
log: Final = logging.getLogger("schedq.dashboard")


class _Channel:
    """One page as it looks now, for all who look at it.

    Attributes:
        trouble: why it is not up to date, or ''.
        is_gone: what it was about is no more, and it is drawn no more.
    """

    def __init__(self, draw: Draw) -> None:
        self.regions: Regions = {}
        self.trouble = ""
        self.is_gone = False
        self.users = 0
        self._draw = draw
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="schedq dashboard page")

    def changed(self) -> Coroutine[Any, Any, None]:
        """Wait for the next drawing from now on, not from when the caller gets its turn."""
        return _set(self._changed)

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        wait_s = TICK_S
        logged = ""
        while not self.is_gone:
            began = clock()
            try:
                (self.regions, wait_s), self.trouble = await self._draw(), ""
            except SchedqError as error:
                self.trouble = f"{datetime.now(UTC):%H:%M:%S} UTC: {error}"
            except Refusal as refusal:
                self.trouble, self.is_gone = f"{datetime.now(UTC):%H:%M:%S} UTC: {refusal.text}", True
            except Exception as error:
                if logged != repr(error):  # once, and not at every drawing
                    log.exception("a page can't be drawn")
                    logged = repr(error)
                self.trouble = f"this page can't be drawn: {type(error).__name__}"
            changed = self._changed
            if not self.is_gone:  # else nobody need wait any more
                self._changed = asyncio.Event()
            changed.set()
            await asyncio.sleep(max(wait_s, _MOST_SHARE * (clock() - began)))


class Live:
    """All streams of one dashboard."""

    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}
        self._streams = 0
        self._ends: set[asyncio.Future[None]] = set()

    @property
    def is_full(self) -> bool:
        """Whether there are as many streams as there may be."""
        return self._streams >= MOST_STREAMS

    def end(self) -> None:
        """End all streams, so that a server can stop; browsers try again later."""
        for end in self._ends:
            if not end.done():
                end.set_result(None)

    async def serve(self, key: str, draw: Draw, receive: Receive, send: Send) -> None:
        """Serve one stream until the browser goes.

        Args:
            key: names the page; who has the same one gets the same drawings.
            draw: draws it.
            receive: as ASGI has it.
            send: likewise.
        """
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._streams += 1
        gone = asyncio.ensure_future(_gone(receive))
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends.add(end)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel(draw)
        channel.users += 1
        try:
            await _feed(channel, send, gone, end)
        finally:
            self._streams -= 1
            channel.users -= 1
            if not channel.users:
                self._channels.pop(key).close()
            gone.cancel()
            self._ends.discard(end)


async def _feed(channel: _Channel, send: Send, *ends: asyncio.Future[None]) -> None:
    clock = asyncio.get_running_loop().time
    until, sent, told = clock() + _LONGEST_S, Regions(), ""
    await _write(send, "retry: 2000\n\n")
    if channel.regions:
        sent = await _tell(send, channel, sent)
    while clock() < until:
        news = asyncio.ensure_future(channel.changed())
        done, _ = await asyncio.wait({news, *ends}, timeout=_SILENCE_S, return_when=asyncio.FIRST_COMPLETED)
        news.cancel()
        if any(end in done for end in ends):
            break
        if news not in done:
            await _write(send, ":\n\n")
        elif channel.is_gone:
            break
        elif channel.trouble:
            if channel.trouble != told:
                told = channel.trouble
                await _trouble(send, told)
        else:
            sent, told = await _tell(send, channel, {} if told else sent), ""
    if channel.is_gone:
        await _trouble(send, channel.trouble)
        await _write(send, "event: gone\ndata: {}\n\n")
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _trouble(send: Send, text: str) -> None:
    await _write(send, f"event: trouble\ndata: {json.dumps(text)}\n\n")


async def _tell(send: Send, channel: _Channel, sent: Regions) -> Regions:
    """Send what is not as it was sent before; answers what is sent now."""
    regions = channel.regions
    changed = {name: html for name, html in regions.items() if sent.get(name) != html}
    # A comment where nothing changed: proxies cut what is silent.
    await _write(send, f"event: regions\ndata: {json.dumps(changed)}\n\n" if changed else ":\n\n")
    return regions


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _set(event: asyncio.Event) -> None:
    await event.wait()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
