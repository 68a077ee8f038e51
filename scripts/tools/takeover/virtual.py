"""Up to a thousand promoters on virtual time: their own code and scripts on a real server, without sleeps."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar, cast
from unittest.mock import patch

import redis

from schedq import Queue
from schedq.background.promoter import Promoter
from schedq.background.reconnecting_client import ReconnectingClient
from schedq.connection.pubsub import PubSub
from schedq.transitions import Operation, Pipeline, RoundTrips
from schedq.transitions.heartbeat import beat
from schedq.transitions.promote import Part, Promotion
from schedq.transitions.scripts import header
from schedq.worker.heartbeat import until_next_beat
from scripts.tools.takeover.figures import Figures
from tests.servers import Server

T = TypeVar("T")
EPOCH_S = 1_800_000_000.0
# Expiry of keys depends on the server's own clock. This prelude tracks it on the virtual clock instead; the rest of the
# script is unchanged.
PRELUDE = """
local server = redis
local virtual_now = tonumber(server.call('GET', 'virtual:now'))
local ends = server.call('HGETALL', 'virtual:ends')
for n = 1, #ends, 2 do
  if tonumber(ends[n + 1]) <= virtual_now then
    server.call('DEL', ends[n])
    server.call('HDEL', 'virtual:ends', ends[n])
  end
end
local redis = setmetatable({call = function(command, key, ...)
  if command == 'PTTL' then
    local left = server.call('HGET', 'virtual:ends', key)
    if left then return tonumber(left) - virtual_now end
  end
  local reply = server.call(command, key, ...)
  if command == 'SET' and select(2, ...) == 'PX' then
    server.call('HSET', 'virtual:ends', key, virtual_now + select(3, ...))
    server.call('PERSIST', key)
  end
  return reply
end}, {__index = server})
"""


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jumps(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds


class _Jumps(selectors.DefaultSelector):
    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "no task waits for a timer"
        self._loop.jump(timeout)
        return super().select(0)


class _Silence:
    """Replaces the subscription to `due`: no job becomes due here."""

    is_used = True

    async def subscribe(self, channel: str, hearing: Callable[[str], None]) -> None:
        hearing("")

    async def unsubscribe(self, channel: str, hearing: Callable[[str], None]) -> None:
        pass

    def renew(self, losses: int) -> None:
        pass


class _AlwaysAvailable:
    losses = 0


class Wire:
    """A connection shared by all candidates; it counts the requests of those that do not hold the lease."""

    def __init__(self, client: redis.Redis, loop: Loop, rng: random.Random) -> None:
        self.availability = _AlwaysAvailable()
        self.asked: list[tuple[float, str, Part]] = []
        self._client = client
        self._loop = loop
        self._rng = rng
        self._shas: dict[str, str] = {}

    async def execute(self, operations: Pipeline) -> list[Any]:
        """As `ReconnectingClient.execute`, after a short delay in virtual time."""
        await asyncio.sleep(self._rng.uniform(0.0003, 0.003))
        return [self._ask(operation) for operation in operations]

    async def ask(self, operation: Operation[T]) -> T:
        """As `ReconnectingClient.ask`."""
        return cast(T, (await self.execute([operation]))[0])

    async def drive(self, trips: RoundTrips[T]) -> T:
        """As `ReconnectingClient.drive`."""
        try:
            step = next(trips)
            while True:
                step = trips.send(await self.execute(cast(Pipeline, step)))
        except StopIteration as stop:
            return cast(T, stop.value)

    def _ask(self, operation: Operation[Any]) -> Any:
        assert operation.script is not None
        sha = self._shas.get(operation.script.name)
        if sha is None:
            source = PRELUDE + operation.script.source
            sha = self._shas[operation.script.name] = self._client.script_load(source)
        pipe = self._client.pipeline(transaction=False)
        pipe.set("virtual:now", int((EPOCH_S + self._loop.time()) * 1000))
        pipe.evalsha(sha, len(operation.keys), *operation.keys, *operation.args)
        answer = operation.read(pipe.execute()[1])
        if isinstance(answer, Promotion):
            names = [each.name for each in header("promote").args]
            promoter_id = operation.args[names.index("promoter_id")]
            self.asked.append((self._loop.time(), str(promoter_id), answer.part))
        return answer


class Candidates:
    """Processes that could hold the lease of one queue.

    Args:
        beats: they are workers, whose heartbeats detect a vacant lease; otherwise daemons.
    """

    def __init__(self, queue: Queue, wire: Wire, rng: random.Random, *, beats: bool) -> None:
        self._queue = queue
        self._wire = wire
        self._rng = rng
        self._beats = beats
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    def start(self) -> None:
        """Start one more."""
        client, due = cast(ReconnectingClient, self._wire), cast(PubSub, _Silence())
        promoter = Promoter(self._queue, client, hears=self._beats, due=due)
        work = [promoter.run()]
        if self._beats:
            work.append(self._beat(promoter))
        self._tasks[promoter.id] = [asyncio.get_running_loop().create_task(one) for one in work]

    async def _beat(self, promoter: Promoter) -> None:
        phase = self._rng.random()
        while True:
            found = await self._wire.ask(beat(self._queue.settings, promoter.id, {"pid": 1}))
            promoter.step_in(found.vacancy)
            await asyncio.sleep(until_next_beat(phase, asyncio.get_running_loop().time()))

    async def holder(self, but: str = "") -> str:
        """The process, other than `but`, that last promoted as the holder; waits for one."""
        seen = len(self._wire.asked) if but else 0
        while True:
            for _, who, part in reversed(self._wire.asked[seen:]):
                if part is Part.LEADER and who != but:
                    return who
            for task in [task for tasks in self._tasks.values() for task in tasks if task.done()]:
                task.result()  # raises what ended it
            await asyncio.sleep(0.005)

    def kill(self, who: str) -> None:
        """Stop it without a farewell."""
        for task in self._tasks.pop(who):
            task.cancel()

    async def close(self) -> None:
        """Stop all."""
        tasks = [task for tasks in self._tasks.values() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def lose(
    candidates: Candidates,
    wire: Wire,
    rng: random.Random,
    losses: int,
    pause_s: tuple[float, float],
    *,
    replaces: bool,
) -> tuple[list[float], float]:
    """Kill the holder repeatedly and start another candidate each time; how long each took, and when it began."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    took: list[float] = []
    for _ in range(losses):
        await asyncio.sleep(rng.uniform(*pause_s))
        holder = await candidates.holder()
        candidates.kill(holder)
        died_at = loop.time()
        if replaces:
            loop.call_later(rng.uniform(0.3, 1.5), candidates.start)
        await candidates.holder(but=holder)
        took.append(loop.time() - died_at)
    return took, began


def run(
    server: Server,
    count: int,
    losses: int,
    seed: int,
    *,
    spread_s: float = 0.0,
    beats: bool = False,
    pause_s: tuple[float, float] = (2.0, 15.0),
    replaces: bool = True,
) -> Figures:
    """One scenario: `count` candidates started within `spread_s`; the holder dies about every `pause_s`.

    If it `replaces`, another candidate starts each time; otherwise their number falls.
    """
    rng = random.Random(f"{seed}-{count}-{spread_s}-{beats}")
    loop = Loop()
    started = f"started within {spread_s:g} s" if spread_s else "started together"
    name = f"virtual time, {count} {'workers' if beats else 'daemons'} {started}"
    name += ("" if pause_s[1] > 1 else ", dying in a row") + ("" if replaces else ", not replaced")
    queue = Queue(f"v{rng.getrandbits(32):x}", redis=server.url, clock=lambda: EPOCH_S + loop.time())
    with server.client() as client, virtual(loop):
        client.delete("virtual:ends")
        candidates = Candidates(queue, wire := Wire(client, loop, rng), rng, beats=beats)

        async def main() -> Figures:
            for _ in range(count):
                loop.call_later(rng.uniform(0, spread_s), candidates.start)
            await asyncio.sleep(spread_s + 20)
            took, began = await lose(candidates, wire, rng, losses, pause_s, replaces=replaces)
            requests = sum(at >= began and part is not Part.LEADER for at, _, part in wire.asked)
            lasted = loop.time() - began
            await candidates.close()
            return Figures(name, took, requests, lasted)

        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()
            queue.close()


@contextmanager
def virtual(loop: Loop) -> Iterator[None]:
    """Make the promoters' waits and clocks use this loop's time."""
    names = ("promoter", "reclaimer", "scheduler", "registrar")
    with ExitStack() as patches:
        for name in names:
            patches.enter_context(patch(f"schedq.background.{name}.monotonic", loop.time))
        yield
