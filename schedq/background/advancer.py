"""Does what is left of groups; the leading promoter runs it."""

from __future__ import annotations

from schedq.background.reconnecting_client import LogThrottle, ReconnectingClient
from schedq.errors import SchedqError
from schedq.model.settings import Settings
from schedq.transitions import groups, promote


class Advancer:
    """Looks at the groups of one queue when the promoter has found that one needs attention.

    Attributes:
        settings: the settings to use from now on.
    """

    def __init__(self, settings: Settings, client: ReconnectingClient) -> None:
        self.settings = settings
        self._client = client
        self._throttle = LogThrottle()

    async def look(self, promotion: promote.Promotion) -> tuple[bool, int | None]:
        """Do a page of what is left; return whether to look again at once, and when a group needs attention next.

        A rejection by Redis is logged; the groups still need attention then.
        """
        if promotion.next_group_ms is None or promotion.next_group_ms > promotion.now_ms:
            return False, promotion.next_group_ms
        try:
            found = await self._client.ask(groups.advance(self.settings))
        except SchedqError as error:
            self._throttle.log(f"queue {self.settings.name}: batches", error)
            return False, None
        return found.has_more, found.next_ms
