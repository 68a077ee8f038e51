"""Produce, work, reclaim and watch on a queue that may be shared with schedq: the guide's programs in Python.

python main.py produce '{"kind": "email"}'      python main.py work --jobs 1      python main.py --help
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

import redis
from job_queue import JobQueue

_WAIT_S = 1


class Stop:
    """Whether SIGTERM or Ctrl-C has arrived: the current job is finished first."""

    def __init__(self) -> None:
        self.has_come = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._come)

    def _come(self, _number: int, _frame: FrameType | None) -> None:
        self.has_come = True


def say(**facts: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(facts), flush=True)


def work(queue: JobQueue, given: argparse.Namespace) -> None:
    """Claim, pretend to work, report; print one line when a job starts and one when it ends."""
    stop, left = Stop(), given.jobs
    while left != 0 and not stop.has_come:
        job = queue.claim(_WAIT_S)
        if job is None:
            continue
        left -= 1
        say(id=job.id, did="started", attempts=job.attempts, payload=job.payload)
        time.sleep(given.work_ms / 1000)
        if given.fail is None:
            word, is_ours = "completed", queue.complete(job, {"worker": os.getpid()})
        else:
            word, is_ours = "failed", queue.fail(job, given.fail)
        say(id=job.id, did=word if is_ours else "came too late")


def reclaim(queue: JobQueue, given: argparse.Namespace) -> None:
    """Take back stuck jobs, repeatedly."""
    stop = Stop()
    while not stop.has_come:
        for job_id in queue.reclaim_stuck():
            say(id=job_id, did="reclaimed")
        time.sleep(given.every_ms / 1000)


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description="A job queue written from the Redis guide, on keys shared with schedq."
    )
    parser.add_argument("--redis", default=os.environ.get("REDIS_URL", "redis://localhost:6379/0"), metavar="URL")
    parser.add_argument("--queue", default="jobs", metavar="NAME")
    verbs = parser.add_subparsers(dest="verb", required=True)

    produce = verbs.add_parser("produce", help="store a job and print its id")
    produce.add_argument("payload", type=json.loads, help="JSON")
    produce.add_argument(
        "--delay-ms", type=int, default=0, metavar="N", help="delay in milliseconds, by this machine's clock"
    )
    produce.add_argument("--count", type=int, default=1, metavar="N", help="number of jobs, each with its own id")
    produce.add_argument("--wake", action="store_true", help="make an idle schedq worker look at once")

    worker = verbs.add_parser("work", help="claim jobs and pretend to do them")
    worker.add_argument("--move", choices=["blmove", "brpoplpush"], default="blmove", help="the command that claims")
    worker.add_argument("--work-ms", type=int, default=0, metavar="N", help="how long a job takes")
    worker.add_argument("--fail", metavar="TEXT", help="fail every job with this error")
    worker.add_argument("--jobs", type=int, default=-1, metavar="N", help="exit after this many jobs")
    worker.add_argument("--max-attempts", type=int, default=3, metavar="N")

    reclaimer = verbs.add_parser("reclaim", help="take back claims that are too old")
    reclaimer.add_argument(
        "--visibility-ms", type=int, default=5000, metavar="N", help="age in milliseconds at which a claim is too old"
    )
    reclaimer.add_argument("--every-ms", type=int, default=1000, metavar="N")

    verbs.add_parser("stats", help="print depths and totals")
    verbs.add_parser("events", help="print events of jobs until Ctrl-C")
    return parser.parse_args()


def act(queue: JobQueue, given: argparse.Namespace) -> None:
    """Run the chosen verb."""
    if given.verb == "produce":
        for _ in range(given.count):
            print(queue.enqueue(given.payload, given.delay_ms, wake=given.wake))
    elif given.verb == "work":
        work(queue, given)
    elif given.verb == "reclaim":
        reclaim(queue, given)
    elif given.verb == "stats":
        say(**queue.stats())
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        for event in queue.events():
            say(**event)


def main() -> None:
    """Connect and run."""
    given = parsed()
    names = ("move", "max_attempts", "visibility_ms")
    options = {name: value for name, value in vars(given).items() if name in names}
    try:
        client = redis.Redis.from_url(given.redis, decode_responses=True)
    except ValueError as error:
        sys.exit(f"--redis: {error}")
    try:
        with client:
            act(JobQueue(client, given.queue, **options), given)
    except redis.RedisError as error:
        sys.exit(f"redis: {error}")
    except KeyboardInterrupt:
        pass  # this is how `events` ends


if __name__ == "__main__":
    main()
