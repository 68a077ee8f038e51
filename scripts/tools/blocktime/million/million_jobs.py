"""The queue: a million jobs, ten thousand schedules and much else, stored as the engine would have left them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import redis

from schedq import Queue
from schedq.inspect.samples import COUNTED, MOST_SAMPLES, SPACING_MS
from schedq.inspect.search import Cursor
from schedq.schedules.definition import Definition
from schedq.schedules.register import register
from schedq.transitions import announce, count_tasks, heartbeat
from scripts.tools.many_queues import fill as fill_queues
from tests.servers import Server

NAME: Final = "million"
BATCH: Final = "import"
_GATES: Final = 100
_TASKS: Final = 300
_PART: Final = 10_000
_DAY_MS: Final = 86_400_000

_FILL: Final = """
local prefix, place, first, count, now, step = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local errors = {'timeout after ', 'no such user ', 'connection refused by ', 'bad address '}
for n = first, first + count - 1 do
  local id = string.format('%s%015d', place, n)
  local job = prefix .. 'job:' .. id
  local task = n % 10 == 0 and 'invoice' or 'send_email'
  local args = string.format('[%d,"user%d@example.org"]', n, n % 977)
  local payload = '{"task":"' .. task .. '","args":' .. args .. '}'
  local ago = string.format('%d', now - 864e5 + n)  -- in the order in which they came
  redis.call('HSET', job, 'id', id, 'payload', payload, 'attempts', '0', 'enqueued_at_ms', ago, 'status', place)
  if place == 'delayed' then
    local due = string.format('%d', now + 60000 + n * step)
    redis.call('HSET', job, 'run_at_ms', due)
    redis.call('ZADD', prefix .. place, due, id)
  else
    redis.call('LPUSH', prefix .. place, id)
  end
  if place == 'failed' then
    redis.call('HSET', job, 'attempts', '3', 'last_error', errors[n % 4 + 1] .. n, 'last_error_at_ms', ago,
      'worker', 'w-1', 'started_at_ms', ago)
  elseif place == 'completed' then
    redis.call('HSET', job, 'attempts', '1', 'completed_at_ms', ago, 'started_at_ms', ago, 'worker', 'w-1')
  end
end"""


class MillionJobs:
    """The queue, and ids of jobs at its ends and in the middle.

    Args:
        server: the server that holds it.
        size: number of jobs: 40 % pending, 30 % delayed, 30 % failed.
        schedules: number of schedules.
        queues: number of other queues on the server, each with one job.
    """

    def __init__(self, server: Server, size: int, schedules: int, queues: int) -> None:
        self.server = server
        self.sizes = {"pending": size * 4 // 10, "delayed": size * 3 // 10, "failed": size * 3 // 10, "completed": 1000}
        self.queue = Queue(NAME, redis=server.unix_url, failed_history=2 * size, max_pending=None)
        self.store: redis.Redis = server.client()
        self._schedules, self._queues = schedules, queues

    def fill(self, say: Callable[[str], None]) -> None:
        """Write everything."""
        queue, keys = self.queue, self.queue.settings.keys
        now = queue.stats()["now_ms"]
        fill = self.store.register_script(_FILL)
        step = max(1, _DAY_MS // max(1, self.sizes["delayed"]))
        for place, size in self.sizes.items():
            for first in range(0, size, _PART):
                fill(args=[keys.prefix, place, first, min(_PART, size - first), now, step])
        queue.enqueue_many(range(100))
        for _ in range(100):
            assert queue.claim(0) is not None
        words = ["0 * * * *", "*/5 * * * *", "30 3 * * 1-5", "15 6 1 * *"]
        definitions = [
            Definition(f"s{n}", "1", cron=words[n % 4], tz=("Europe/Berlin", "UTC")[n % 2])
            for n in range(self._schedules)
        ]
        queue._drive(register(queue.settings, definitions, [], prune=False))
        queue._ask(heartbeat.beat(queue.settings, "w-1", {"pid": 1, "host": "vm", "tasks": '["send_email","invoice"]'}))
        queue._ask(announce.announce(queue.settings))
        self._fill_figures(now)
        for n in range(_GATES):
            queue.gates.set(f"gate{n}", concurrency=2)
        with queue.batch(BATCH, queue.task(name="send_email")(print), results=False) as batch:
            batch.add(range(10_000))
        fill_queues(self.server, self._queues)
        self.store.set(keys.promoter, "w-1")  # this holder never dies
        self.store.rpush(keys.samples, *(self._sample(now - SPACING_MS * n) for n in range(MOST_SAMPLES)))
        self.store.delete(keys.wake)
        say(f"{sum(self.sizes.values()):,} jobs, {self._schedules:,} schedules and {self._queues:,} queues are stored")

    def _fill_figures(self, now_ms: int) -> None:
        """Figures of as many tasks as are kept, for two days."""
        tasks = ["send_email", "invoice", *(f"task{n}" for n in range(_TASKS - 2))]
        counts = "900 3 5 1 4500000|8000 20000|20:500 60:300 100:100|10:800 40:100"
        for number in range(1, 49):
            report = dict.fromkeys(tasks, counts)
            for part in count_tasks.chunks(report):
                self.queue._ask(count_tasks.count_tasks(self.queue.settings, f"w-{number}-{min(part)}", number, part))

    def _sample(self, at_ms: int) -> str:
        totals = {f"{name}_total": at_ms // 1000 for name in (*COUNTED, "reclaimed")}
        return json.dumps({"at_ms": at_ms, **totals, "pending_depth": 1}, separators=(",", ":"))

    def at(self, place: str, part: float) -> str:
        """The id of the job at a relative position in its list, in listing order: 0 is the first, 1 the last."""
        number = int(part * (self.sizes[place] - 1))
        if place in ("failed", "completed"):  # newest first
            number = self.sizes[place] - 1 - number
        return f"{place}{number:015d}"

    def cursor(self, place: str, part: float) -> str:
        """The cursor of the page at a relative position."""
        job_id = self.at(place, part)
        score = self.store.zscore(self.queue.settings.keys.delayed, job_id) if place == "delayed" else None
        position = str(int(part * (self.sizes[place] - 1))) if score is None else f"{float(score):.0f}"
        return Cursor(place, position, (job_id,)).text()

    def close(self) -> None:
        """Close the connections."""
        self.queue.close()
        self.store.close()
