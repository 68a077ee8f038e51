"""The server's own limit: the smallest state changes of a list queue with a record per job, by a bare client.

First over a raw socket with commands packed in advance: plain, one script per job, one script per 50 jobs. Then by a
bare loop over redis-py with the same scripts: the most that a worker in Python can reach.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import hiredis
import redis

from tests.servers import Server

Words = tuple[object, ...]
Figures = dict[str, float]
STEPS: Final = ("enqueue", "claim", "complete", "schedule", "promote")
CYCLE: Final = ("enqueue", "claim", "complete")
_PIPELINE: Final = 100
_PAYLOAD: Final = '{"task": "mark", "args": [1, 1800000000.0]}'
_DUE: Final = 1_800_000_000_000

_SCRIPTS: Final = {
    "enqueue": """
for _, id in ipairs(ARGV) do
  redis.call('HSET', 'b:job:' .. id, 'id', id, 'status', 'pending', 'attempts', '0',
    'payload', '{"task": "mark", "args": [1, 1800000000.0]}', 'enqueued_at_ms', '1800000000000', 'token', '')
  redis.call('LPUSH', 'b:pending', id)
end
return #ARGV""",
    "claim": """
local found = {}
for _ in ipairs(ARGV) do
  local id = redis.call('LMOVE', 'b:pending', 'b:processing', 'RIGHT', 'LEFT')
  if not id then break end
  local key = 'b:job:' .. id
  redis.call('HSET', key, 'status', 'processing', 'claim_token', ARGV[1], 'claimed_at_ms', '1800000000000')
  redis.call('HINCRBY', key, 'attempts', 1)
  found[#found + 1] = redis.call('HGETALL', key)
end
return found""",
    "complete": """
for _, id in ipairs(ARGV) do
  local key = 'b:job:' .. id
  redis.call('LREM', 'b:processing', -1, id)
  redis.call('HSET', key, 'status', 'completed', 'completed_at_ms', '1800000000000', 'result', 'null')
  redis.call('EXPIRE', key, 3600)
  redis.call('LPUSH', 'b:completed', id)
  redis.call('LTRIM', 'b:completed', 0, 999)
end
return #ARGV""",
    "schedule": """
for _, id in ipairs(ARGV) do
  redis.call('HSET', 'b:job:' .. id, 'id', id, 'status', 'delayed', 'attempts', '0',
    'payload', '{"task": "mark", "args": [1, 1800000000.0]}', 'enqueued_at_ms', '1800000000000',
    'run_at_ms', '1800000000000')
  redis.call('ZADD', 'b:delayed', '1800000000000', id)
end
return #ARGV""",
    "promote": """
local due = redis.call('ZRANGEBYSCORE', 'b:delayed', '-inf', '1800000000000', 'LIMIT', 0, #ARGV)
for _, id in ipairs(due) do
  redis.call('ZREM', 'b:delayed', id)
  redis.call('HSET', 'b:job:' .. id, 'status', 'pending')
  redis.call('LPUSH', 'b:pending', id)
end
return #due""",
}


def plain(step: str, job_id: str) -> tuple[Words, ...]:
    """The commands of one step for one job, whose id is known in advance."""
    key = f"b:job:{job_id}"
    record = ("id", job_id, "payload", _PAYLOAD, "status", "pending", "attempts", 0, "enqueued_at_ms", _DUE)
    commands: dict[str, tuple[Words, ...]] = {
        "enqueue": (("HSET", key, *record, "token", ""), ("LPUSH", "b:pending", job_id)),
        "claim": (
            ("LMOVE", "b:pending", "b:processing", "RIGHT", "LEFT"),
            ("HSET", key, "status", "processing", "claim_token", "t", "claimed_at_ms", _DUE),
            ("HINCRBY", key, "attempts", 1),
            ("HGETALL", key),
        ),
        "complete": (
            ("LREM", "b:processing", -1, job_id),
            ("HSET", key, "status", "completed", "completed_at_ms", _DUE, "result", "null"),
            ("EXPIRE", key, 3600),
            ("LPUSH", "b:completed", job_id),
            ("LTRIM", "b:completed", 0, 999),
        ),
        "schedule": (("HSET", key, *record, "run_at_ms", _DUE), ("ZADD", "b:delayed", _DUE, job_id)),
        "promote": (
            ("ZRANGEBYSCORE", "b:delayed", "-inf", _DUE, "LIMIT", 0, 1),
            ("ZREM", "b:delayed", job_id),
            ("HSET", key, "status", "pending"),
            ("LPUSH", "b:pending", job_id),
        ),
    }
    return commands[step]


def measure(binary: Path | None, *, jobs: int) -> dict[str, Figures]:
    """Measure all ways: microseconds of Redis's CPU per job, and jobs per second."""
    found: dict[str, Figures] = {}
    for way, batch in (("plain", 0), ("lua", 1), ("lua-50", 50)):
        with Server(binary, topology="single") as server, server.client() as store:
            found[way] = _raw(server, store, batch, jobs)
    for batch in (1, 10, 50):
        with Server(binary, topology="single") as server, server.client() as store:
            found[f"redis-py-{batch}"] = _loop(store, batch, min(jobs, 600 * batch + 6000))
    return found


def _raw(server: Server, store: redis.Redis, batch: int, jobs: int) -> Figures:
    shas = {step: str(store.script_load(_SCRIPTS[step])) for step in STEPS}
    ids = [f"{number:020d}" for number in range(jobs)]
    figures: Figures = {}
    for step in STEPS:
        if step == "schedule":
            store.flushdb()
        packed = list(_packed(step, ids, shas[step], batch))
        before, began = _cpu_s(store), time.perf_counter()
        with socket.create_connection(("127.0.0.1", server.port)) as wire:
            reader = hiredis.Reader()
            for text, count in packed:
                wire.sendall(text)
                _read(wire, reader, count)
        took = time.perf_counter() - began
        figures[f"{step} us"] = (_cpu_s(store) - before) / jobs * 1e6
        figures[f"{step}/s"] = jobs / took
    figures["cycle us"] = sum(figures[f"{step} us"] for step in CYCLE)
    figures["cycles/s of one core"] = 1e6 / figures["cycle us"]
    return figures


def _packed(step: str, ids: list[str], sha: str, batch: int) -> Iterator[tuple[bytes, int]]:
    """Pipelines of 100 jobs, as bytes, and the number of replies to each."""
    for first in range(0, len(ids), _PIPELINE):
        some = ids[first : first + _PIPELINE]
        commands: list[Words] = []
        if batch:
            commands += [("EVALSHA", sha, 0, *some[n : n + batch]) for n in range(0, len(some), batch)]
        else:
            commands += [command for job_id in some for command in plain(step, job_id)]
        yield b"".join(map(_pack, commands)), len(commands)


def _pack(words: Iterable[object]) -> bytes:
    texts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(text), text) for text in texts)


def _read(wire: socket.socket, reader: Any, count: int) -> None:
    while count:
        reply = reader.gets()
        if reply is False:
            reader.feed(wire.recv(1 << 18))
        elif isinstance(reply, Exception):
            raise reply
        else:
            count -= 1


def _loop(store: redis.Redis, batch: int, jobs: int) -> Figures:
    """A bare worker: claim, decode, call, complete, one after the other on one connection."""
    scripts = {step: store.register_script(_SCRIPTS[step]) for step in CYCLE}
    ids = [f"{number:020d}" for number in range(jobs)]
    began = time.perf_counter()
    for first in range(0, jobs, batch):
        scripts["enqueue"](args=ids[first : first + batch])
    filled = time.perf_counter()
    handler: Callable[..., None] = lambda *_: None  # noqa: E731
    wanted = ["t"] * batch
    while claimed := scripts["claim"](args=wanted):
        done = []
        for flat in claimed:
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            handler(*json.loads(fields["payload"])["args"])
            done.append(fields["id"])
        scripts["complete"](args=done)
    ended = time.perf_counter()
    return {"enqueue/s": jobs / (filled - began), "cycle/s": jobs / (ended - filled)}


def _cpu_s(store: redis.Redis) -> float:
    info = store.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])
