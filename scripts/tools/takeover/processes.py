"""Real processes; the one that holds the promoter lease is killed repeatedly."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import redis

from schedq.model.keys import QueueKeys
from schedq.transitions import scripts
from scripts.tools.takeover.candidate import NAME, CandidateStarter
from scripts.tools.takeover.figures import Figures
from tests.servers import Request, Server

_POLL_S: Final = 0.005
_SETTLE_S: Final = 5.0
_GIVEN_UP_S: Final = 60.0


@dataclass(frozen=True)
class Scenario:
    """The processes that take part.

    Attributes:
        parts: number of processes of each kind, candidates first; see `candidate`.
        spread_s: period over which their starts are spread.
    """

    parts: Mapping[str, int]
    spread_s: float = 0.0

    @property
    def name(self) -> str:
        who = ", ".join(f"{count} {part}{'s' if count > 1 else ''}" for part, count in self.parts.items())
        return f"processes, {who}, started {f'within {self.spread_s:g} s' if self.spread_s else 'together'}"


SCENARIOS: Final = (
    *(Scenario({"worker": count}, spread_s) for count in (2, 20, 80) for spread_s in (0.0, 20.0)),
    Scenario({"promoter": 2, "bystander": 60}),
)


class _Holders(threading.Thread):
    """Records who holds the lease by polling continuously."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._key = QueueKeys(NAME).promoter
        self._stopping = threading.Event()
        self._since: list[tuple[float, str]] = [(0.0, "")]

    def run(self) -> None:
        while not self._stopping.wait(_POLL_S):
            holder = str(self._client.get(self._key) or "")
            if holder and holder != self._since[-1][1]:
                self._since.append((time.time(), holder))

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def now(self) -> str:
        return self._since[-1][1]

    def at(self, instant: float) -> str:
        return self._since[bisect_right(self._since, instant, key=lambda one: one[0]) - 1][1]

    def other_than(self, holder: str) -> float:
        """When a different process became the holder; waits for that."""
        deadline = time.monotonic() + _GIVEN_UP_S
        while self.now() in ("", holder):
            assert time.monotonic() < deadline, f"no process took over within {_GIVEN_UP_S:g} s"
            time.sleep(_POLL_S)
        return self._since[-1][0]


def run(
    server: Server, scenario: Scenario, losses: int, seed: int, pause_s: tuple[float, float] = (0.5, 4.0)
) -> Figures:
    """Kill the holder `kills` times; a replacement is started each time."""
    rng = random.Random(f"{seed}-{scenario.name}")
    starter = CandidateStarter(server.url)
    with server.client() as client:
        client.flushdb()
        holders = _Holders(client)
        holders.start()
        try:
            _start(starter, client, scenario)
            with server.requests() as requests:
                took, began, ended = _lose(starter, next(iter(scenario.parts)), holders, requests, losses, rng, pause_s)
            return Figures(scenario.name, took, _standing_by(requests, holders), ended - began)
        finally:
            starter.close()
            holders.stop()


def _start(starter: CandidateStarter, client: redis.Redis, scenario: Scenario) -> None:
    parts = [part for part, count in scenario.parts.items() for _ in range(count)]
    begin = time.time() + 2 + 0.02 * len(parts)  # when all have been forked
    for number, part in enumerate(parts):
        starter.start(part, begin + scenario.spread_s * number / len(parts))
    keys, deadline = QueueKeys(NAME), time.monotonic() + _GIVEN_UP_S
    while int(client.zcard(keys.workers)) < len(parts) - scenario.parts.get("promoter", 0):
        assert time.monotonic() < deadline, "not all candidates have started"
        time.sleep(_POLL_S)
    time.sleep(_SETTLE_S)


def _lose(
    starter: CandidateStarter,
    part: str,
    holders: _Holders,
    requests: Sequence[Request],
    losses: int,
    rng: random.Random,
    pause_s: tuple[float, float],
) -> tuple[list[float], float, float]:
    """Seconds per takeover; the time of the first loss, and of the last takeover."""
    took: list[float] = []
    began = taken_at = time.time()
    for _ in range(losses):
        time.sleep(rng.uniform(*pause_s))
        holder = holders.now()
        died_at = time.time()
        os.kill(int(holder.removeprefix("pid-")), signal.SIGKILL)
        replacement = starter.start(part)
        taken_at = holders.other_than(holder)
        took.append(taken_at - died_at)
        _until_it_asks(requests, replacement)
    return took, began, taken_at


def _until_it_asks(requests: Sequence[Request], pid: int) -> None:
    """Wait until a process has sent a request; otherwise there may be no process to take over."""
    deadline, seen = time.monotonic() + _GIVEN_UP_S, 0
    while True:
        news = requests[seen:]
        seen += len(news)
        if any(f"pid-{pid}" in word or f"-{pid}-" in word for request in news for word in request.words):
            return
        assert time.monotonic() < deadline, f"process {pid} has not sent a request"
        time.sleep(_POLL_S)


def _standing_by(requests: Sequence[Request], holders: _Holders) -> int:
    """Number of requests sent by promoters that were not the holder at that moment."""
    sha, found = scripts.load("promote").sha, 0
    for request in requests:
        if len(request.words) > 3 and request.words[1] == sha:
            who = request.words[3 + int(request.words[2]) + 3]
            # A new holder is seen only a moment after the request that made it one.
            found += who not in ("", holders.at(request.at), holders.at(request.at + 2 * _POLL_S))
    return found
