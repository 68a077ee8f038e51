"""Waits in Redis for wake markers, and lets Redis claim the job of the next one without another round trip."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from schedq.background.reconnecting_client import REFUSED_S, Availability, LogThrottle
from schedq.connection import redis_errors
from schedq.connection.async_connection import AsyncConnection, cancelled
from schedq.connection.request import Request
from schedq.errors import SchedqError
from schedq.model.ids import new_request
from schedq.model.times import monotonic
from schedq.queue.queue import QueueBase
from schedq.transitions import Argument
from schedq.transitions.claim import Claim
from schedq.worker.capacity import Capacity
from schedq.worker.fetcher import BEHIND, CLOSED, IDLE, Fetcher

_BLOCK_S: Final = 10
_NOTICED_S: Final = 0.02
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 2.0


class WakeListener:
    """Waits in Redis for wake markers while slots are free and no queue is ready; a marker makes its queue ready.

    Args:
        queue: any of the queues, for its connection.
        fetchers: wake key → fetcher, for all wake keys of all queues on that server.
        is_only: the worker has no other queue. Then a claim is sent behind the wait while it is idle, see `LaterClaim`.
    """

    def __init__(
        self,
        queue: QueueBase,
        availability: Availability,
        capacity: Capacity,
        fetchers: Mapping[str, Fetcher],
        *,
        is_only: bool = False,
    ) -> None:
        self._queue = queue
        self._connection = AsyncConnection(queue.address, queue.settings, accepted=availability.accepted)
        self._availability = availability
        self._capacity = capacity
        self._throttle = LogThrottle()
        self._fetchers = fetchers
        first = next(iter(fetchers.values()))
        self._only = first if is_only and _may_claim_later(queue, first) else None
        self._wait: asyncio.Future[list[Any]] | None = None
        self._claim: LaterClaim | None = None
        self._closing = asyncio.Event()
        self._recovering: set[asyncio.Task[None]] = set()
        self._wait_s = _FIRST_WAIT_S
        self._changed = asyncio.Event()
        capacity.listen(self._on_change)

    async def run(self) -> None:
        """Wait for markers until cancelled."""
        try:
            while True:
                self._changed.clear()
                if self._capacity.free <= 0 or self._capacity.is_any_ready or self._is_stopping:
                    self._availability.rest(self)
                    await self._changed.wait()
                else:
                    await self._block()
        finally:
            await cancelled(*self._recovering)
            self._availability.forget(self)
            await self._connection.aclose()

    @property
    def _is_stopping(self) -> bool:
        """The only queue's fetcher must not claim: what waits now would only take markers from other workers."""
        return self._only is not None and self._only.state in (CLOSED, BEHIND)

    def _on_change(self) -> None:
        self._changed.set()
        if self._only is None:
            return
        if not (self._capacity.is_retired or self._is_stopping):
            self._claim_when_idle()
            return
        if self._claim is not None and not self._claim.is_withdrawn:
            self._claim.is_withdrawn = True
            self._connection.finish(_NOTICED_S)
        if self._only.state is CLOSED:
            self._closing.set()

    async def _block(self) -> None:
        command: tuple[str | int, ...] = ("BZPOPMIN", *self._fetchers, _BLOCK_S)
        began = monotonic()
        try:
            if not self._connection.is_connected:
                await self._connection.connect()
                self._availability.back(self)  # before the command, whose reply may take long
            # The server may never end the block, for example if its clock jumps. The timeout is a little longer.
            wait = self._wait = self._connection.send([command], reply_s=_BLOCK_S + 1)
            self._claim_when_idle()
            (reply,) = await self._connection.receive(wait)
            self._wait, claim = None, self._claim
            claimed = [] if claim is None else await self._connection.receive(claim.sent)
        except (SchedqError, *redis_errors.CONNECTION_LOST) as error:
            await self._lost(error, self._claim, is_early=monotonic() - began < _BLOCK_S)
            return
        finally:
            self._wait = self._claim = None
        self._wait_s = _FIRST_WAIT_S
        has_claimed = claim is not None and await self._read(claim, claimed)
        if isinstance(reply, list):
            if not has_claimed:
                self._fetchers[reply[0]].on_wake()
        elif isinstance(reply, Exception):
            if not redis_errors.is_moved(reply):
                self._throttle.log(f"{', '.join(self._fetchers)}: can't wait for wake markers", reply)
                self._connection.close()  # after a failover the address may lead to another server
                await asyncio.sleep(REFUSED_S)
            self._look_everywhere()

    def _claim_when_idle(self) -> None:
        """Send a claim behind the wait, unless jobs run, the queue may have jobs, or claims may be refused.

        A handler that blocks the event loop would keep a job waiting that another worker could run.
        """
        only, capacity = self._only, self._capacity
        if only is None or self._claim is not None or self._wait is None or self._wait.done():
            return
        if not (only.state is IDLE and capacity.is_unused and capacity.free and self._availability.has_let("claim")):
            return
        claim = LaterClaim(self._queue, only, capacity, self._availability)
        try:
            claim.sent = self._connection.send(claim.commands, reply_s=_BLOCK_S + 1)
        except redis_errors.CONNECTION_LOST:  # the wait is about to fail, too
            self._wait = None
            claim.end()
        else:
            self._claim = claim

    async def _lost(self, error: Exception, claim: LaterClaim | None, *, is_early: bool) -> None:
        """Handle the loss of the connection during a wait."""
        is_withdrawn = claim is not None and claim.is_withdrawn
        if is_early and not is_withdrawn:
            # Any other error is a configuration mistake, which a fetcher raises.
            if redis_errors.is_transient(error) or self._availability.has_answered:
                self._availability.lost(self, error)
            # If the server is gone, the other connections notice it within a moment. A claim sent on one of them
            # before that would have no known result until the server is back.
            await asyncio.sleep(_NOTICED_S)
        if claim is not None:
            await claim.recover()
            task = asyncio.create_task(self._recover_again(claim))
            self._recovering.add(task)
            task.add_done_callback(self._recovering.discard)
        self._look_everywhere()
        if is_early and not is_withdrawn:
            await asyncio.sleep(self._wait_s * random.uniform(0.5, 1))  # noqa: S311 - spreads load
            self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s)

    async def _read(self, claim: LaterClaim, replies: Sequence[Any]) -> bool:
        """Handle the reply to a claim; return whether Redis executed it."""
        found = claim.read(replies)
        if found is None or isinstance(found, SchedqError):
            claim.end()
            return False
        if found.jobs and claim.is_late:
            await claim.recover()
        else:
            claim.start(found)
        claim.end()
        await asyncio.sleep(0)  # let the handler begin first
        return True

    async def _recover_again(self, claim: LaterClaim) -> None:
        """Recover a claim's jobs again when the wait before it has ended, or before the worker stops.

        A server that did not notice the loss of the connection executes the claim when the wait ends.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_BLOCK_S + 1):
                await self._closing.wait()
        with suppress(SchedqError):  # a permanent one stops the fetcher, which claims, too
            await claim.recover()
        claim.end()

    def _look_everywhere(self) -> None:
        """Check every queue once, because a wake marker may have been lost with the connection."""
        for fetcher in dict.fromkeys(self._fetchers.values()):
            fetcher.look()


class LaterClaim:
    """A claim for one job, sent behind a wait for the wake marker on the same connection.

    Redis executes it as soon as the wait ends, so a job starts one round trip earlier. It is sent once no job runs any
    more; Redis reads it only when the wait has ended. Its slot is reserved from the beginning. If the connection is
    lost, the claim may have been executed, or may be executed later by a server that did not notice the loss. So its
    jobs are recovered twice.

    Args:
        queue: the worker's only queue.

    Attributes:
        request_id: the id of the claim.
        commands: what to send behind the wait.
        sent: gets the replies.
        is_withdrawn: the worker has closed the connection on purpose.
    """

    def __init__(self, queue: QueueBase, fetcher: Fetcher, capacity: Capacity, availability: Availability) -> None:
        self._fetcher = fetcher
        self.request_id = new_request()
        self._reservation = capacity.take(fetcher, 1, suspect=False)
        self._lease_s = queue.settings.visibility_ms / 1000
        self._sent_at = monotonic()
        # A process that is frozen while it waits still gets a job, which then loses this attempt.
        asked = fetcher.ask(self.request_id, 1, suspects=False, all_attempts=False)
        self._request = Request([asked], queue.address, queue.settings, 0, availability.has_let)
        self.commands: Sequence[tuple[Argument, ...]] = self._request.commands()
        self.sent: asyncio.Future[list[Any]]
        self.is_withdrawn = False
        fetcher.later_claims += 1

    @property
    def is_late(self) -> bool:
        """Its lease may have ended: the process was frozen, a handler blocked the loop, or the lease is short.

        How long ago Redis executed the claim is not known, only when it was sent.
        """
        return monotonic() - self._sent_at >= self._lease_s

    def read(self, replies: Sequence[Any]) -> Claim | SchedqError | None:
        """Return the result, or None if Redis did not execute it, as it does not know the script."""
        self._request.on_replies(replies)
        answer: Claim | SchedqError | None = self._request.answers[0]
        return answer

    def start(self, claimed: Claim) -> None:
        """Start the job, and let the fetcher claim the others that wait."""
        self._fetcher.claimed(claimed, self._reservation, is_full=False)
        if claimed.has_more:
            self._fetcher.look()

    async def recover(self) -> None:
        """Start the job that the claim got, if there is one that has not been started."""
        await self._fetcher.recover(self.request_id, self._reservation if self._reservation.free else None)

    def end(self) -> None:
        """Free the slot if it was not filled. Call it once all jobs of the claim are known."""
        self._fetcher.later_claims -= 1
        self._reservation.let_go()


def _may_claim_later(queue: QueueBase, fetcher: Fetcher) -> bool:
    """Whether claims may wait: no other process should claim first, and no job has a single attempt.

    A process that is frozen while it waits still gets a job, which loses this attempt without having run.
    """
    most = [queue.settings.max_attempts, *(each.max_attempts for each in queue.registry.options.values())]
    return fetcher.siblings is None and 1 not in most
