"""The idle wait: one connection per server blocks on the wake markers of all its queues (on a cluster, of one)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from schedq.application import Application
from schedq.clocks import monotonic
from schedq.connection import faults
from schedq.connection.aline import AsyncLine
from schedq.errors import SchedqError
from schedq.link import REFUSED_S, Complaint, Outage
from schedq.worker.pump import Pump
from schedq.worker.slots import Slots

_BLOCK_S: Final = 10
_NOTICED_S: Final = 0.02
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 2.0


class Waker:
    """Blocks while no queue is hungry and slots are free; a marker makes its queue hungry.

    Args:
        queue: any of the queues, for its connection.
        pumps: wake key → pump, of all queues on that server.
    """

    def __init__(self, queue: Application, outage: Outage, slots: Slots, pumps: Mapping[str, Pump]) -> None:
        # The pumps' connections judge the server; eviction may be switched on before this one is first needed.
        self._line = AsyncLine(queue.address, replace(queue.settings, allow_eviction=True))
        self._outage = outage
        self._slots = slots
        self._complaint = Complaint()
        self._pumps = pumps
        self._wait_s = _FIRST_WAIT_S
        self._changed = asyncio.Event()
        slots.watch(self._changed.set)

    async def run(self) -> None:
        """Wait for markers until cancelled."""
        try:
            while True:
                self._changed.clear()
                if self._slots.free <= 0 or self._slots.is_any_hungry:
                    self._outage.rest(self)
                    await self._changed.wait()
                else:
                    await self._block()
        finally:
            self._outage.forget(self)
            await self._line.aclose()

    async def _block(self) -> None:
        command: tuple[str | int, ...] = ("BZPOPMIN", *self._pumps, _BLOCK_S)
        began = monotonic()
        try:
            if not self._line.is_connected:
                await self._line.connect()
                self._outage.back(self)  # the reply may be long in coming
            # The server may never end the block (its clock may step): our own time is a little longer.
            (reply,) = await self._line.ask([command], reply_s=_BLOCK_S + 1)
        except (SchedqError, *faults.BROKEN_LINE) as error:
            is_early = monotonic() - began < _BLOCK_S
            if is_early:
                if faults.is_passing(error) or self._outage.has_answered:  # else it is a mistake, which a pump tells
                    self._outage.lost(self, error)
                # If the server has gone the other connections notice in a moment: a claim that is sent on one of them
                # before that would have to be looked for until the server is back.
                await asyncio.sleep(_NOTICED_S)
            self._look_everywhere()
            if is_early:
                await asyncio.sleep(self._wait_s * random.uniform(0.5, 1))  # noqa: S311 - spreads load
                self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s)
            return
        self._wait_s = _FIRST_WAIT_S
        if isinstance(reply, list):
            self._pumps[reply[0]].marker()
        elif isinstance(reply, Exception):
            if not faults.is_moved(reply):
                self._complaint.say(f"{', '.join(self._pumps)}: can't be waited for", reply)
                self._line.close()  # after a failover the address may lead to another server
                await asyncio.sleep(REFUSED_S)
            self._look_everywhere()

    def _look_everywhere(self) -> None:
        """A marker may have been lost with the connection: every queue is looked at once."""
        for pump in self._pumps.values():
            pump.look()
