"""Faults of processes: they are killed, stopped, frozen or kept busy."""

from __future__ import annotations

import math
import signal
from typing import Final

from scripts.tools.chaos.app import SPARED
from scripts.tools.chaos.faults import LEASE_S
from scripts.tools.chaos.record import now
from scripts.tools.chaos.stage import Part
from scripts.tools.chaos.storm_state import StormState

_UNTIL_OBEYED_S: Final = 1.0
"""Seconds that may pass until a handler runs that blocks the loop."""
FULL_S: Final = 6.0
"""Seconds for which the threads of a worker's default executor are occupied."""
FEWEST_WORKERS: Final = 3
"""Workers that must be running before one is stopped: on a slow machine a start takes time."""


class ProcessFaults:
    """Faults of processes; each method is named after its kind of fault."""

    def __init__(self, storm: StormState) -> None:
        self._storm = storm

    def worker_kill(self) -> None:
        self._kill("worker_kill", "worker", FEWEST_WORKERS)

    def promoter_kill(self) -> None:
        self._kill("promoter_kill", "promoter", 1)

    def _kill(self, kind: str, role: str, fewest: int) -> None:
        frozen = [p for p in self._storm.stage.parts.values() if p.role == role and p.is_frozen and p.is_running]
        part = (
            self._storm.rng.choice(frozen)
            if frozen and self._storm.rng.random() < 0.2
            else self._storm.pick(role, spared=False)
        )
        if part is None or part.name in SPARED or len(self._storm.stage.having(role)) < fewest:
            return
        if not (part.is_frozen or self._storm.stage.can_spare_one):
            return
        since = now()
        self._storm.stage.kill(part)
        self._storm.note(kind, part.key, since, math.inf)

    def worker_restart(self) -> None:
        part = self._storm.pick("worker", spared=False)
        if (
            part is None
            or len(self._storm.stage.having("worker")) < FEWEST_WORKERS
            or not self._storm.stage.can_spare_one
        ):
            return
        part.is_ended = True
        part.send(signal.SIGTERM)
        self._storm.note("worker_restart", part.key, now(), math.inf)
        self._await_end(part, now() + 20)

    def _await_end(self, part: Part, deadline: float) -> None:
        if part.is_running and now() >= deadline:
            part.send(signal.SIGKILL)
        elif part.is_running:
            self._storm.agenda.last(0.2, lambda: self._await_end(part, deadline))

    def worker_stop(self) -> None:
        part = self._storm.pick("worker", "promoter")
        if part is None or not self._storm.stage.can_spare_one:
            return
        since, seconds = now(), self._storm.rng.uniform(1.1, 1.8) * LEASE_S
        part.is_frozen = True
        part.send(signal.SIGSTOP)

        def thaw() -> None:
            part.is_frozen = False
            if part.is_running:
                part.send(signal.SIGCONT)
            self._storm.note("worker_stop", part.key, since)

        self._storm.agenda.last(seconds, thaw)

    def loop_block(self) -> None:
        if part := self._storm.pick("worker"):
            since, seconds = now(), self._storm.rng.choice((1.0, 2.7, 5.0))
            self._storm.stage.order(part, block=seconds)
            self._storm.agenda.last(seconds + _UNTIL_OBEYED_S, lambda: self._storm.note("loop_block", part.key, since))

    def executor_full(self) -> None:
        """Fill the executor, and disconnect Redis a moment later: reconnecting must not need the executor."""
        if part := self._storm.pick("worker"):
            self._storm.stage.order(part, fill=FULL_S)

            def cut() -> None:
                # A process that never authenticated exits when the password is rejected: it doesn't reconnect.
                is_at_work = part.is_running and not (part.is_ended or part.is_frozen)
                if is_at_work and self._storm.stage.has_got_through(part):
                    self._storm.stage.network.cut(part.name)
                    self._storm.note("executor_full", part.key, now())

            self._storm.agenda.last(0.4, cut)
            self._storm.agenda.last(FULL_S, lambda: None)
