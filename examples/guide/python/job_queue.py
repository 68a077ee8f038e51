"""A job queue written from the guide in the Redis documentation, with redis-py and nothing else.

It has no leases, no promotion of delayed jobs and no wake marker: it does what any program written from the guide
does. It shares its queues with schedq, because both use the same keys and fields.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import redis

_SCRIPTS: Final = Path(__file__).parent.parent / "lua"
_PLACES: Final = ("pending", "processing", "completed", "failed")
_TOTALS: Final = ("enqueued_total", "completed_total", "failed_total", "reclaimed_total")


@dataclass(frozen=True, slots=True)
class Claimed:
    """One attempt at a job; the token proves ownership.

    The payload is the text as stored. The caller parses it, where an error can still fail the job.
    """

    id: str
    payload: str
    attempts: int
    token: str


class JobQueue:
    """One queue, named as schedq names it.

    Args:
        client: a client that decodes responses; a waiting claim occupies one of its connections.
        name: the queue.
        move: `blmove`, or `brpoplpush` for older servers and clients.
        visibility_ms: age of a claim at which `reclaim_stuck` takes it back.
        max_attempts: claims that a job gets.
        keep_s: seconds for which the record of a finished job is kept.
        history: number of finished jobs kept in the lists.
    """

    def __init__(
        self,
        client: redis.Redis,
        name: str,
        *,
        move: str = "blmove",
        visibility_ms: int = 5000,
        max_attempts: int = 3,
        keep_s: int = 300,
        history: int = 50,
    ) -> None:
        self._client = client
        self._prefix = f"queue:{name}:"
        self._move = move
        self._visibility_ms = visibility_ms
        self._max_attempts = max_attempts
        self._keep_s = keep_s
        self._history = history
        self._complete, self._fail, self._reclaim = (
            client.register_script((_SCRIPTS / file).read_text())
            for file in ("complete.lua", "fail.lua", "reclaim.lua")
        )

    def _key(self, name: str) -> str:
        return self._prefix + name

    def enqueue(self, payload: object, delay_ms: int = 0, *, wake: bool = False) -> str:
        """Store a job and return its id. A delayed job waits until a schedq worker or promoter moves it to `pending`.

        `wake` makes an idle schedq worker look at once; otherwise it looks within a second.
        """
        job_id, now_ms = secrets.token_hex(8), _now_ms()
        fields: dict[Any, Any] = {
            "id": job_id,
            "payload": json.dumps(payload),
            "status": "delayed" if delay_ms else "pending",
            "attempts": 0,
            "enqueued_at_ms": now_ms,
            "claim_token": "",
        }
        with self._client.pipeline() as pipe:
            pipe.hset(self._key(f"job:{job_id}"), mapping=fields)
            if delay_ms:
                pipe.zadd(self._key("delayed"), {job_id: now_ms + delay_ms})
            else:
                pipe.lpush(self._key("pending"), job_id)
            pipe.hincrby(self._key("stats"), "enqueued_total", 1)
            if wake:
                pipe.zadd(self._key("wake"), {"1": 0})
            pipe.execute()
        return job_id

    def claim(self, wait_s: int) -> Claimed | None:
        """The next job; waits at most `wait_s` seconds for one.

        Between the move and the write of the claim the job has no visible owner. If this process dies there, only a
        reclaimer notices.
        """
        pending, processing = self._key("pending"), self._key("processing")
        if self._move == "blmove":
            job_id: Any = self._client.blmove(pending, processing, wait_s, "RIGHT", "LEFT")
        else:
            job_id = self._client.execute_command("BRPOPLPUSH", pending, processing, wait_s)
        if job_id is None:
            return None
        key, token = self._key(f"job:{job_id}"), secrets.token_hex(8)
        with self._client.pipeline() as pipe:
            pipe.hset(key, mapping={"status": "processing", "claimed_at_ms": _now_ms(), "claim_token": token})
            pipe.hincrby(key, "attempts", 1)
            pipe.hgetall(key)
            *_, fields = pipe.execute()
        return Claimed(job_id, fields.get("payload", ""), int(fields["attempts"]), token)

    def complete(self, job: Claimed, result: object) -> bool:
        """Report success; False if the job now belongs to another worker."""
        keys = [self._key("processing"), self._key("completed"), self._key(f"job:{job.id}")]
        args: list[str | int] = [job.id, job.token, _now_ms(), json.dumps(result), self._keep_s, self._history]
        if not self._complete(keys, args):
            return False
        self._tell(job, "completed")
        self._client.hincrby(self._key("stats"), "completed_total", 1)
        return True

    def fail(self, job: Claimed, error: str) -> bool:
        """Report failure: retried at once if attempts are left. False if the job now belongs to another worker."""
        is_last = job.attempts >= self._max_attempts
        keys = [self._key("processing"), self._key("pending"), self._key("failed"), self._key(f"job:{job.id}")]
        args: list[str | int] = [
            job.id,
            job.token,
            _now_ms(),
            error,
            self._keep_s,
            self._history,
            "0" if is_last else "1",
        ]
        if not self._fail(keys, args):
            return False
        self._tell(job, "failed" if is_last else "retry")
        if is_last:
            self._client.hincrby(self._key("stats"), "failed_total", 1)
        return True

    def reclaim_stuck(self) -> list[str]:
        """Take back claims that are too old and return their ids. Some process has to call this periodically."""
        keys = [self._key("processing"), self._key("pending")]
        found: list[str] = self._reclaim(keys, [self._key("job:"), _now_ms(), self._visibility_ms])
        if found:
            self._client.hincrby(self._key("stats"), "reclaimed_total", len(found))
        return found

    def stats(self) -> dict[str, int]:
        """Number of jobs in each state, and the totals that all programs on this queue share."""
        with self._client.pipeline() as pipe:
            for place in _PLACES:
                pipe.llen(self._key(place))
            pipe.hgetall(self._key("stats"))
            *depths, totals = pipe.execute()
        counted = {name: int(totals.get(name, 0)) for name in _TOTALS}
        return counted | {f"{place}_depth": depth for place, depth in zip(_PLACES, depths, strict=True)}

    def events(self) -> Iterator[dict[str, Any]]:
        """Events of jobs from now on, including schedq's: `id`, `status` and, from schedq, more."""
        with self._client.pubsub(ignore_subscribe_messages=True) as channel:
            channel.subscribe(self._key("events"))
            for message in channel.listen():
                yield json.loads(message["data"])

    def _tell(self, job: Claimed, status: str) -> None:
        self._client.publish(self._key("events"), json.dumps({"id": job.id, "status": status}))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
