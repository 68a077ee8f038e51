"""Moves due jobs to where workers find them, at the millisecond they are due; one process per queue does it."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from schedq.application import Application
from schedq.clocks import monotonic
from schedq.connection.subscription import Subscription
from schedq.job import new_request, whole
from schedq.link import Link, steadily
from schedq.operations import upkeep
from schedq.reclaimer import Reclaimer
from schedq.settings import Settings

_LONGEST_SLEEP_S: Final = 1.0
_LONGEST_STANDBY_S: Final = 30.0
_BATCH: Final = 200


class Promoter:
    """The sleeper of one queue.

    Whoever holds the queue's promoter lease sleeps until the earliest due instant, hears of earlier ones on the `due`
    channel, and looks once a second at the least. The others look the more rarely the more of them are alive.

    Attributes:
        id: names this process in the promoter lease.
        is_holder: it is the one.
    """

    def __init__(self, queue: Application, link: Link, settings: Settings | None = None) -> None:
        self.id = new_request()
        self.is_holder = False
        self._settings = settings or queue.settings
        self._link = link
        self._reclaimer = Reclaimer(self._settings, link)
        self._subscription = Subscription(queue.address, f"schedq-{queue.name}-due")
        self._woken = asyncio.Event()
        self._seen_ms = 0
        self._seen_at = 0.0
        self._sleeps_until_ms: int | None = None

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            UsageError: Redis refuses for a reason that does not pass by itself.
        """
        try:
            await steadily(f"queue {self._settings.name}: promoter", self._turn)
        finally:
            await self._subscription.aclose()

    def use(self, settings: Settings) -> None:
        """Go by other settings from now on."""
        self._settings = settings
        self._reclaimer.use(settings)

    async def _turn(self) -> float:
        await self._sleep(await self._step())
        return 0.0

    async def _step(self) -> float:
        """Look once; answers how many seconds to sleep."""
        self._woken.clear()
        promotion = await self._link.ask(upkeep.promote(self._settings, _BATCH, self.id))
        self._seen_ms, self._seen_at = promotion.now_ms, monotonic()
        if not promotion.is_holder:
            await self._stand_by()
            return min(_LONGEST_STANDBY_S, max(1.0, promotion.workers * random.uniform(0.5, 1.1)))  # noqa: S311
        if not self.is_holder:
            self.is_holder = True
            await self._subscription.listen(self._settings.keys.due, self._hear)
            return _LONGEST_SLEEP_S  # the subscription's first word ends this sleep
        reclaim_s = await self._reclaimer.look(promotion)
        if promotion.has_more:
            return 0.0
        wait = _LONGEST_SLEEP_S if reclaim_s is None else min(_LONGEST_SLEEP_S, reclaim_s)
        self._sleeps_until_ms = promotion.next_due_ms
        if promotion.next_due_ms is not None:
            wait = min(wait, self._seconds_until(promotion.next_due_ms))
        return max(0.0, wait)

    async def _stand_by(self) -> None:
        if self.is_holder:
            self.is_holder = False
            await self._subscription.forget(self._settings.keys.due, self._hear)

    def _seconds_until(self, instant_ms: int) -> float:
        """Seconds from now, on our monotonic clock, until Redis's clock shows `instant_ms`."""
        return (instant_ms - self._seen_ms) / 1000 - (monotonic() - self._seen_at)

    def _hear(self, message: str) -> None:
        """A new earliest due instant, or '' after (re)subscribing: something may have been missed."""
        instant = whole(message)
        if not instant:
            self._woken.set()
        elif self._sleeps_until_ms is None or instant < self._sleeps_until_ms:
            self._sleeps_until_ms = instant
            asyncio.get_running_loop().call_later(max(0.0, self._seconds_until(instant)), self._woken.set)

    async def _sleep(self, seconds: float) -> None:
        if seconds <= 0 or self._woken.is_set():
            await asyncio.sleep(0)
            return
        alarm = asyncio.get_running_loop().call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            alarm.cancel()
