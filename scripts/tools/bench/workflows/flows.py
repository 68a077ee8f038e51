"""The contestants of `--peers` and their settings."""

from __future__ import annotations

from typing import Final

from scripts.tools.bench.entries import ASYNC, CONTESTANTS, PLAIN, Contestant

_SCHEDQ: Final = (
    "one process, concurrency 200; Redis without persistence; results, totals and histories on, as by default"
)
_DBOS: Final = ("dbos==3.4.0",)
_NO_LEASE: Final = "no setting; a process that starts again continues its workflows"

FLOWS: Final = {
    entry.name: entry
    for entry in (
        Contestant(
            "schedq",
            "flow_schedq",
            CONTESTANTS["schedq"].requires,
            f"a batch with `then`, `ctx.step`, a chain; {_SCHEDQ}",
            (ASYNC,),
            0,
            short="visibility 5 s",
        ),
        Contestant(
            "schedq_map",
            "flow_schedq",
            CONTESTANTS["schedq"].requires,
            "a workflow with `ctx.map`; settings as above",
            (ASYNC,),
            0,
            short="visibility 5 s",
        ),
        Contestant(
            "celery",
            "flow_celery",
            CONTESTANTS["celery"].requires,
            "a chord, a chain; prefork with one child, prefetch multiplier 128, Redis as broker and as result backend, "
            "no events, gossip, mingle or heartbeat, early ack (default)",
            (PLAIN,),
            0,
            short="acks_late, reject_on_worker_lost, prefetch 1, visibility_timeout 5 s, unacked messages restored "
            "every second (default 100 s)",
        ),
        Contestant(
            "bullmq_node",
            "flow_bullmq_node",
            CONTESTANTS["bullmq_node"].requires,
            "FlowProducer: a parent with children, nested parents of one child each; Node, one queue, concurrency 100, "
            "removeOnComplete",
            (ASYNC,),
            0,
            short="lock and stalled check 5 s",
        ),
        Contestant(
            "rq",
            "flow_rq",
            CONTESTANTS["rq"].requires,
            "enqueue_many and a job with depends_on, jobs with depends_on; SimpleWorker (in-process, no fork), job "
            "descriptions not logged, results kept 500 s (default)",
            (PLAIN,),
            0,
            short="default worker, Retry(max=3), worker ttl 20 s, maintenance and monitoring every 5 s",
        ),
        Contestant(
            "dbos",
            "flow_dbos",
            _DBOS,
            "a workflow that calls start_workflow for each child and then get_result; steps; plain functions, default "
            "pool of threads, queue and results polled every 10 ms (default 1 s), SQLite with its defaults: a commit "
            "waits for the disk",
            (PLAIN,),
            0,
            short=_NO_LEASE,
        ),
        Contestant(
            "dbos_unsynced",
            "flow_dbos",
            _DBOS,
            "settings as above, but `PRAGMA synchronous=OFF`: commits survive a crash of the process, as those of "
            "Redis do here, but not one of the machine",
            (PLAIN,),
            0,
            short=_NO_LEASE,
        ),
    )
}

TITLES: Final = {
    "schedq": "schedq",
    "schedq_map": "schedq, `ctx.map`",
    "celery": "Celery",
    "bullmq_node": "BullMQ",
    "rq": "RQ",
    "dbos": "DBOS",
    "dbos_unsynced": "DBOS, no sync",
}
OURS: Final = ("schedq", "schedq_map")
PEERS: Final = tuple(name for name in FLOWS if name not in OURS)
