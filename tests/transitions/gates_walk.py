"""Random walks through a queue with gates. After every step the laws are checked, and what a claim took.

`scripts/explore` walks with more seeds, and `python -m tests.transitions.gates_walk FIRST LAST` with these.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any, Final

from schedq import ClaimedJob, Fixed, Queue
from schedq.inspect import bulk
from schedq.model.lifecycle import PENDING, PROCESSING
from schedq.model.records import Settlement
from schedq.transitions import gates, promote, reclaim
from schedq.transitions.claim import Claim, claim
from schedq.transitions.settle import settle
from scripts.tools.explore.bug import Bug, broken
from tests.doors import Clock
from tests.gates import Gates, claimed
from tests.servers import Server
from tests.state import State

KEYS: Final = ("x", "y", "z", "u", "v", "")
LEASE_S: Final = 10
MOST_DRAINING: Final = 600
_TWO_KEYS: Final = "MOST_ROUSED, PAGE = 100, 200, 300, 2,"
SMALL_PAGES: Final = (
    Bug("the promoter looks at two lanes at a time", "promote", "MOST_ROUSED = 100", "MOST_ROUSED = 2", ""),
    Bug("the promoter enters two jobs at a time", "promote", "MOST_ENTERED = 50", "MOST_ENTERED = 2", ""),
    Bug("a claim looks at two keys at a time", "claim", "MOST_ROUSED, PAGE = 100, 200, 300, 30,", _TWO_KEYS, ""),
    Bug("a claim starts three jobs of gates", "claim", "MOST_LOOKS = 64, 50,", "MOST_LOOKS = 64, 3,", ""),
    Bug("the reclaimer looks at two lanes at a time", "reclaim", "place_lanes(from, 50)", "place_lanes(from, 2)", ""),
)
"""With few keys, work that is done in pages is in the middle of it only if these are small."""
_names = count()


class Starts:
    """What claims have started so far, and whether they were allowed to; `in_pages`: with pages as small as these."""

    def __init__(self, *, in_pages: bool = False) -> None:
        self.in_pages = in_pages
        self.by_rate: defaultdict[tuple[str, str | None], list[int]] = defaultdict(list)
        self._overtaken: dict[tuple[str, str], Counter[str]] = {}
        self._lines: defaultdict[str, list[str]] = defaultdict(list)

    def forget_rates(self, gate: str | None = None) -> None:
        """The limits of a gate have changed, or all instants: what started before was under others."""
        for known in [known for known in self.by_rate if gate in (None, known[0])]:
            del self.by_rate[known]

    def claimed(self, found: Claim, asked: int, before: State, after: State) -> list[str]:
        """What is wrong with a claim of a worker that has taken the wake marker."""
        now = Gates(after)
        started = [(job.gate, job.key) for job in found.jobs if job.gate]
        wrong = [
            *claimed(found, asked, before, after, in_pages=self.in_pages),
            *self._too_early(found, now),
            *self._passed_over(started, now),
        ]
        if len(found.jobs) < asked and "wake" in after.keys and not found.left_suspects and not found.has_more:
            wrong.append(f"{len(found.jobs)} of {asked} started, and another worker is called")
        return wrong

    def _too_early(self, found: Claim, now: Gates) -> list[str]:
        """In no window of a rate's length are more starts than it says."""
        for job in found.jobs:
            for place in [("", None), *([(job.gate, None), (job.gate, job.key)] if job.gate else [])]:
                self.by_rate[place].append(found.now_ms)
        wrong = []
        for (gate, key), at in self.by_rate.items():
            for most, per, _ in now.limits(gate).get("rate" if key is None else "key_rate") or ():
                at.sort()
                if any(later - sooner < per for sooner, later in zip(at, at[most:], strict=False)):
                    wrong.append(f"more than {most} starts of {gate} {key} within {per} ms: {at[-most - 1 :]}")
        return wrong

    def _passed_over(self, started: Sequence[tuple[str, str]], now: Gates) -> list[str]:
        """While a key is ready, no other one of its gate starts more than twice before it."""
        wrong = []
        for (gate, key), overtaken in self._overtaken.items():
            own = started.index((gate, key)) if (gate, key) in started else None
            if own is None and key not in now.ready(gate):
                continue
            overtaken.update(other for where, other in started[:own] if where == gate)
            if overtaken and max(overtaken.values()) > 2:
                wrong.append(f"key {key!r} of gate {gate} waits while others start: {dict(overtaken)}")
        for place in started:
            self._overtaken.pop(place, None)
        return wrong

    def seen(self, state: State, serial: Sequence[str]) -> list[str]:
        """Note where keys are; returns what is wrong with the order of jobs of these gates."""
        now, wrong = Gates(state), []
        ready = {
            (gate, key)
            for gate in now.running.keys() | {name.split()[0] for name in now.waiting}
            for key in now.ready(gate)
        }
        self._overtaken = {place: self._overtaken.get(place, Counter()) for place in ready}
        for name in {*now.waiting, *self._lines}:
            gate, _, key = name.partition(" ")
            if gate not in serial:
                continue
            running = [job_id for owner, _, job_id in map(_parted, now.running.get(gate, ())) if owner == key]
            line = [*running, *now.waiting.get(name, ())]
            expected = [job_id for job_id in self._lines[name] if job_id in line]
            if line[: len(expected)] != expected:
                wrong.append(f"the jobs of {name} are in the order {line}, after {self._lines[name]}")
            self._lines[name] = line
        return wrong


def _parted(member: str) -> tuple[str, str, str]:
    return member.rpartition(" ")


class Walk:
    """One queue, and callers that do anything.

    Args:
        server: where the queue is.
        seed: decides what they do.
    """

    def __init__(self, server: Server, seed: int) -> None:
        self.draw = random.Random(seed)
        self.clock = Clock()
        self.queue = Queue(
            f"walk-{next(_names)}-{seed}",
            redis=server.unix_url,
            clock=self.clock,
            visibility_ms=LEASE_S * 1000,
            max_attempts=3,
            backoff=Fixed(0.5),
            completed_history=2,
            failed_history=2,
            min_keep=0,
        )
        self.settings, self.client, self.redis = self.queue.settings, self.queue._client, server.client()
        self.starts = Starts(in_pages=is_in_pages(seed))
        self.ids: deque[str] = deque(maxlen=20)
        self.held: list[ClaimedJob] = []
        self.past: deque[ClaimedJob] = deque(maxlen=10)
        self.log: deque[str] = deque(maxlen=15)
        self.state, self.wrong = State(), list[str]()
        self.names = "abc"[: self.draw.choice([1, 2, 3])]
        self.serial = [name for name in self.names if self.draw.random() < 0.3]
        for name in self.names:
            self.define(name)
        if self.draw.random() < 0.3:
            self.settings.gates[""] = json.dumps({"concurrency": self.draw.choice([2, 4])})
            self.client.execute(gates.define(self.settings))
        self.state = State.of(self.redis, self.settings.keys)

    def close(self) -> None:
        """Delete the queue."""
        self.redis.unlink(*(self.settings.keys.prefix + name for name in self.state.keys))
        self.queue.close()
        self.redis.close()

    def check(self, said: str) -> None:
        """Fail if a law is broken."""
        self.state = State.of(self.redis, self.settings.keys)
        found = [*self.wrong, *self.starts.seen(self.state, self.serial), *self._unmarked()]
        laws = self.state.broken_laws()
        laws.pop("totals", None)  # histories are kept short
        assert not laws and not found, f"{laws or found} after {said}, after {[*self.log]}"

    def _unmarked(self) -> list[str]:
        """If a job may start now, the next worker that waits will be called."""
        state, limits = self.state, Gates(self.state).limits("")
        waits = state.holds("pending", "list") or state.holds("open_gates", "zset")
        has_room = len(state.ids(PROCESSING)) < (limits.get("concurrency") or math.inf)
        return (
            ["jobs may start, and there is no wake marker"] if waits and has_room and "wake" not in state.keys else []
        )

    def go(self, steps: int) -> None:
        """Take this many steps."""
        doings = [doing for doing, weight in STEPS for _ in range(weight)]
        for _ in range(steps):
            doing = self.draw.choice(doings)
            said = f"{doing.__name__}{doing(self) or ''}"
            self.check(said)
            self.log.append(said)

    def drain(self) -> None:
        """Nothing is held any more, and workers keep running: everything ends."""
        for name in self.names:
            for key in (None, *KEYS):
                self._ask(gates.hold(self.settings, name, key, "resume"))
            if self.draw.random() < 0.5:  # whoever writes them dies before anything else is done
                self._ask(gates.set_limits(self.settings, name, _NO_LIMITS))
                self.starts.forget_rates(name)
        for _ in range(MOST_DRAINING):
            self.promote()
            self.check("promoted")
            taken = self.claim(20)
            self.check(f"{taken} started")
            if not taken:
                self.clock.pass_time(0.5)
                self.client.drive(reclaim.take_back(self.settings))
            self._settle(self.held, "complete")
            self.held.clear()
            self.check("draining")
            if not any(self.state.ids(place) for place in (PENDING, "delayed", PROCESSING)):
                return
        raise AssertionError(f"not everything ran: {self.state.places()}, {[*self.log]}")

    # -- steps

    def enqueue(self) -> object:
        """A producer."""
        gate, key = self.draw.choice(self.names), self.draw.choice(KEYS)
        delay = self.draw.choice([None, None, None, 0.7])
        number = self.draw.choice([1, 1, 3])
        self.ids.extend(self.queue.enqueue_many([number] * number, delay=delay, gate=gate, key=key or None))
        return gate, key, number, delay

    def enqueue_plain(self) -> None:
        """A producer of jobs without a gate."""
        self.ids.extend(self.queue.enqueue_many(["plain"] * self.draw.choice([1, 3])))

    def give_a_gate(self) -> object:
        """Another program's producer, which pushes a job of a gate to `pending`."""
        gate, key = self.draw.choice(self.names), self.draw.choice(KEYS)
        job_id = self.queue.enqueue("theirs")
        self.redis.hset(self.settings.keys.job(job_id), mapping={"gate": gate, "key": key})
        self.ids.append(job_id)
        return gate, key, job_id[-4:]

    def claim(self, asked: int = 0) -> list[str]:
        """A worker that takes the wake marker."""
        asked = asked or self.draw.choice([1, 2, 5, 20])
        before = self.state
        self.redis.zpopmin(self.settings.keys.wake)
        found = self._ask(claim(self.settings, f"r{next(_names)}", asked))
        self.held += found.jobs
        self.state = State.of(self.redis, self.settings.keys)
        self.wrong = self.starts.claimed(found, asked, before, self.state)
        return [f"{job.gate_key}:{job.id[-4:]}" for job in found.jobs]

    def settle(self) -> object:
        """Attempts end, in any way."""
        number = min(len(self.held), self.draw.choice([1, 1, 3]))
        jobs = [self.held.pop(self.draw.randrange(len(self.held))) for _ in range(number)]
        move = self.draw.choice(["complete", "complete", "retry", "snooze", "release", "limit", "fail"])
        if move == "limit" and not all(job.gate for job in jobs):
            move = "complete"
        self._settle(jobs, move)
        return move, [f"{job.gate_key}:{job.id[-4:]}" for job in jobs]

    def _settle(self, jobs: Sequence[ClaimedJob], move: str) -> list[str]:
        delay = 500 if move in ("retry", "snooze", "limit") else 0
        note = self.draw.choice(["key", "gate"]) if move == "limit" else ""
        endings = [Settlement(move, job.id, job.claim_token, delay, "x", note, gate_key=job.gate_key) for job in jobs]
        self.past.extend(jobs)
        words: list[str] = self._ask(settle(self.settings, endings)) if endings else []
        return words

    def settle_late(self) -> None:
        """Workers that have lost their jobs, or ended them before: nothing changes."""
        if self.past:
            words = self._settle([self.draw.choice(self.past)], "fail")
            assert words[0] in ("LOST", "DUPLICATE")
            after = State.of(self.redis, self.settings.keys)
            assert {name: key.holds for name, key in after.keys.items()} == {
                name: key.holds for name, key in self.state.keys.items()
            }

    def pass_time(self) -> float:
        """The clock advances, or goes back."""
        seconds: float = self.draw.choice([0.001, 0.05, 0.3, 0.3, 1.2, 1.2, -0.2])
        self.clock.pass_time(seconds)
        if seconds < 0:
            self.starts.forget_rates()
        return seconds

    def promote(self) -> None:
        """A promoter's tick."""
        self._ask(promote.promote(self.settings, 250))

    def lose_leases(self) -> None:
        """All workers die."""
        self.clock.pass_time(LEASE_S + 1)
        self.past.extend(self.held)
        self.held.clear()
        self.client.drive(reclaim.take_back(self.settings))

    def sweep(self) -> None:
        """A reclaimer's pass."""
        self.client.drive(reclaim.take_back(self.settings))

    def cancel(self) -> object:
        """A person cancels a job."""
        job_id = self.draw.choice(self.ids) if self.ids else "none"
        return job_id[-4:], self.queue.cancel(job_id)

    def delete(self) -> object:
        """A person deletes a job."""
        job_id = self.draw.choice(self.ids) if self.ids else "none"
        self._ask(bulk.delete(self.settings, f"r{next(_names)}", [job_id], PENDING))
        return job_id[-4:]

    def requeue(self) -> object:
        """A person requeues a job."""
        job_id = self.draw.choice(self.ids) if self.ids else "none"
        return job_id[-4:], self.queue.requeue(job_id)

    def reschedule(self) -> object:
        """A person lets a job run now."""
        job_id = self.draw.choice(self.ids) if self.ids else "none"
        return job_id[-4:], self.queue.reschedule(job_id, delay=0)

    def limit(self) -> str:
        """A person changes limits; a promoter looks later at what that changes."""
        name = self.draw.choice(self.names)
        self.define(name)
        self.starts.forget_rates(name)
        return name

    def define(self, name: str) -> None:
        """Give a gate any limits."""
        draw = self.draw
        found: dict[str, Any] = dict.fromkeys(("concurrency", "key_concurrency", "rate", "key_rate"), 0)
        if draw.random() < 0.6:
            found["concurrency"] = draw.choice([1, 2, 3, 5])
        if draw.random() < 0.5:
            found["key_concurrency"] = draw.choice([1, 1, 2])
        if draw.random() < 0.4:
            found["rate"] = [[draw.choice([2, 5, 10]), 1000, 1]]
        if draw.random() < 0.3:
            found["key_rate"] = [[draw.choice([2, 4]), 1000, draw.choice([1, 2])]]
        found["weight"] = draw.choice([1, 1, 2, 5])
        found["serial"] = name in self.serial
        if found["serial"]:
            found["key_concurrency"] = 0  # another number is refused
        self._ask(gates.set_limits(self.settings, name, json.dumps(found)))

    def hold(self) -> object:
        """A person pauses, holds or resumes a gate or a key."""
        action: Any = self.draw.choice(["pause", "hold", "resume", "resume"])
        name, key = self.draw.choice(self.names), self.draw.choice([None, *KEYS[:2]])
        self._ask(gates.hold(self.settings, name, key, action, 800))
        return action, name, key

    def _ask(self, operation: Any) -> Any:
        (found,) = self.client.execute([operation])
        if isinstance(found, Exception):
            raise found
        return found


_NO_LIMITS: Final = json.dumps(dict.fromkeys(("concurrency", "key_concurrency", "rate", "key_rate"), 0))
STEPS: Final[Sequence[tuple[Callable[[Walk], object], int]]] = (
    (Walk.enqueue, 25),
    (Walk.enqueue_plain, 5),
    (Walk.give_a_gate, 4),
    (Walk.claim, 25),
    (Walk.settle, 20),
    (Walk.settle_late, 2),
    (Walk.pass_time, 8),
    (Walk.promote, 7),
    (Walk.lose_leases, 2),
    (Walk.sweep, 2),
    (Walk.cancel, 3),
    (Walk.delete, 1),
    (Walk.requeue, 2),
    (Walk.reschedule, 2),
    (Walk.limit, 3),
    (Walk.hold, 3),
)


def is_in_pages(seed: int) -> bool:
    """Whether a walk has small pages."""
    return seed % 2 == 1


def go(server: Server, seed: int, steps: int = 120) -> int:
    """One walk; see `walked`. Returns the number of steps."""
    walked(server, seed, steps)
    return steps


def walked(server: Server, seed: int, steps: int) -> State:
    """One walk, and the end of all that it began. Returns the state that it comes to.

    Raises:
        AssertionError: a law was broken; the message names it and the last steps.
    """
    with ExitStack() as stack:
        for change in SMALL_PAGES if is_in_pages(seed) else ():
            stack.enter_context(broken(change))
        walk = Walk(server, seed)
        stack.callback(walk.close)
        walk.go(steps)
        walk.drain()
    return walk.state


if __name__ == "__main__":
    with Server() as server:
        for seed in range(int(sys.argv[1]), int(sys.argv[2])):
            print(seed, flush=True)
            go(server, seed)
