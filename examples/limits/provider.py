"""A provider that refuses with 429 and says when it may be called again: no job of the account starts before."""

from __future__ import annotations

import time
from collections.abc import Callable

from schedq import Depends, Queue, RateLimited

queue = Queue("messages")
gate = queue.gate("sms", concurrency=4)
WINDOW_S = 2


class TooManyRequestsError(Exception):
    """The status 429.

    Attributes:
        retry_after: seconds, from the header `Retry-After`; None without one.
    """

    def __init__(self, retry_after: float | None) -> None:
        super().__init__("429 Too Many Requests")
        self.retry_after = retry_after


class Provider:
    """Stands for a provider that accepts three messages of an account in two seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._accepted: dict[str, list[float]] = {}
        self.sent: list[tuple[str, int]] = []
        self.refusals = 0

    def send(self, account: str, number: int) -> None:
        """Send a message.

        Raises:
            TooManyRequestsError: there were too many.
        """
        now = self._clock()
        recent = [at for at in self._accepted.get(account, []) if at > now - WINDOW_S]
        if len(recent) >= 3:
            self.refusals += 1
            raise TooManyRequestsError(retry_after=recent[0] + WINDOW_S - now)
        self._accepted[account] = [*recent, now]
        self.sent.append((account, number))


provider = Provider()


def get_provider() -> Provider:
    """Return the provider. Tests replace this function."""
    return provider


@queue.task(gate=gate, key="account", max_attempts=2)
def send(account: str, number: int, *, provider: Provider = Depends(get_provider)) -> None:
    """Send a message. A refusal makes the account wait, and is not a failed attempt."""
    try:
        provider.send(account, number)
    except TooManyRequestsError as refused:
        raise RateLimited(after=refused.retry_after) from refused
    print(f"sent {account} {number}")
