"""Both clients behind one interface: a queue whose methods are plain calls, whichever client sends them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from schedq import AsyncQueue, Queue
from schedq.model.keys import QueueKeys
from tests.roles import is_act, is_beyond
from tests.servers import Server
from tests.state import State


class Clock:
    """A clock that moves only when a test advances it; seconds since the epoch."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_time(self, seconds: float) -> None:
        """Advance the clock; a negative number sets it back."""
        self.now += seconds

    @property
    def now_ms(self) -> int:
        """Now, as passed to scripts."""
        return int(self.now * 1000)


class Loop:
    """An event loop in its own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, coroutine: Any) -> Future[Any]:
        """Start a coroutine; returns a future for use in threads."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine and return its result."""
        return self.start(coroutine).result(60)

    def check(self, queues: Iterable[Handle] = ()) -> None:
        """Close queues. Fail if tasks still run on the loop, and cancel them so that only one test fails."""
        left = self.run(_others(queues))
        assert not left, f"tasks were left behind: {left}"

    def close(self) -> None:
        """Stop the loop; fails if tasks are still running on it."""
        left = self.run(_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        assert not left, f"tasks were left behind: {left}"


async def _others(queues: Iterable[Handle] = ()) -> list[str]:
    """The other tasks of the running loop that are still there some seconds after closing; they are cancelled."""
    for queue in queues:
        await queue.aclose()
    left: list[asyncio.Task[Any]] = []
    for turn in range(620):
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if not left:
            break
        await asyncio.sleep(0 if turn < 20 else 0.01)
    found = [repr(task) for task in left]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    return found


class Handle:
    """One queue through one client. Every method of `Queue` is a plain call here.

    Args:
        beyond: the same queue for methods that the tested role may not use; without a role, the same object.
    """

    def __init__(
        self, queue: Queue | AsyncQueue, server: Server, loop: Loop, beyond: Queue | AsyncQueue | None = None
    ) -> None:
        self.queue = queue
        self.beyond = beyond or queue
        self.server = server
        self._loop = loop
        self._client = server.lasting_client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.beyond if is_beyond(name) else self.queue, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **kwargs: self._loop.run(found(*args, **kwargs))

    @property
    def schedules(self) -> Any:
        """The queue's schedules; their methods are plain calls, too."""
        return _Schedules(self)

    @property
    def inspector(self) -> Any:
        """The queue's inspector; its methods are plain calls, too."""
        return _Inspector(self)

    @property
    def gates(self) -> Any:
        """The queue's gates; their methods are plain calls, too."""
        return _Gates(self)

    def batch(self, *args: Any, **kwargs: Any) -> Batch:
        """A batch of the queue."""
        return Batch(self, self.queue.batch(*args, **kwargs))

    def chain(self, *calls: Any, **kwargs: Any) -> Batch:
        """A chain of the queue, which has begun."""
        found: Any = self.queue.chain(*calls, **kwargs)
        return Batch(self, self._loop.run(found) if inspect.iscoroutine(found) else found)

    def drive(self, trips: Any) -> Any:
        """The result of round trips."""
        found = self.beyond._client.drive(trips)
        return self._loop.run(found) if inspect.isawaitable(found) else found

    def execute(self, operations: Any) -> list[Any]:
        """The replies to one round trip created by a test."""
        found = self.beyond._client.execute(operations)
        return self._loop.run(found) if inspect.isawaitable(found) else found

    def start(self, verb: str, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a call that takes some time."""
        found = getattr(self.beyond if is_beyond(verb) else self.queue, verb)
        if inspect.iscoroutinefunction(found):
            return self._loop.start(found(*args, **kwargs))
        return in_thread(found, *args, **kwargs)

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the asyncio client's event loop."""
        return self._loop.run(coroutine)

    def events(self, timeout: float | None = None) -> Generator[dict[str, Any], None, None]:
        """The events of either client."""
        found: Any = self.queue.events(timeout)
        if isinstance(self.queue, Queue):
            yield from found
            return
        try:
            while True:
                yield self._loop.run(anext(found))
        except StopAsyncIteration:
            return
        finally:
            self._loop.run(found.aclose())

    def start_iteration(self, items: Iterator[Any]) -> Future[Any]:
        """Start waiting for the next item."""
        return in_thread(next, items)

    def forget(self) -> None:
        """Delete every key of the queue, including those of other programs."""
        self.delete(self._client.keys(self.keys.prefix + "*"))

    def delete(self, names: Sequence[bytes | str]) -> None:
        """Delete these keys, many at once."""
        for first in range(0, len(names), 1000):
            self._client.unlink(*names[first : first + 1000])

    def close(self) -> None:
        """Close both clients of the queue: a test of one may have used the other through a job."""
        self._loop.run(self.aclose())

    async def aclose(self) -> None:
        """Close both on the event loop."""
        for queue in {self.queue, self.beyond}:
            queue.blocking.close()
            await queue.aio.aclose()

    # -- direct access to Redis

    @property
    def keys(self) -> QueueKeys:
        """The queue's keys in Redis."""
        keys: QueueKeys = self.settings.keys
        return keys

    @property
    def redis(self) -> Any:
        """A plain client of the same server."""
        return self._client

    def state(self) -> State:
        """All keys of the queue at one instant."""
        return State.of(self._client, self.keys)

    def places(self) -> dict[str, list[str]]:
        """The ids in every non-empty state, oldest first."""
        return self.state().places()

    def fields(self, job_id: str) -> dict[str, str]:
        """The stored fields of a job."""
        return self.state().job(job_id)

    def dump(self) -> dict[str, Any]:
        """Every key of the queue, byte by byte, with its expiry; equal if and only if nothing was written.

        (DUMP is unsuitable, because the order of a hash's fields changes while the server rehashes it.)
        """
        return contents(self._client, self.keys.prefix)


class _Schedules:
    """The schedules of either client."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def _of(self, name: str) -> Any:
        return self._handle.queue.schedules

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of(name), name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **kwargs: self._handle.run(found(*args, **kwargs))


class Batch:
    """A batch of either client: its methods are plain calls, and it is filled in a `with` block."""

    def __init__(self, handle: Handle, batch: Any) -> None:
        self._handle, self.of = handle, batch

    def __enter__(self) -> Batch:
        if hasattr(self.of, "__aenter__"):
            self._handle.run(self.of.__aenter__())
        else:
            self.of.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if hasattr(self.of, "__aexit__"):
            self._handle.run(self.of.__aexit__(*error))
        else:
            self.of.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.of, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **kwargs: self._handle.run(found(*args, **kwargs))


class _Inspector(_Schedules):
    """The inspector of either client."""

    def _of(self, name: str) -> Any:
        return (self._handle.beyond if is_act(name) else self._handle.queue).inspector


class _Gates(_Schedules):
    """The gates of either client."""

    def _of(self, name: str) -> Any:
        return (self._handle.beyond if is_act(name) else self._handle.queue).gates


# Redis 6.2 has no PEXPIRETIME, and its clock advances during a script.
_CONTENTS = """
local function now_ms() local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000) end
local function expires_at_ms(key)
  local at_ms = redis.pcall('PEXPIRETIME', key)
  if type(at_ms) == 'number' then return at_ms end
  local before, left, after
  repeat
    before, left, after = now_ms(), redis.call('PTTL', key), now_ms()
  until before == after
  return left < 0 and left or before + left
end
local read = {
  hash = {'HGETALL'}, string = {'GET'}, list = {'LRANGE', 0, -1}, set = {'SMEMBERS'},
  zset = {'ZRANGE', 0, -1, 'WITHSCORES'}, stream = {'XRANGE', '-', '+'},
}
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local kind = redis.call('TYPE', key).ok
  local command = read[kind]
  found[#found + 1] = {key, kind, expires_at_ms(key), redis.call(command[1], key, unpack(command, 2))}
end
return found
"""


def contents(client: Any, prefix: str = "") -> dict[str, Any]:
    """All keys with this prefix: type, instant of expiry in ms (-1: never) and contents, read at one instant."""
    found = {}
    for name, kind, at_ms, holds in client.execute_command("EVAL", _CONTENTS, 0, prefix):
        if kind == "hash":
            holds = dict(zip(holds[::2], holds[1::2], strict=True))
        elif kind == "set":
            holds = set(holds)
        found[name] = (kind, at_ms, holds)
    return found


def in_thread(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """Run a call in its own thread."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
