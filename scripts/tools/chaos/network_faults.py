"""Faults of the network: connections are cut, blocked or slow."""

from __future__ import annotations

from scripts.tools.chaos.faults import LEASE_S
from scripts.tools.chaos.record import now
from scripts.tools.chaos.storm_state import StormState


class NetworkFaults:
    """Faults of the network; each method is named after its kind of fault."""

    def __init__(self, storm: StormState) -> None:
        self._storm = storm

    def cut(self) -> None:
        if part := self._storm.pick("worker", "promoter", "producer"):
            self._storm.stage.network.cut(part.name)
            self._storm.note("cut", part.key, now())

    def lost_reply(self) -> None:
        if part := self._storm.pick("worker", "worker", "producer", "promoter"):
            self._storm.stage.network.lose_replies(part.name)
            self._storm.note("lost_reply", part.key, now(), now() + 0.5)

    def black_hole(self) -> None:
        part = self._storm.pick("worker", "promoter", "producer")
        if part is None:
            return
        since, seconds = now(), self._storm.rng.choice((0.5, 1.5, 1.4 * LEASE_S))
        keeps = self._storm.rng.random() < 0.5
        self._storm.stage.network.close(part.name)

        def heal() -> None:
            self._storm.stage.network.open(part.name, keeps=keeps)
            self._storm.note("black_hole", part.key, since)

        self._storm.agenda.last(seconds, heal)

    def slow_wire(self) -> None:
        part = self._storm.pick("worker", "promoter", "producer")
        if part is None:
            return
        self._storm.stage.network.slow(part.name, self._storm.rng.choice((0.02, 0.05, 0.1)))
        since = now()

        def heal() -> None:
            self._storm.stage.network.slow(part.name, 0)
            self._storm.note("slow_wire", part.key, since)

        self._storm.agenda.last(self._storm.rng.uniform(0.5, 2), heal)
