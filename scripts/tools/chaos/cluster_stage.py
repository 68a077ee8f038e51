"""The processes of `scripts/chaos --cluster`, and the nodes that they work on."""

from __future__ import annotations

import shutil
import signal
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from scripts.tools.chaos import cluster_app as app
from scripts.tools.chaos.record import Recorder
from scripts.tools.chaos.stage import Stage
from tests.stories.topologies.cluster import Cluster

NODE_TIMEOUT_MS: Final = 2000
WORKERS, PRODUCERS = 3, 2
_CONCURRENCY: Final = 12


@dataclass
class ClusterStage(Stage):
    """Four primaries with a replica each, workers that serve all queues, producers and a promoter.

    Attributes:
        cluster: the nodes; number n + 4 is at first the replica of number n.
    """

    cluster: Cluster = field(init=False)

    def __enter__(self) -> Self:
        self.cluster = Cluster(app.PRIMARIES, app.PRIMARIES, cluster_node_timeout=NODE_TIMEOUT_MS)
        self.cluster.__enter__()
        self.folder = Path(tempfile.mkdtemp(prefix="schedq-chaos-"))
        self.recorder = Recorder(self.folder, "director")
        self.recorder.watch_for_gaps()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in self.lives:
            with suppress(ProcessLookupError):
                part.send(signal.SIGKILL)
            part.popen.wait(30)
        self.cluster.__exit__(kind, error, trace)
        if not self.keeps:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start_all(self) -> None:
        roles = {"worker": WORKERS, "promoter": 1, "producer": PRODUCERS}
        for name in (f"{role}-{n}" for role, count in roles.items() for n in range(count)):
            self.start(name)

    def _url(self, name: str) -> str:
        """Names a primary and a replica of another one; clients find the other nodes."""
        return self.cluster.url_of(self.cluster.nodes[0], self.cluster.nodes[app.PRIMARIES + 1])

    def _command(self, name: str, url: str, number: int) -> list[str]:
        if name.startswith("worker"):
            queues = [f"{app.__name__}:{name}" for name in app.OBJECTS]
            how = ["--concurrency", str(_CONCURRENCY), "--grace", "1", "--log-format", "json"]
            return ["-m", "schedq", "worker", *queues, *how, *(["--no-promoter"] if number % 2 else [])]
        if name.startswith("promoter"):
            return ["-m", "schedq", "promoter", *app.NAMES, "--redis", url, "--log-format", "json"]
        return ["-m", "scripts.tools.chaos.cluster_producer", str(self.rate / PRODUCERS), str(self.seed)]
