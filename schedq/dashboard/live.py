"""Live pages: sends the regions that changed as server-sent events.

A page is rendered about once a second for all browsers that show it, and not at all while none does. A slow browser
skips updates, so they never pile up.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from schedq.dashboard.security import Refusal
from schedq.errors import SchedqError

MOST_STREAMS: Final = 100
TICK_S: Final = 1.0
_SILENCE_S: Final = 10.0
_LONGEST_S: Final = 600.0
"""Seconds after which a stream ends; the browser reconnects and is authenticated again."""
_REST_FACTOR: Final = 4
"""After rendering, a page waits this many times as long as that took, so that slow pages do not overload Redis."""

Regions = dict[str, str]
Render = Callable[[], Awaitable[tuple[Regions, float]]]
"""Renders a page; returns its regions, and the minimum seconds until the next rendering."""
log: Final = logging.getLogger("schedq.dashboard")


class _Channel:
    """One page, rendered for all browsers that show it.

    Attributes:
        trouble: why it is not up to date, or ''.
        is_gone: its subject has been deleted, so it is no longer rendered.
    """

    def __init__(self, render: Render) -> None:
        self.regions: Regions = {}
        self.trouble = ""
        self.is_gone = False
        self.users = 0
        self._draw = render
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="schedq dashboard page")

    def changed(self) -> Coroutine[Any, Any, bool]:
        """Wait for the next update, counted from this call and not from its first await."""
        return self._changed.wait()

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
                if logged != repr(error):  # once, not at every update
                    log.exception("a page can't be rendered")
                    logged = repr(error)
                self.trouble = f"this page can't be rendered: {type(error).__name__}"
            changed = self._changed
            if not self.is_gone:  # otherwise there is no next update to wait for
                self._changed = asyncio.Event()
            changed.set()
            await asyncio.sleep(max(wait_s, _REST_FACTOR * (clock() - began)))


class LiveStreams:
    """All live streams of one dashboard."""

    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}
        self._streams = 0
        self._ends: set[asyncio.Future[None]] = set()

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of streams is open."""
        return self._streams >= MOST_STREAMS

    def end(self) -> None:
        """End all streams, so that a server can stop; browsers reconnect later."""
        for end in self._ends:
            if not end.done():
                end.set_result(None)

    async def serve(self, key: str, render: Render, _scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one stream until the browser disconnects.

        Args:
            key: identifies the page; streams with the same key share its updates.
            render: renders it.
            _scope: from ASGI.
            receive: from ASGI.
            send: from ASGI.
        """
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._streams += 1
        gone = asyncio.ensure_future(_gone(receive))
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends.add(end)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel(render)
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
    until, sent, shown = clock() + _LONGEST_S, Regions(), ""
    await _write(send, "retry: 2000\n\n")
    if channel.regions:
        sent = await _send_changes(send, channel, sent)
    while clock() < until:
        news: asyncio.Future[Any] = asyncio.ensure_future(channel.changed())
        done, _ = await asyncio.wait({news, *ends}, timeout=_SILENCE_S, return_when=asyncio.FIRST_COMPLETED)
        news.cancel()
        if any(end in done for end in ends):
            break
        if news not in done:
            await _write(send, ":\n\n")
        elif channel.is_gone:
            break
        elif channel.trouble:
            if channel.trouble != shown:
                shown = channel.trouble
                await _send_trouble(send, shown)
        else:
            sent, shown = await _send_changes(send, channel, {} if shown else sent), ""
    if channel.is_gone:
        await _send_trouble(send, channel.trouble)
        await _write(send, "event: gone\ndata: {}\n\n")
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_trouble(send: Send, text: str) -> None:
    await _write(send, f"event: trouble\ndata: {json.dumps(text)}\n\n")


async def _send_changes(send: Send, channel: _Channel, sent: Regions) -> Regions:
    """Send the regions that differ from those sent before; return all current regions."""
    regions = channel.regions
    changed = {name: html for name, html in regions.items() if sent.get(name) != html}
    # A comment if nothing changed: proxies close silent connections.
    await _write(send, f"event: regions\ndata: {json.dumps(changed)}\n\n" if changed else ":\n\n")
    return regions


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
