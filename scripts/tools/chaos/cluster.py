"""`scripts/chaos --cluster`: four primaries with a replica each, whose nodes die, stop and hand over, under load.

Two queues are on each node at first; then slots move, too. Workers, which serve all queues, producers and the promoter
are killed meanwhile. All is judged from what handlers, workers and producers have recorded; see `cluster_verdict`.
"""

from __future__ import annotations

import math
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from schedq import Queue, StoreUnavailable
from schedq.model.keys import QueueKeys
from scripts.tools.chaos import cluster_app as app
from scripts.tools.chaos import record
from scripts.tools.chaos.app_stage import PATIENCE_S, judge_laws, look_at_logs
from scripts.tools.chaos.attempts import clock_steps
from scripts.tools.chaos.cluster_faults import NodeFaults
from scripts.tools.chaos.cluster_stage import ClusterStage
from scripts.tools.chaos.cluster_verdict import FAULTS, Findings, Judge, Outage, queue_of
from scripts.tools.chaos.faults import Fault
from scripts.tools.chaos.journal import Journal
from scripts.tools.chaos.record import now
from tests.servers import described
from tests.state import State
from tests.stories.topologies.cluster import ask, info

MOST_RATE: Final = 40.0
_EVERY_S: Final = {"worker_kill": 7.0, "producer_kill": 15.0, "promoter_kill": 25.0}
"""Average seconds between two of them."""
_TICK_S: Final = 0.02
_IN_TRANSIT_S: Final = 0.3
"""Until then, processes read the last replies of the old node."""


class Killer:
    """Kills processes now and then, and replaces all that have ended.

    Attributes:
        faults: the kills.
    """

    def __init__(self, stage: ClusterStage, seed: int, found: Findings) -> None:
        self._stage, self._found = stage, found
        self._draw = random.Random(f"processes {seed}")
        self._due = {kind: now() + self._draw.uniform(0.3, 1.7) * every for kind, every in _EVERY_S.items()}
        self.faults: list[Fault] = []

    def turn(self) -> None:
        """Kill what is due."""
        for kind, due in self._due.items():
            if now() >= due:
                self._due[kind] = now() + self._draw.uniform(0.3, 1.7) * _EVERY_S[kind]
                running = self._stage.having(kind.removesuffix("_kill"))
                if running and (len(running) > 1 or kind != "worker_kill"):
                    since, part = now(), self._draw.choice(running)
                    self._stage.kill(part)
                    self.faults.append(Fault(kind, since, math.inf, part.key))
        self.replace()

    def replace(self) -> None:
        """Start those again that have ended."""
        for name, part in list(self._stage.parts.items()):
            if not part.is_running:
                if not part.is_ended:
                    self._found.say("deaths", part.described_end())
                self._stage.start(name)


def run(seconds: float, seed: int, rate: float, *, keeps: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Run; return the result and a sentence for each fault."""
    found, steps = Findings(), clock_steps()
    with ExitStack() as stack:
        stage = stack.enter_context(ClusterStage(rate, seed, keeps=keeps))
        nodes = NodeFaults(stage.cluster, seed)
        stack.callback(nodes.cancel)  # before the nodes are stopped
        stack.callback(_ignore_signals)
        stage.start_all()
        killer = Killer(stage, seed, found)
        nodes.start()
        ends = now() + seconds
        while now() < ends and nodes.is_alive():
            killer.turn()
            time.sleep(_TICK_S)
        nodes.end()
        if nodes.error is not None:
            found.say("not_whole", f"{type(nodes.error).__name__}: {nodes.error}")
        _stop_producers(stage, killer, found)
        drained_s = _drain(stage, killer, found)
        final = _look_at_nodes(stage, nodes, found)
        journal, repeats = _read(stage)
        Judge(journal, nodes.outages, killer.faults, final, found).judge()
        look_at_logs(stage.folder, found)
        if keeps:
            _keep(stage, nodes, killer)
    return {
        "seed": seed,
        "seconds": seconds,
        "server": described().partition(" (")[0],
        **found.judged,
        **{name: getattr(found, name) for name in FAULTS},
        "unreplicated": dict(found.unreplicated),
        "again": dict(found.again),
        "repeats": repeats,
        "back_max_s": _back_max_s(journal, nodes.outages),
        "clock_steps_ms": steps,
        "drained_s": round(drained_s, 1),
        "faults": dict(nodes.counts + Counter(fault.kind for fault in killer.faults)),
    }, found.complaints


def _keep(stage: ClusterStage, nodes: NodeFaults, killer: Killer) -> None:
    """Add the faults to the records."""
    (stage.folder / "faults").write_text("\n".join(map(str, [*nodes.outages, *killer.faults])))
    print(f"the records are in {stage.folder}", file=sys.stderr, flush=True)


def _ignore_signals() -> None:
    """A second Ctrl-C must not interrupt what stops the processes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _stop_producers(stage: ClusterStage, killer: Killer, found: Findings) -> None:
    """Let them end what they have begun."""
    parts = [stage.parts.pop(name) for name in list(stage.parts) if name.startswith("producer")]
    for part in parts:
        part.popen.terminate()
    deadline = now() + PATIENCE_S
    while any(part.is_running for part in parts) and now() < deadline:
        killer.replace()
        time.sleep(_TICK_S)
    for part in parts:
        if part.is_running:
            found.say("waiting", f"{part.key} has requests that never get a reply")
            stage.kill(part)
        elif part.popen.returncode not in (0, -signal.SIGTERM) and not part.is_ended:
            found.say("deaths", part.described_end())


def _drain(stage: ClusterStage, killer: Killer, found: Findings) -> float:
    """Wait until no job waits or runs; returns the seconds it took."""
    began, left = time.monotonic(), set(app.NAMES)
    with ExitStack() as stack:
        queues = {name: stack.enter_context(Queue(name, redis=stage.cluster.url)) for name in app.NAMES}
        while left and time.monotonic() < began + PATIENCE_S:
            killer.replace()
            for name in list(left):
                try:
                    stats = queues[name].stats()
                except StoreUnavailable as error:
                    found.say("not_whole", f"{name} is not available in the calm: {error}")
                    time.sleep(1)
                    continue
                if not (stats["pending_depth"] + stats["delayed_depth"] + stats["processing_depth"]):
                    left.discard(name)
            time.sleep(0.1)
    return time.monotonic() - began


def _look_at_nodes(stage: ClusterStage, nodes: NodeFaults, found: Findings) -> dict[str, str]:
    """Judge the contents of the nodes; returns the state of each job."""
    final: dict[str, str] = {}
    if not nodes.is_whole():
        found.say("not_whole", "at the end not every primary has its replica")
    for name in app.NAMES:
        keys = QueueKeys(name, True)
        owner = stage.cluster.owner(keys.prefix)
        with owner.client() as client:
            state = State.of(client, keys)
        judge_laws(state, found)
        for place, ids in state.places().items():
            final |= dict.fromkeys(ids, place)
            if place != "completed":
                found.say("waiting", f"{len(ids)} jobs are {place}: {', '.join(ids[:5])}")
        for node in stage.cluster.nodes:
            is_another = node is not owner and info(node, "replication")["role"] == "master"
            if is_another and (strays := stage.cluster.keys(keys.prefix, node)):
                found.say("not_whole", f"{len(strays)} keys of {name} are on a node that does not own them")
    sizes = {node.port: ask(node, "DBSIZE") for node in stage.cluster.nodes}
    for node in stage.cluster.nodes:
        if (primary := info(node, "replication").get("master_port")) and sizes[node.port] < sizes[primary] * 0.9:
            found.say("not_whole", f"a replica has {sizes[node.port]} of {sizes[primary]} keys")
    return final


def _read(stage: ClusterStage) -> tuple[Journal, dict[str, int]]:
    """The records, and how often producers had to repeat a request, by error."""
    lines, repeats = [], Counter[str]()
    for process, line in record.read(stage.folder):
        if line[0] == "repeat":
            repeats[line[3]] += 1
        else:
            lines.append((process, line))
    return Journal.of(lines), dict(repeats)


def _back_max_s(journal: Journal, outages: Sequence[Outage]) -> dict[str, float]:
    """The longest time until a job was claimed from a queue whose node had been replaced, by kind of fault."""
    claims: dict[str, list[float]] = {name: [] for name in app.NAMES}
    for job in journal.jobs.values():
        claims[queue_of(job.id)] += (claim.ended for claim in job.claims.values())
    longest: dict[str, float] = {}
    for outage in outages:
        for queue in outage.queues if outage.lost else ():
            after = min((at for at in claims[queue] if at > outage.since + _IN_TRANSIT_S), default=outage.since)
            longest[outage.kind] = max(longest.get(outage.kind, 0.0), round(after - outage.since, 1))
    return longest
