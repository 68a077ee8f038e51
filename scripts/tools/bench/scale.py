"""The cost of each transition in Redis, by size of the backlog: `scripts/bench --scale`.

The backlog is written as the engine would have left it. Every transition then runs for a few jobs at a time through the
real operations, and the server's reported script time is divided by the number of jobs. The lower quartile of many
rounds counts: Redis measures wall-clock time, so anything above is mostly time taken by other processes.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import redis

from schedq import Queue
from schedq.model.ids import new_ids, new_request
from schedq.model.keys import QueueKeys
from schedq.model.outcome import Policy, succeeded
from schedq.model.records import ClaimedJob
from schedq.transitions import claim
from scripts.tools.settling import settle_all
from tests.doors import Clock
from tests.servers import Server

JOB_STATES: Final = {
    "delayed": (1_000, 10_000, 100_000, 1_000_000),
    "pending": (1_000, 10_000, 100_000, 1_000_000),
    "failed": (1_000, 10_000, 100_000, 1_000_000),
    "in flight": (10, 100, 1_000, 10_000, 20_000),
}
FLAT: Final = ("delayed", "pending")
"""States in which a million jobs must not cost more than a thousand."""
_BATCH: Final = 50
_PART: Final = 10_000
_YEARS_MS: Final = 10 * 365 * 86_400_000

_FILL: Final = """
local prefix, place, first, count, now, far = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
for n = first, first + count - 1 do
  local id = string.format('b%019d', n)
  local job = prefix .. 'job:' .. id
  redis.call('HSET', job, 'id', id, 'payload', '{"task":"mark","args":[1,1.5]}', 'attempts', '0', 'enqueued_at_ms', now)
  if place == 'delayed' then
    redis.call('HSET', job, 'status', 'delayed', 'run_at_ms', far + n)
    redis.call('ZADD', prefix .. 'delayed', far + n, id)
  elseif place == 'pending' then
    redis.call('HSET', job, 'status', 'pending')
    redis.call('LPUSH', prefix .. 'pending', id)
  elseif place == 'failed' then
    redis.call('HSET', job, 'status', 'failed', 'attempts', '3', 'last_error', 'broke', 'last_error_at_ms', now)
    redis.call('LPUSH', prefix .. 'failed', id)
  else
    redis.call('HSET', job, 'status', 'processing', 'attempts', '1', 'claim_token', 't.' .. n, 'claimed_at_ms', now)
    redis.call('LPUSH', prefix .. 'processing', id)
    redis.call('ZADD', prefix .. 'leases', far, id)
  end
end"""

_BARE: Final = """
for n, id in ipairs(ARGV) do
  redis.call('HSET', KEYS[1] .. id, 'id', id, 'payload', '{"task":"mark","args":[1,1.5]}', 'attempts', '0',
    'enqueued_at_ms', '1800000000000', 'status', 'delayed', 'run_at_ms', '1800000000000')
  redis.call('ZADD', KEYS[2], 1800000000000, id)
end"""
BARE: Final = "bare HSET + ZADD"
"""For comparison: the cost of writing a new record and its due instant, and nothing else."""


class GrowingQueue:
    """A queue with a backlog in one state."""

    def __init__(self, server: Server, place: str) -> None:
        self.size = 0
        self._clock = Clock()
        self._queue = Queue("scale", redis=server.url, clock=self._clock, failed_history=2_000_000)
        self._store: redis.Redis = server.client()
        self._place = place

    @property
    def keys(self) -> QueueKeys:
        """The queue's keys."""
        return self._queue.settings.keys

    def close(self) -> None:
        """Close the connections."""
        self._queue.close()
        self._store.close()

    def grow(self, size: int) -> None:
        """Grow the backlog to `size` jobs."""
        fill = self._store.register_script(_FILL)
        now, far = self._clock.now_ms, self._clock.now_ms + _YEARS_MS
        while self.size < size:
            count = min(_PART, size - self.size)
            fill(args=[self.keys.prefix, self._place, self.size, count, now, far])
            self.size += count

    def costs(self, rounds: int) -> dict[str, float]:
        """Microseconds of Redis per job, by transition."""
        found: dict[str, list[float]] = {}
        for _ in range(rounds):
            for move, cost in self._round().items():
                found.setdefault(move, []).append(cost)
        return {move: statistics.quantiles(costs, n=4, method="inclusive")[0] for move, costs in found.items()}

    def _round(self) -> dict[str, float]:
        """Every transition once; the backlog has its old size afterwards."""
        queue, clock = self._queue, self._clock
        costs = {"enqueue": self._timed(lambda: queue.enqueue_many(range(_BATCH)))}
        costs["enqueue, later"] = self._timed(lambda: queue.enqueue_many(range(_BATCH), delay=1))
        costs[BARE] = self._bare()
        clock.pass_time(2)
        costs["promote"] = self._timed(lambda: queue.promote_due(_BATCH))
        held: list[ClaimedJob] = []
        costs["claim"] = self._timed(lambda: held.extend(self._claim()))
        costs["complete"] = self._timed(lambda: self._complete(held))
        self._claim()
        clock.pass_time(queue.settings.visibility_ms / 1000 + 1)
        costs["reclaim"] = self._timed(queue.reclaim_stuck)
        self._complete(self._claim())  # the retried jobs
        doomed = self._doomed()
        costs["cancel"] = self._timed(lambda: [queue.cancel(job_id) for job_id in doomed])
        if self._place in FLAT:  # the claimed jobs have been replaced by the enqueued ones
            queue.enqueue_many(range(_BATCH), delay=_YEARS_MS / 1000 if self._place == "delayed" else None)
        return costs

    def _bare(self) -> float:
        ids, write = new_ids(_BATCH), self._store.register_script(_BARE)
        cost = self._timed(lambda: write(keys=[self.keys.jobs, self.keys.delayed], args=ids))
        self._store.zrem(self.keys.delayed, *ids)
        self._store.unlink(*(self.keys.job(job_id) for job_id in ids))
        return cost

    def _doomed(self) -> Sequence[str]:
        """Jobs to cancel, from all over the backlog if its jobs can be cancelled."""
        if self._place in FLAT:
            step = max(1, self.size // (_BATCH + 1))
            if self._place == "pending":
                return [str(self._store.lindex(self.keys.pending, n * step)) for n in range(_BATCH)]
            return [str(self._store.zrange(self.keys.delayed, n * step, n * step)[0]) for n in range(_BATCH)]
        return self._queue.enqueue_many(range(_BATCH), delay=3600)

    def _claim(self) -> Sequence[ClaimedJob]:
        found: Sequence[ClaimedJob] = self._queue._ask(
            claim.claim(self._queue.settings, new_request(), _BATCH, "bench")
        ).jobs
        assert len(found) == _BATCH, found
        return found

    def _complete(self, held: Sequence[ClaimedJob]) -> None:
        policy = Policy(3, self._queue.settings.backoff, 262_144)
        words = self._queue._drive(settle_all(self._queue.settings, [succeeded(job, 1, policy) for job in held]))
        assert set(words) == {"OK"}, words

    def _timed(self, act: Callable[[], object]) -> float:
        before = self._script_us()
        act()
        return (self._script_us() - before) / _BATCH

    def _script_us(self) -> float:
        """Time spent in scripts since the server started, in microseconds."""
        stats = self._store.info("commandstats")
        return float(sum(stats.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in ("evalsha", "eval")))


def measure(binary: Path | None, say: Callable[[str], None], *, is_quick: bool = False) -> dict[str, Any]:
    """The curves (state, transition, size → microseconds per job), and the worst ratio of a million to a thousand."""
    curves: dict[str, dict[str, dict[str, float]]] = {}
    for place, sizes in JOB_STATES.items():
        with Server(binary, topology="single") as server:
            growing = GrowingQueue(server, place)
            try:
                for size in sizes[: 2 if is_quick else None]:
                    growing.grow(size)
                    for move, cost in growing.costs(5 if is_quick else 25).items():
                        curves.setdefault(place, {}).setdefault(move, {})[str(size)] = cost
                    say(f"scale: {size:,} jobs {place}")
            finally:
                growing.close()
    move, ratio = worst(curves)
    return {"curves": curves, "worst": ratio, "worst_is": move, "bare": _growth(curves["delayed"][BARE])}


def worst(curves: Mapping[str, Mapping[str, Mapping[str, float]]]) -> tuple[str, float]:
    """The transition whose cost grows most with the delayed or pending jobs, and the growth factor."""
    ratios = {
        f"{move}, by jobs {place}": _growth(costs)
        for place in FLAT
        for move, costs in curves[place].items()
        if move != BARE
    }
    return max(ratios.items(), key=lambda item: item[1])


def _growth(costs: Mapping[str, float]) -> float:
    """The cost with the largest backlog, as a multiple of the cost with the smallest."""
    sizes = list(costs.values())
    return sizes[-1] / sizes[0]


def draw(found: Mapping[str, Any], python: Path, picture: Path) -> None:
    """Draw the curves with the Python that has matplotlib."""
    script = Path(__file__).with_name("picture.py")
    subprocess.run(
        [str(python), str(script), str(picture)], input=json.dumps(found["curves"]).encode(), check=True, timeout=300
    )
