"""Does what is left of groups; the leading promoter runs it."""

from __future__ import annotations

from typing import Final

from schedq.background.other_queues import OtherQueues
from schedq.background.reconnecting_client import LogThrottle, ReconnectingClient
from schedq.errors import SchedqError
from schedq.model.settings import Settings
from schedq.queue.requests import Connections
from schedq.transitions import groups, promote, unwrap
from schedq.transitions.stand_ins import StandIn

_MOST_HEARD: Final = 500
"""The most groups of other queues that one command names."""


class Advancer:
    """Looks at the groups of one queue when the promoter has found that one needs attention.

    Attributes:
        settings: the settings to use from now on.
    """

    def __init__(self, settings: Settings, client: ReconnectingClient, connections: Connections) -> None:
        self.settings = settings
        self._client = client
        self._throttle = LogThrottle()
        self._others = OtherQueues(client, connections)
        self._heard: list[str] = []

    def hear(self, name: str) -> None:
        """Note that a group of another queue has ended, so that the next look is one at it."""
        self._heard.append(name)

    async def look(self, promotion: promote.Promotion) -> tuple[bool, int | None]:
        """Do a page of what is left; return whether to look again at once, and when a group needs attention next.

        A rejection by Redis is logged; the groups still need attention then.
        """
        heard, self._heard = self._heard[:_MOST_HEARD], self._heard[_MOST_HEARD:]
        is_due = promotion.next_group_ms is not None and promotion.next_group_ms <= promotion.now_ms
        if not is_due and not heard:
            return False, promotion.next_group_ms
        operations = [groups.look_at(self.settings, heard)] if heard else []
        try:
            found = unwrap((await self._client.execute([*operations, groups.advance(self.settings)]))[-1])
        except SchedqError as error:
            self._throttle.log(f"queue {self.settings.name}: batches", error)
            return False, None
        if found.stand_ins:
            self._others.look(self.settings, [StandIn(*each) for each in found.stand_ins])
        return found.has_more or bool(self._heard), found.next_ms

    async def aclose(self) -> None:
        """End the looks at other queues."""
        await self._others.aclose()
