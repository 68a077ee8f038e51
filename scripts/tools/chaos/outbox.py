"""`scripts/chaos --outbox`: applications, relays of an outbox and PostgreSQL are killed while orders are written.

Each order is written in one transaction with its job, and some transactions are rolled back. The committed orders are
those in the database at the end; each must have a job, and no other job may have run. Relays are also frozen for longer
than a finished record lives. A held row is decided as a person would: its job has run, or it is sent. A second run of a
job counts as announced if between both runs a relay was frozen, and PostgreSQL died meanwhile and ended its connection.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import func, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from tests.integrations.databases import Postgres, postgres_folder
from tests.servers import Server
from tests.waiting import until

ROOT: Final = Path(__file__).parents[3]
PRODUCERS: Final = 2
RELAYS: Final = 3
FREEZE_S: Final = 8.0
PATIENCE_S: Final = 120.0
_EVERY_S: Final = {"producer": 4.0, "relay": 3.0, "database": 9.0, "freeze": 15.0}
"""Average seconds between two faults of a kind. On a busy machine they are up to `_MOST` times as long.

Otherwise each producer would be killed before its first order. They are as they are if that takes `_START_S`.
"""
_START_S: Final = 2.0
_MOST: Final = 3.0


class Freeze(NamedTuple):
    """When a relay was frozen and continued, in Unix seconds."""

    began: float
    ended: float


@dataclass
class Findings:
    """What a run has shown; all of `FAULTS` must be zero.

    Attributes:
        committed: orders in the database at the end.
        lost: orders whose job never ran.
        invented: jobs that ran without an order.
        repeated: second runs that the handbook's page does not announce.
        announced: second runs that it announces.
        held: rows that a relay held for a person.
    """

    faults: Counter[str] = field(default_factory=Counter)
    committed: int = 0
    lost: int = 0
    invented: int = 0
    repeated: int = 0
    announced: int = 0
    held: int = 0
    complaints: list[str] = field(default_factory=list)

    def say(self, kind: str, what: str) -> None:
        """Record a fault."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.complaints.append(f"{kind}: {what}")


FAULTS: Final = ("lost", "invented", "repeated")


def judge(
    orders: Mapping[str, str], runs: Mapping[str, Sequence[float]], freezes: Sequence[Freeze], found: Findings
) -> None:
    """Compare orders and runs.

    Args:
        orders: id of the job → number of the order.
        runs: id of a job → when it ran, in Unix seconds.
        freezes: when relays were frozen while PostgreSQL died.
        found: what is found is added here.
    """
    found.committed = len(orders)
    for job_id, number in orders.items():
        if job_id not in runs:
            found.say("lost", f"order {number} is committed, and its job {job_id} never ran")
    for job_id, times in runs.items():
        if job_id not in orders:
            found.say("invented", f"job {job_id} ran, and no order has it")
        for first, second in itertools.pairwise(times):
            if any(first <= it.ended + 1 and second >= it.ended for it in freezes):
                found.announced += 1
            else:
                found.say("repeated", f"job {job_id} ran {second - first:.1f} s after its first run")


class Stage:
    """The processes of a run."""

    def __init__(self, folder: Path, database: Postgres, draw: random.Random) -> None:
        self._folder, self._database, self._draw = folder, database, draw
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {"producer": [], "relay": []}
        self._frozen: list[tuple[subprocess.Popen[bytes], float]] = []
        self.freezes: list[Freeze] = []
        self.strikes: list[float] = []
        with (folder / "log").open("ab") as log:
            command = [sys.executable, "-m", "schedq", "worker", "scripts.tools.chaos.outbox_app:queue"]
            self.worker = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self, role: str) -> None:
        """Start a producer or a relay."""
        command = [sys.executable, "-m", "scripts.tools.chaos.outbox_app", role, str(self._draw.random())[2:]]
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._processes[role].append(process)

    def kill(self, role: str) -> None:
        """Kill one, and start another."""
        process = self._processes[role].pop(self._draw.randrange(len(self._processes[role])))
        process.kill()
        process.wait()
        self._frozen = [(other, since) for other, since in self._frozen if other is not process]
        self.start(role)

    def freeze(self) -> None:
        """Freeze a relay; `thaw` lets it continue."""
        process = self._draw.choice(self._processes["relay"])
        if process not in [other for other, _ in self._frozen]:
            process.send_signal(signal.SIGSTOP)
            self._frozen.append((process, time.time()))

    def thaw(self, after: float = FREEZE_S) -> None:
        """Let those continue that were frozen that long ago."""
        for process, since in list(self._frozen):
            if time.time() >= since + after:
                process.send_signal(signal.SIGCONT)
                self._frozen.remove((process, since))
                self.freezes.append(Freeze(since, time.time()))

    def strike_database(self) -> None:
        """Kill PostgreSQL and start it again."""
        self._database.kill()
        self.strikes.append(time.time())
        time.sleep(self._draw.uniform(0, 1))
        self._database.start()

    def stop(self, role: str) -> None:
        """Kill all of a kind."""
        for process in self._processes[role]:
            process.kill()
            process.wait()
        self._processes[role].clear()


def run(transactions: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Run until so many orders are committed; return the result and a sentence for each fault.

    Raises:
        LookupError: PostgreSQL is not installed.
    """
    programs = postgres_folder()
    if programs is None:
        raise LookupError("PostgreSQL is not installed")
    found, draw = Findings(), random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="schedq-outbox-", dir="/tmp"))
    with Server(topology="single") as server, Postgres(programs) as database:
        os.environ |= {"CHAOS_REDIS": server.url, "CHAOS_FOLDER": str(folder), "CHAOS_DATABASE": database.url}
        from scripts.tools.chaos import outbox_app as app  # it needs the variables

        until(lambda: committed() is not None or _made(app))
        stage = Stage(folder, database, draw)
        try:
            storm(stage, transactions, draw, found)
            settle(folder, found)
        finally:
            for role in ("producer", "relay"):
                stage.stop(role)
            stage.worker.send_signal(signal.SIGTERM)
            stage.worker.wait()
        with Session(app.engine) as session:
            orders = {job_id: number for number, job_id in session.execute(select(app.Order.number, app.Order.job_id))}
        long = [it for it in stage.freezes if any(it.began <= at <= it.ended for at in stage.strikes)]
        judge(orders, recorded(folder), long, found)
        app.engine.dispose()
    if not found.complaints:
        shutil.rmtree(folder)
    else:
        found.complaints.append(f"the log is in {folder}")
    facts = {name: getattr(found, name) for name in ("committed", *FAULTS, "announced", "held")}
    return {"seed": seed, **facts, "faults": dict(found.faults)}, found.complaints


def storm(stage: Stage, transactions: int, draw: random.Random, found: Findings) -> None:
    """Write orders until enough are committed, and kill and freeze processes meanwhile."""
    for role, count in (("producer", PRODUCERS), ("relay", RELAYS)):
        for _ in range(count):
            stage.start(role)
    acts: dict[str, Callable[[], None]] = {
        "producer": lambda: stage.kill("producer"),
        "relay": lambda: stage.kill("relay"),
        "database": stage.strike_database,
        "freeze": stage.freeze,
    }
    began = time.monotonic()
    until(committed, within=PATIENCE_S)
    now = time.monotonic()
    slowness = min(max(1.0, (now - began) / _START_S), _MOST)
    every_s = {kind: every * slowness for kind, every in _EVERY_S.items()}
    due = {kind: now + draw.expovariate(1 / every) for kind, every in every_s.items()}
    while (committed() or 0) < transactions:
        for kind, act in acts.items():
            if time.monotonic() >= due[kind]:
                due[kind] = time.monotonic() + draw.expovariate(1 / every_s[kind])
                act()
                found.faults[kind] += 1
        stage.thaw()
        time.sleep(0.1)
    stage.stop("producer")
    stage.thaw(0)


def committed() -> int | None:
    """How many orders there are; None while PostgreSQL is down."""
    from scripts.tools.chaos import outbox_app as app

    try:
        with Session(app.engine) as session:
            return session.execute(select(func.count()).select_from(app.Order)).scalar_one()
    except DBAPIError:
        return None


def settle(folder: Path, found: Findings) -> None:
    """Wait until all rows are sent and their jobs have run. Held rows are decided by what has run."""
    from scripts.tools.chaos import outbox_app as app

    table, seen = app.outbox.table, set[str]()

    def is_over() -> bool:
        time.sleep(0.5)
        ran = recorded(folder)
        try:
            with Session(app.engine) as session, session.begin():
                held = [*session.execute(select(table.c.job_id).where(table.c.held.is_not(None))).scalars()]
                for job_id in held:
                    seen.add(job_id)
                    values = {"sent_at_ms": 1} if job_id in ran else {"started_at_ms": None}
                    session.execute(update(table).where(table.c.job_id == job_id).values(held=None, **values))
                unsent = session.execute(
                    text(f"SELECT count(*) FROM {table.name} WHERE sent_at_ms IS NULL")
                ).scalar_one()
        except DBAPIError:
            return False
        counts = app.queue.stats()
        return not unsent and not counts["pending_depth"] + counts["processing_depth"]

    until(is_over, within=PATIENCE_S)
    found.held = len(seen)


def _made(app: Any) -> bool:
    """Whether the tables are there."""
    try:
        app.Base.metadata.create_all(app.engine)
    except DBAPIError:
        return False
    return True


def recorded(folder: Path) -> dict[str, list[float]]:
    """When each job ran."""
    found: dict[str, list[float]] = {}
    path = folder / "runs"
    for line in path.read_text().splitlines() if path.exists() else ():
        at, job_id, _ = line.split()
        found.setdefault(job_id, []).append(float(at))
    return found
