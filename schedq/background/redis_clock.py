"""Redis's clock, as far as replies show it."""

from __future__ import annotations

import math

from schedq.model.times import monotonic


class RedisClock:
    """Says how long it is until Redis's clock shows an instant, from what it showed at requests.

    Redis read its clock some time between the request and the reply. The estimate assumes that it was as late as the
    reply, and remembers the request with the quickest reply. So its clock is never behind the estimate, unless it was
    set back or runs slower than that of this process; the next request notices that.
    """

    def __init__(self) -> None:
        self._ahead_s = -math.inf  # of the monotonic clock

    def notice(self, now_ms: float, asked_at: float) -> None:
        """Take into account that Redis's clock showed `now_ms` at a request, whose reply has just come.

        Args:
            now_ms: ms since the epoch, with a fraction.
            asked_at: when the request was sent, on the monotonic clock.
        """
        least, most = now_ms / 1000 - monotonic(), now_ms / 1000 - asked_at
        if not least <= self._ahead_s <= most:
            self._ahead_s = least

    def seconds_until(self, instant_ms: int) -> float:
        """Return the seconds until Redis's clock shows `instant_ms`; call `notice` before."""
        return instant_ms / 1000 - self._ahead_s - monotonic()
