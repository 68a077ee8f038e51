"""Makes due jobs available to workers and fires schedules, to the millisecond; one process per queue does this."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from schedq.background.advancer import Advancer
from schedq.background.observers import NO_OBSERVERS, Observers
from schedq.background.reclaimer import Reclaimer
from schedq.background.reconnecting_client import LogThrottle, ReconnectingClient, run_forever
from schedq.background.redis_clock import RedisClock
from schedq.background.scheduler import Scheduler
from schedq.connection.pubsub import PubSub, Subscriber
from schedq.errors import SchedqError
from schedq.inspect import samples
from schedq.model.ids import new_request
from schedq.model.records import whole
from schedq.model.settings import Settings
from schedq.model.times import monotonic
from schedq.queue.queue import QueueBase
from schedq.transitions import promote, unwrap
from schedq.transitions.promote import Part
from schedq.transitions.stand_ins import ENDED_ELSEWHERE

_LONGEST_SLEEP_S: Final = 1.0
_UNUSED_S: Final = 60.0
"""Seconds for which nothing may have needed the promoter of a queue before it rests."""
_FIRST_NEWS_S: Final = 1.0
"""Seconds to wait for the reply to a worker's first heartbeat."""
_LONG_WAIT_S: Final = 3.0
"""A standby that is to wait longer waits because the leader rests. It listens meanwhile, in case the leader leaves."""
_UNHEARD_S: Final = 30.0
"""Seconds, as long as three heartbeats, without a reply to one after which a reserve checks the queue by itself."""
_CLAIM_S: Final = 0.05
"""Seconds in which a woken worker claims. If it does not, because its event loop is blocked, another one is woken."""
_MOST_WOKEN: Final = 10
"""The maximum of workers that are woken for the same jobs; it may be that none of them can claim."""


class Promoter:
    """Promotes the due jobs of one queue, or stands by to take over.

    The leader holds the queue's promoter lease. It sleeps until the earliest due time, is notified of earlier ones on
    the `due` channel, and checks the queue at least once a second. The first standby checks at about the time when the
    leader's lease may have ended, the second often enough to replace the first, and all others together once in 10 s.
    While the leader rests, the two standbys learn on the same channel that it leaves.

    Args:
        settings: used instead of the queue's settings.
        refresh: awaited before settings are used to decide whether a job is lost; it may call `use`.
        observers: notified of jobs that are taken back.
        hears: `step_in` reports the reply to each heartbeat of the worker, so a reserve sends no requests itself.
        due: listens to the `due` channels of several queues; None for a connection of its own.
        rest_s: seconds for which it rests while nothing uses the queue; a process with many queues would do nothing but
            look at them. `set_wake` in the scripts calls it.

    Attributes:
        id: names this process in the promoter lease.
        is_leader: this process holds the promoter lease.
        part: the part of this process at its last check; none before the first.
        has_looked: set once Redis has executed the first check.
    """

    def __init__(
        self,
        queue: QueueBase,
        client: ReconnectingClient,
        settings: Settings | None = None,
        refresh: Callable[[], Awaitable[None]] | None = None,
        observers: Observers = NO_OBSERVERS,
        *,
        hears: bool = False,
        due: Subscriber | None = None,
        rest_s: float = _LONGEST_SLEEP_S,
    ) -> None:
        self.id = new_request()
        self.is_leader = False
        self.part = Part.NONE
        self.has_looked = asyncio.Event()
        self._settings = settings or queue.settings
        self._client = client
        self._reclaimer = Reclaimer(self._settings, client, refresh, observers)
        self._scheduler = Scheduler(self._settings, client)
        self._advancer = Advancer(self._settings, client, queue.connections)
        self._due: Subscriber = due or PubSub(queue.address, queue.settings, "-due")
        self._losses: int | None = None  # the number of outages at the last subscription; None if it does not listen
        self._woken = asyncio.Event()
        self._hears = hears
        self._heard: Part | None = None
        self._heard_at = monotonic()
        self._is_called = False
        self._clock = RedisClock()
        self._due_at = monotonic()
        self._wakes_at_ms: int | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._wakings = 0  # how many more workers may be woken soon for the jobs that came to `pending` last
        self._woken_for = ""
        self._samples_at = 0.0
        self._rest_s = rest_s
        self._longest_s = _LONGEST_SLEEP_S
        self._used_at = monotonic()
        self._throttle = LogThrottle()

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            UsageError: Redis rejects a request for a permanent reason.
        """
        try:
            await self._wait_for_news()
            await run_forever(f"queue {self._settings.name}: promoter", self._turn)
        finally:
            self._silence()
            self.is_leader = False
            await self._advancer.aclose()
            await self._stop_listening()

    def use(self, settings: Settings) -> None:
        """Use other settings from now on."""
        self._settings = self._reclaimer.settings = self._scheduler.settings = self._advancer.settings = settings

    def step_in(self, vacancy: Part) -> None:
        """Handle a heartbeat's report of a vacant part: check at once if it is better than the current part."""
        self._heard_at = monotonic()
        is_first, self._heard = self._heard is None, vacancy
        self._is_called = Part.NONE < vacancy < self.part
        if is_first or self._is_called:
            self._woken.set()

    async def _turn(self) -> float:
        await self._sleep(await self._step())
        return 0.0

    async def _step(self) -> float:
        """Check the queue once; return how many seconds to sleep."""
        # Redis may execute the check before something that is announced from here on, so later announcements count.
        self._woken.clear()
        self._silence()
        asked_at = monotonic()
        promotion = await self._look()
        self.has_looked.set()
        self._clock.notice(promotion.now_ms + promotion.micros / 1000, asked_at)
        self._reclaimer.notice(promotion.now_ms, asked_at, asked_at - self._due_at)
        is_new, self.is_leader = promotion.is_leader and not self.is_leader, promotion.is_leader
        self.part = promotion.part
        if not promotion.is_leader:
            return await self._stand_by(promotion.wait_ms / 1000)
        if is_new or not self._is_listening:
            await self._listen()
            return _LONGEST_SLEEP_S  # the subscription's confirmation ends this sleep
        if promotion.wait_ms:
            self._reclaimer.put_off(_UNUSED_S)
        elif promotion.moved or promotion.woken_for or promotion.unleased or promotion.first_lease_end_ms is not None:
            self._used_at = monotonic()
        reclaim_s = await self._reclaimer.look(promotion)
        has_fired, slot_ms = await self._scheduler.look(promotion)
        has_more, group_ms = await self._advancer.look(promotion)
        self._count_wakings(promotion, has_news=bool(promotion.moved or has_fired or reclaim_s == 0))
        if promotion.has_more or has_fired or has_more:
            return 0.0
        self._longest_s = max(_LONGEST_SLEEP_S, promotion.wait_ms / 1000)
        wait = self._longest_s if reclaim_s is None else min(self._longest_s, reclaim_s)
        if promotion.woken_for and self._wakings:
            self._wakings -= 1
            wait = min(wait, _CLAIM_S)
        for instant in (promotion.next_due_ms, slot_ms, group_ms):
            if instant is not None:
                self._wake_at(instant)
        return max(0.0, wait)

    async def _wait_for_news(self) -> None:
        """Wait until the first heartbeat reports whether a part is vacant, because many workers may start at once."""
        if not self._hears:
            return
        if self._heard is None:
            await self._sleep(_FIRST_NEWS_S)
        if self._heard is Part.NONE:
            self.part = Part.RESERVE
            await self._wait_to_be_called(0.0)

    async def _wait_to_be_called(self, seconds: float) -> None:
        """Sleep until a heartbeat reports a vacancy, or for this many seconds if no heartbeat gets a reply."""
        until = monotonic() + seconds
        while not self._is_called and (left := max(until, self._heard_at + _UNHEARD_S) - monotonic()) > 0:
            self._woken.clear()
            await self._sleep(left)
        self._is_called = False

    def _count_wakings(self, promotion: promote.Promotion, *, has_news: bool) -> None:
        """Allow more workers to be woken when jobs came to `pending`: blocked workers may take the wake marker."""
        if has_news or promotion.woken_for not in ("", self._woken_for):
            self._wakings = _MOST_WOKEN
        self._woken_for = promotion.woken_for or self._woken_for

    async def _look(self) -> promote.Promotion:
        """Promote due jobs. Every 10 s the leader also takes a sample of the queue in the same round trip."""
        rests = self._rest_s > _LONGEST_SLEEP_S and monotonic() - self._used_at >= _UNUSED_S
        # Not all at the same moment.
        rest_ms = int(self._rest_s * random.uniform(750, 1000)) if rests else None  # noqa: S311
        look = promote.promote(self._settings, promote.MOST_PROMOTED, self.id, rest_ms=rest_ms)
        if not self.is_leader or monotonic() < self._samples_at:
            return await self._client.ask(look)
        promotion, wait = await self._client.execute([look, samples.take(self._settings, self.id)])
        if isinstance(wait, SchedqError):  # a failed sample must not stop the promoter
            self._throttle.log(f"queue {self._settings.name}: no sample taken", wait)
            wait = samples.SPACING_MS / 1000
        self._samples_at = monotonic() + (max(wait, _UNUSED_S) if rests else wait)
        found: promote.Promotion = unwrap(promotion)
        return found

    async def _stand_by(self, wait_s: float) -> float:
        """Prepare to look again after `wait_s`; return how many seconds to sleep until then."""
        if self.part is Part.RESERVE or wait_s < _LONG_WAIT_S:
            await self._stop_listening()
        elif not self._is_listening:
            await self._listen()
        if self._hears and self.part is Part.RESERVE:
            await self._wait_to_be_called(wait_s)
            return 0.0
        return wait_s

    @property
    def _is_listening(self) -> bool:
        """Whether it is subscribed to `due`, and no outage may have broken the connection without anyone noticing."""
        return self._losses == self._client.availability.losses

    async def _listen(self) -> None:
        """Subscribe to `due`, after an outage on a new connection."""
        await self._stop_listening()
        self._losses = self._client.availability.losses
        self._due.renew(self._losses)
        await self._due.subscribe(self._settings.keys.due, self._hear)

    async def _stop_listening(self) -> None:
        if self._losses is not None:
            self._losses = None
            await self._due.unsubscribe(self._settings.keys.due, self._hear)
            if not self._due.is_used:
                await self._due.aclose()

    def _hear(self, message: str) -> None:
        """Handle a new earliest due time, the end of jobs in another queue, a vacancy, or '' after (re)subscribing."""
        if not self.is_leader:
            if message in ("", promote.VACANT):
                self._woken.set()
            return
        word, _, name = message.partition(" ")
        if word == ENDED_ELSEWHERE:
            self._advancer.hear(name)
        if word == "awake":
            self._used_at = monotonic()
        instant = whole(message)
        if instant:
            self._wake_at(instant)
        else:
            self._woken.set()

    def _wake_at(self, instant_ms: int) -> None:
        """End the sleep when Redis's clock shows `instant_ms`, unless it ends earlier."""
        if self._wakes_at_ms is not None and self._wakes_at_ms <= instant_ms:
            return
        self._silence()
        self._wakes_at_ms = instant_ms
        wait = self._clock.seconds_until(instant_ms)
        if wait <= self._longest_s:
            self._alarm = asyncio.get_running_loop().call_later(max(0.0, wait), self._woken.set)

    def _silence(self) -> None:
        self._wakes_at_ms = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def _sleep(self, seconds: float) -> None:
        self._due_at = monotonic() + max(0.0, seconds)
        if seconds <= 0 or self._woken.is_set():
            await asyncio.sleep(0)
            return
        limit = asyncio.get_running_loop().call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            limit.cancel()
