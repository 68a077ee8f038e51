"""How long schedq's scripts block Redis for other clients: `scripts/blocktime`.

Many jobs are due at one instant while many others, young and old, are in flight. Meanwhile another process sends PINGs
back to back. Redis executes one command at a time, so the longest PING is the longest time that any client waits. The
server's SLOWLOG shows which scripts took more than 5 ms.

On a shared machine a server or client may be ready to run and have to wait for a CPU. Linux reports that time
(`schedstat`), and it is subtracted: from each single request, and in total from a verb that sends several.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from schedq import Fixed, Queue
from schedq.model.ids import new_request
from schedq.model.outcome import Policy, failed, succeeded
from schedq.model.records import ClaimedJob
from schedq.transitions import claim, renew, scripts, settle
from schedq.worker.fetcher import MOST_CLAIMED
from schedq.worker.renewal import MOST_RENEWED
from scripts.tools.blocktime.million.run import operators
from tests.doors import Clock
from tests.pinging import Pinger, put_off_ms
from tests.servers import Server, announced

SLOW_MS: Final = 5
MOST_PING_MS: Final = 25
_LEASE_S: Final = 60


@dataclass
class Phase:
    """What other clients experienced while one kind of request was sent.

    Attributes:
        took_ms: per request, how long the caller waited.
        pings_ms: duration of each PING from another process.
        raw_ping_ms: the longest one, including time spent waiting for a CPU.
        slow: scripts in SLOWLOG above 5 ms, with their milliseconds.
        put_off: number of requests that took that long only because the server was waiting for a CPU.
    """

    name: str
    jobs: int = 0
    took_ms: list[float] = field(default_factory=list)
    pings_ms: Sequence[float] = field(default_factory=list)
    raw_ping_ms: float = 0
    slow: list[tuple[str, float]] = field(default_factory=list)
    put_off: int = 0

    def line(self) -> str:
        """One line of the printed table."""
        return (
            f"{self.name:34} {self.jobs:8,} jobs {len(self.took_ms):6,} requests, median "
            f"{statistics.median(self.took_ms):6.2f} ms   PING: p99.9 {_quantile(self.pings_ms, 0.999):5.1f}, "
            f"longest {max(self.pings_ms):5.1f} ms ({self.raw_ping_ms:.1f})   slow: {len(self.slow)} ({self.put_off})"
            + (f", up to {max(ms for _, ms in self.slow):.1f} ms" if self.slow else "")
        )


class BusyQueue:
    """A queue with many jobs due at one instant and many in flight."""

    def __init__(self, server: Server, due: int, in_flight: int, seed: int) -> None:
        self.clock = Clock()
        self.queue = Queue(
            "blocktime",
            redis=server.unix_url,
            clock=self.clock,
            visibility_ms=_LEASE_S * 1000,
            backoff=Fixed(600),
            max_pending=None,
        )
        self.phases: list[Phase] = []
        self.held: list[ClaimedJob] = []
        self._server = server
        self._store = server.client()
        self._store.config_set("slowlog-log-slower-than", SLOW_MS * 1000)
        self._store.config_set("slowlog-max-len", 10_000)
        self._names = {
            scripts.load(path).sha: path
            for path in ("claim", "settle", "promote", "reclaim", "cancel", "enqueue", "renew", "purge", "page")
        }
        self._draw = random.Random(seed)
        self._due, self._in_flight = due, in_flight

    def run(self) -> None:
        """Run all phases in turn."""
        self._fill()
        self._look()
        self._end()

    def _fill(self) -> None:
        """Enqueue and claim, so that young and old jobs are in flight and many are due."""
        with self.phase("nothing") as phase:
            for _ in range(200):
                self.timed(phase, lambda: self._store.ping())
                time.sleep(0.002)
        with self.phase("enqueue_many, in flight later") as phase:
            self.timed(phase, lambda: self.queue.enqueue_many(range(self._in_flight)))
            phase.jobs = self._in_flight
        with self.phase("claim a batch at a time") as phase:
            while len(self.held) < self._in_flight:
                self.claim(phase, min(MOST_CLAIMED, self._in_flight - len(self.held)))
                self.clock.pass_time(_LEASE_S / 2 * MOST_CLAIMED / self._in_flight)
        with self.phase("enqueue_many, all for one instant") as phase:
            due = self.clock.now + 1
            self.timed(phase, lambda: self.queue.enqueue_many(range(self._due), run_at=due))
            phase.jobs = self._due
        self._draw.shuffle(self.held)  # young and old mixed

    def _look(self) -> None:
        """Renew, promote and list while the queue is full."""
        with self.phase("renew a batch at a time") as phase:
            self.renew(phase, self.held[: self._in_flight // 2])
        self.clock.pass_time(2)
        with self.phase("claim one, all being due") as phase:
            for _ in range(200):
                self.claim(phase, 1)
        with self.phase("promote, a thousand wanted") as phase:
            while moved := self.timed(phase, lambda: self.queue.promote_due(1000)):
                phase.jobs += moved
        with self.phase("look at pages of 500") as phase:
            for offset in range(0, 10_000, 500):
                phase.jobs += len(self.timed(phase, lambda offset=offset: self.queue.list_pending(offset, 500)))  # type: ignore[misc]
        with self.phase("cancel, pending being long") as phase:
            for record in self.queue.list_pending(offset=5000, limit=500):
                self.timed(phase, lambda job_id=record.id: self.queue.cancel(job_id))  # type: ignore[misc]
                phase.jobs += 1

    def _end(self) -> None:
        """Complete, fail and reclaim the jobs in flight."""
        with self.phase("complete one, young or old") as phase:
            self.settle(phase, 500, 1)
        with self.phase("complete a batch at a time") as phase:
            self.settle(phase, self._in_flight // 4, settle.MOST_SETTLED)
        with self.phase("fail a batch at a time") as phase:
            self.settle(phase, self._in_flight // 4, settle.MOST_SETTLED, fails=True)
        self.clock.pass_time(_LEASE_S + 1)
        with self.phase("reclaim what has expired") as phase:
            while taken := self.timed(phase, self.queue.reclaim_stuck):
                phase.jobs += len(taken)

    def big(self, count: int, size: int) -> None:
        """Enqueue many large payloads in one call."""
        with self.phase(f"enqueue_many of {size // 1024} KiB each") as phase:
            self.timed(phase, lambda: self.queue.enqueue_many(["x" * (size - 2)] * count))
            phase.jobs = count
        with self.phase(f"purge, claim of {size // 1024} KiB each") as phase:
            self.timed(phase, self.queue.purge)
            self.queue.enqueue_many(["x" * (size - 2)] * 100)
            while phase.jobs < 100:
                self.claim(phase, MOST_CLAIMED)

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """Measure what happens inside the block."""
        phase = Phase(name)
        self._store.slowlog_reset()
        with Pinger(self._server) as pinger:
            try:
                yield phase
            finally:
                phase.pings_ms, phase.raw_ping_ms = pinger.taken()
        self.phases.append(phase)
        print(phase.line(), flush=True)

    def timed(self, phase: Phase, call: Callable[[], Any]) -> Any:
        """Make a call and record its duration."""
        pid = self._server.pid
        began, put_off = time.perf_counter(), put_off_ms(pid)
        answer = call()
        phase.took_ms.append((time.perf_counter() - began) * 1000)
        put_off = put_off_ms(pid) - put_off
        if self._store.slowlog_len():
            for entry in self._store.slowlog_get(10_000):
                command = entry["command"]
                words = (command if isinstance(command, str) else command.decode()).split()
                if words[0].upper() in ("EVALSHA", "EVAL"):
                    ms = entry["duration"] / 1000
                    if ms - put_off > SLOW_MS:
                        phase.slow.append((self._names.get(words[1], words[1][:8]), ms - put_off))
                    else:
                        phase.put_off += 1
            self._store.slowlog_reset()
        return answer

    def claim(self, phase: Phase, count: int) -> None:
        """Claim up to `count` jobs."""
        found = self.timed(
            phase, lambda: self.queue._ask(claim.claim(self.queue.settings, new_request(), count, "blocktime"))
        )
        self.held += found.jobs
        phase.jobs += len(found.jobs)

    def renew(self, phase: Phase, held: Sequence[ClaimedJob]) -> None:
        """Renew their leases, as a worker does."""
        for first in range(0, len(held), MOST_RENEWED):
            pairs = [(job.id, job.claim_token) for job in held[first : first + MOST_RENEWED]]
            words = self.timed(phase, lambda: self.queue._ask(renew.renew(self.queue.settings, pairs)))  # noqa: B023
            phase.jobs += words.count("OK")

    def settle(self, phase: Phase, count: int, batch: int, *, fails: bool = False) -> None:
        """Settle `count` of the jobs in flight."""
        policy = Policy(3, Fixed(600), 262_144)
        while phase.jobs < count and self.held:
            going = [self.held.pop() for _ in range(min(batch, count - phase.jobs, len(self.held)))]
            items = [failed(job, "broke", policy) if fails else succeeded(job, "done", policy) for job in going]
            words: list[str] = []
            while items:
                answers = self.timed(phase, lambda: self.queue._ask(settle.settle(self.queue.settings, items)))  # noqa: B023
                words += [word for word in answers if word != "AGAIN"]
                items = [item for item, word in zip(items, answers, strict=True) if word == "AGAIN"]
            assert set(words) == {"OK"}, set(words)
            phase.jobs += len(words)


def _quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def main(argv: Sequence[str]) -> int:
    """Run all phases; returns 0 if no client waited too long."""
    parser = argparse.ArgumentParser(prog="scripts/blocktime", description=__doc__)
    parser.add_argument("--due", type=int, default=200_000, help="jobs due at one instant [200000]")
    parser.add_argument("--in-flight", type=int, default=20_000, help="jobs in flight [20000]")
    parser.add_argument("--big", type=int, default=1000, help="number of 256 KiB payloads in one enqueue_many [1000]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only-operators", action="store_true", help="skip the engine's transitions")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="jobs in the operators' queue [1000000]")
    parser.add_argument("--schedules", type=int, default=10_000, help="schedules in that queue [10000]")
    parser.add_argument("--queues", type=int, default=1000, help="other queues, with one job each [1000]")
    parser.add_argument("--tries", type=int, default=5, help="tries per operator action [5]")
    parser.add_argument("--part", default="", help="only operator actions whose name contains this")
    options = parser.parse_args(argv)
    announced("scripts/blocktime")
    code = 0 if options.only_operators else _engine(options)
    found = operators(options.jobs, options.schedules, options.queues, options.tries, options.part)
    print(json.dumps(found, indent=1))
    return int(code or bool(found["over"]))


def _engine(options: argparse.Namespace) -> int:
    """Measure the engine's transitions."""
    print(f"seed {options.seed}")
    with Server(maxmemory="4gb") as server:
        load = BusyQueue(server, options.due, options.in_flight, options.seed)
        load.run()
        load.big(options.big, 262_144)
        load.queue.close()
    idle, *busy = load.phases
    longest = max(max(phase.pings_ms) for phase in busy)
    slow = sorted([entry for phase in busy for entry in phase.slow], key=lambda entry: -entry[1])
    facts = {
        "due": options.due,
        "in_flight": options.in_flight,
        "longest_ping_ms": round(longest, 1),
        "longest_raw_ping_ms": round(max(phase.raw_ping_ms for phase in busy), 1),
        "idle_ping_ms": round(max(idle.pings_ms), 1),
        "slow_scripts": len(slow),
        "put_off_scripts": sum(phase.put_off for phase in busy),
        "slowest": [f"{name} {ms:.1f} ms" for name, ms in slow[:5]],
        "seed": options.seed,
    }
    print(json.dumps(facts))
    return int(longest > MOST_PING_MS or bool(slow))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
