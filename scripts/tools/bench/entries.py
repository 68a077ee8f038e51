"""The contestants and their settings: the fastest that were found for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PLAIN, ASYNC = "plain", "async"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A job engine with one set of settings.

    Attributes:
        app: its file in contestants/, without the suffix.
        requires: packages of its environment; npm packages if the file is for Node.
        set_up: its settings, in words.
        kinds: its kinds of handlers; single measurements use the first.
        jobs: number of jobs that it drains in a run, about four seconds' worth.
        bulk: it has a bulk call.
        has_scheduler: delayed jobs need an additional process.
        drain_only: takes part in the drain rows only; other settings of the engine take part in the rest.
        forks: it starts two worker processes itself; otherwise two workers are started.
        short: how its lease was shortened for the crash row, in words; '' if that is not possible.
    """

    name: str
    app: str
    requires: tuple[str, ...]
    set_up: str
    kinds: tuple[str, ...]
    jobs: int
    bulk: bool = False
    has_scheduler: bool = False
    drain_only: bool = False
    short: str = ""
    forks: bool = False

    @property
    def is_python(self) -> bool:
        """It runs in a virtual environment."""
        return not self.app.endswith("_node")

    @property
    def environment(self) -> str:
        """Name of the environment, shared by all settings of the engine."""
        return self.app.partition("_")[2]


_REDIS: Final = ("redis==8.1.0", "hiredis==3.5.0")
_UVLOOP: Final = "uvloop==0.23.0"
_CELERY: Final = ("celery==5.7.0", "kombu==5.7.0", "packaging", *_REDIS)
_CELERY_SET_UP: Final = (
    "prefetch multiplier 128, no results, no events, gossip, mingle or heartbeat, early ack (default); "
    "multi = two worker processes"
)

SCHEDQ: Final = Contestant(
    "schedq",
    "with_schedq",
    (*_REDIS, "croniter>=6", "click>=8.4", "msgspec>=0.19", "rich>=13.7", _UVLOOP),
    "concurrency 200 for async handlers, 128 for plain ones (default 10 for both, and in the idle and crash rows); "
    "results, totals, events, log and histories on, as by default",
    (ASYNC, PLAIN),
    30_000,
    bulk=True,
    short="visibility 5 s",
    forks=True,
)

PEERS: Final = (
    Contestant(
        "huey",
        "with_huey",
        ("huey==3.5.4", *_REDIS),
        "RedisHuey (BRPOP), results off, periodic off; 1 thread, or 2 processes",
        (PLAIN,),
        12_000,
        forks=True,
    ),
    Contestant(
        "dramatiq",
        "with_dramatiq",
        ("dramatiq==2.2.1", *_REDIS),
        "1 thread, queue prefetch 500, delay prefetch 65535, only the AsyncIO, Callbacks, Pipelines and Retries "
        "middleware; multi = its own 2 processes",
        (ASYNC, PLAIN),
        10_000,
        short="heartbeat_timeout 10 s, maintenance on every command",
        forks=True,
    ),
    Contestant(
        "bullmq_node",
        "with_bullmq_node",
        ("bullmq@6.7.0", "ioredis@6.0.0"),
        "Node, concurrency 100, removeOnComplete",
        (ASYNC,),
        30_000,
        bulk=True,
        short="lock and stalled check 5 s",
    ),
    Contestant(
        "bullmq_py",
        "with_bullmq_py",
        ("bullmq==3.4.4", *_REDIS, _UVLOOP),
        "concurrency 10, removeOnComplete, uvloop, socket_timeout 60 s",
        (ASYNC,),
        8_000,
        bulk=True,
        short="lock and stalled check 5 s",
    ),
    Contestant(
        "taskiq",
        "with_taskiq",
        ("taskiq==0.13.0", "taskiq-redis==1.2.4", *_REDIS, "orjson", _UVLOOP),
        "RedisStreamBroker (xread_count 100), max-async-tasks 100, prefetch 100, --no-parse, orjson, uvloop, no result "
        "backend; multi = its own 2 processes; a scheduler process",
        (ASYNC, PLAIN),
        7_000,
        has_scheduler=True,
        forks=True,
        short="idle_timeout 65 s",
    ),
    Contestant(
        "docket",
        "with_docket",
        ("pydocket==0.27.0", *_REDIS, _UVLOOP),
        "concurrency 64, minimum_check_interval 2 ms, scheduling_resolution 10 ms, execution_ttl 0, uvloop",
        (ASYNC,),
        7_000,
        bulk=True,
        short="redelivery_timeout 5 s",
    ),
    Contestant(
        "arq",
        "with_arq",
        ("arq==0.28.0", "redis==5.3.1", "hiredis==3.5.0", _UVLOOP),
        "max_jobs 100, poll_delay 0.01 s (default 0.5), keep_result 0, uvloop",
        (ASYNC,),
        7_000,
        short="job_timeout 62 s",
    ),
    Contestant(
        "saq",
        "with_saq",
        ("saq==0.26.4", "redis==7.4.1", "hiredis==3.5.0", "typing_extensions", "orjson", _UVLOOP),
        "concurrency 10, ttl -1, orjson, uvloop",
        (ASYNC, PLAIN),
        6_000,
        short="sweep 1 s, and a job that sends its own heartbeat, 5 s",
    ),
    Contestant(
        "streaq",
        "with_streaq",
        ("streaq==7.2.0", "coredis==6.9.0", _UVLOOP),
        "concurrency 32, 4 threads for plain jobs, prefetch = concurrency, ttl 0, silent, uvloop",
        (ASYNC, PLAIN),
        4_000,
        bulk=True,
        short="idle_timeout 5 s",
    ),
    Contestant(
        "celery",
        "with_celery",
        _CELERY,
        f"prefork, {_CELERY_SET_UP} with one child each",
        (PLAIN,),
        3_000,
        short="acks_late, reject_on_worker_lost, prefetch 1, visibility_timeout 70 s",
    ),
    Contestant(
        "celery_threads", "with_celery", _CELERY, f"threads pool, {_CELERY_SET_UP}", (PLAIN,), 3_000, drain_only=True
    ),
    Contestant("celery_solo", "with_celery", _CELERY, f"solo pool, {_CELERY_SET_UP}", (PLAIN,), 3_000, drain_only=True),
    Contestant(
        "rq",
        "with_rq",
        ("rq==2.12.0", *_REDIS),
        "SimpleWorker (in-process, no fork), result_ttl 0, job descriptions not logged",
        (PLAIN,),
        1_000,
        bulk=True,
        short="default worker, Retry(max=3), worker ttl 20 s, maintenance and monitoring every 5 s",
    ),
    Contestant(
        "rq_fork",
        "with_rq",
        ("rq==2.12.0", *_REDIS),
        "default Worker: forks a work horse per job; result_ttl 0",
        (PLAIN,),
        200,
        drain_only=True,
    ),
)

CONTESTANTS: Final = {entry.name: entry for entry in (SCHEDQ, *PEERS)}
