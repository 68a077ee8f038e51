"""How a promoter knows what Redis's clock shows."""

from __future__ import annotations

import pytest

from schedq.background.redis_clock import RedisClock

START_MS = 1_800_000_000_000


class Requests:
    """Requests to a Redis whose clock is `ahead_s` ahead; this process's began at 0 when Redis's was at START_MS."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.ahead_s = 0.0
        self.clock = RedisClock()
        monkeypatch.setattr("schedq.background.redis_clock.monotonic", lambda: self.now)

    def make(self, there_s: float, back_s: float) -> None:
        """A request that takes so long to Redis and back."""
        asked_at = self.now
        self.now += there_s
        shown_ms = START_MS + (self.now + self.ahead_s) * 1000
        self.now += back_s
        self.clock.notice(shown_ms, asked_at)

    @property
    def behind_s(self) -> float:
        """How far the estimate is behind Redis's clock."""
        shown_s = START_MS / 1000 + self.now + self.ahead_s
        return self.clock.seconds_until(START_MS) + shown_s - START_MS / 1000


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    return Requests(monkeypatch)


def test_the_estimate_is_behind_by_the_time_of_the_quickest_reply(requests: Requests):
    behind = []
    for back_s in (0.003, 0.5, 0.001, 0.002, 0.1):
        requests.make(0.01, back_s)
        behind.append(requests.behind_s)
        requests.now += 1

    assert behind == pytest.approx([0.003, 0.003, 0.001, 0.001, 0.001], abs=1e-6)


@pytest.mark.parametrize("jump_s", [-3600, -0.1, 0.1, 3600])
def test_the_next_request_notices_that_redis_has_another_time(requests: Requests, jump_s: float):
    requests.make(0.01, 0.001)
    requests.ahead_s = jump_s

    requests.make(0.01, 0.002)

    assert requests.behind_s == pytest.approx(0.002, abs=1e-6)
