"""What a cluster costs, and what its nodes add: `python -m scripts.tools.bench.nodes`.

One worker process drains queues of jobs that do nothing, from a plain server, a cluster of one node and one of four.
Counted are the processor time of each node and the messages between them. The last row is what every node would have
to do for all others if events went to all of them: the same four nodes, with a user who may not send SPUBLISH.

Two shared cores can't show the throughput of four nodes. The time of the busiest node says how much they could carry.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from schedq import Queue
from schedq.worker.worker import Worker
from tests.servers import Server, announced
from tests.stories.topologies.cluster import Cluster, ask, info

_JOBS: Final = 20_000
_SLOTS: Final = 100
_MESSAGES: Final = ("cluster_stats_messages_publish_sent", "cluster_stats_messages_publishshard_sent")


class Layout(NamedTuple):
    """Where the queues are.

    Attributes:
        name: as in the table.
        nodes: of the cluster; 0: a plain server.
        queues: how many, on different nodes if there are several.
        shards: events stay on the node of their queue.
    """

    name: str
    nodes: int
    queues: int
    shards: bool = True


LAYOUTS: Final = (
    Layout("1 queue, plain server", 0, 1),
    Layout("1 queue, cluster of 1", 1, 1),
    Layout("1 queue, cluster of 4", 4, 1),
    Layout("1 queue, cluster of 4, PUBLISH", 4, 1, shards=False),
    Layout("4 queues, cluster of 1", 1, 4),
    Layout("4 queues, cluster of 4", 4, 4),
    Layout("4 queues, cluster of 4, PUBLISH", 4, 4, shards=False),
)


class Drain(NamedTuple):
    """What a drain cost, per job.

    Attributes:
        all_us: processor time of all nodes.
        busiest_us: of the one that worked most.
        messages: between the nodes.
    """

    all_us: float
    busiest_us: float
    messages: float


class Place:
    """The servers of a layout, which run until the benchmark ends."""

    def __init__(self, layout: Layout, stack: ExitStack) -> None:
        self.layout = layout
        self._number = 0
        self._cluster: Cluster | None = None
        if layout.nodes:
            self._cluster = stack.enter_context(Cluster(layout.nodes, save="", appendonly=False))
            self.nodes, url = self._cluster.nodes, self._cluster.url
        else:
            server = stack.enter_context(Server(topology="single", save="", appendonly=False))
            self.nodes, url = [server], server.url
        if not layout.shards:
            for node in self.nodes:
                ask(node, "ACL SETUSER", "older", "on", ">pw", "~*", "&*", "+@all", "-spublish")
            url = url.replace("://", "://older:pw@")
        self._url = url

    def drain(self, jobs: int) -> Drain:
        """Drain new queues; returns what it cost."""
        names = [self._name(number) for number in range(self.layout.queues)]
        for name in names:
            with Queue(name, redis=self._url, max_pending=None) as queue:
                for first in range(0, jobs // len(names), 1000):
                    queue.enqueue_many([{"task": "nothing", "args": [n]} for n in range(first, first + 1000)])
        worked, sent = [*map(_worked_s, self.nodes)], self._sent()
        subprocess.run([sys.executable, "-m", "scripts.tools.bench.nodes", "--worker", self._url, *names], check=True)
        for name in names:
            with Queue(name, redis=self._url) as queue:
                assert queue.stats()["completed_total"] == jobs // len(names), name
        worked = [_worked_s(node) - was for node, was in zip(self.nodes, worked, strict=True)]
        return Drain(1e6 * sum(worked) / jobs, 1e6 * max(worked) / jobs, (self._sent() - sent) / jobs)

    def _sent(self) -> int:
        """How many messages the nodes have sent to each other."""
        return sum(map(_sent, self.nodes)) if self._cluster else 0

    def _name(self, number: int) -> str:
        self._number += 1
        if self._cluster is None:
            return f"drained{self._number}"
        return self._cluster.name_at(self.nodes[number % len(self.nodes)])


def _worked_s(node: Server) -> float:
    found = info(node, "cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def _sent(node: Server) -> int:
    found = ask(node, "CLUSTER INFO")
    return sum(int(found.get(name, 0)) for name in _MESSAGES)


def work(url: str, names: Sequence[str]) -> None:
    """Drain queues in this process."""

    async def nothing(_: int) -> None: ...

    queues = [Queue(name, redis=url) for name in names]
    for queue in queues:
        queue.task(name="nothing")(nothing)
    asyncio.run(Worker(queues, concurrency=_SLOTS, burst=True).run())


def measure(jobs: int, rounds: int) -> dict[str, Any]:
    """Drain all layouts in turns; returns the medians."""
    load = os.getloadavg()[0]
    found: dict[str, list[Drain]] = {layout.name: [] for layout in LAYOUTS}
    with ExitStack() as stack:
        places = [Place(layout, stack) for layout in LAYOUTS]
        for number in range(rounds):
            for place in places if number % 2 else reversed(places):
                found[place.layout.name].append(place.drain(jobs))
    return {
        "load": round(load, 2),
        "jobs": jobs,
        "rounds": rounds,
        "rows": {
            name: Drain(*map(statistics.median, zip(*rows, strict=True)))._asdict() for name, rows in found.items()
        },
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The table."""
    yield f"{'µs of Redis per job':36} {'all nodes':>10} {'busiest':>10} {'messages between nodes':>24}"
    for name, row in found["rows"].items():
        yield f"{name:36} {row['all_us']:10.1f} {row['busiest_us']:10.1f} {row['messages']:24.2f}"
    rows = found["rows"]
    cost = rows["1 queue, cluster of 4"]["all_us"] / rows["1 queue, plain server"]["all_us"]
    gain = rows["4 queues, cluster of 1"]["busiest_us"] / rows["4 queues, cluster of 4"]["busiest_us"]
    yield f"four nodes cost {cost:.2f} × a plain server (at most 1.10) and carry {gain:.1f} × one (at least 3.5)"
    yield f"medians of {found['rounds']} rounds of {found['jobs']:,} jobs; load {found['load']}"


def main(argv: Sequence[str]) -> int:
    """Measure and print the table; figures are never an error."""
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.bench.nodes", description=__doc__)
    parser.add_argument("--jobs", type=int, default=_JOBS, help=f"per drain [{_JOBS}]")
    parser.add_argument("--rounds", type=int, default=5, help="drains of each layout, in turns [5]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the figures")
    parser.add_argument("--worker", nargs="+", metavar="URL NAME", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        work(options.worker[0], options.worker[1:])
        return 0
    announced("scripts.tools.bench.nodes")
    found = measure(options.jobs, options.rounds)
    print(*lines(found), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
