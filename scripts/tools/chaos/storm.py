"""Injects the faults of a run, and records them.

From time to time the storm pauses, and workers are killed while no other fault is active: this measures how soon their
jobs start elsewhere.
"""

from __future__ import annotations

import math
import random
import signal
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from scripts.tools.chaos.faults import INTERVALS_S, LEASE_S, Fault
from scripts.tools.chaos.network_faults import NetworkFaults
from scripts.tools.chaos.process_faults import ProcessFaults
from scripts.tools.chaos.record import now
from scripts.tools.chaos.server_faults import ServerFaults
from scripts.tools.chaos.stage import SKEWS, Part, Stage
from scripts.tools.chaos.storm_state import StormState
from scripts.tools.chaos.timetable import Timetable

_CALM_EVERY_S: Final = 120.0
_CALM_BEFORE_S: Final = 3.0
_CALM_AFTER_S: Final = LEASE_S + 3.0
_RESPAWN_S: Final = 0.3


class Storm:
    """Injects faults for a while.

    Args:
        seed: for the choice of faults, times and targets.
        left_out: kinds of faults to leave out.
    """

    def __init__(
        self, stage: Stage, seed: int, seconds: float, timetable: Timetable, left_out: Collection[str] = ()
    ) -> None:
        self.deaths: list[str] = []
        self._state = StormState(stage, timetable, random.Random(seed))
        self._stage = stage
        self._seconds = seconds
        self._strikes = _strikes(self._state, left_out)
        self._is_calm = False
        self._is_over = False
        self._skew()

    def begin(self) -> None:
        """Start; `turn` injects faults from now on."""
        began = now()
        self._ends_at = began + self._seconds
        self._state.agenda.add(began, self._rest)
        for kind in self._strikes:
            instant = began + self._state.rng.uniform(0, INTERVALS_S[kind])
            self._state.agenda.add(instant, partial(self._strike, kind))

    @property
    def faults(self) -> list[Fault]:
        """The faults injected so far."""
        return self._state.faults

    @property
    def counts(self) -> Counter[str]:
        """How often each kind of fault was injected."""
        return self._state.counts

    @property
    def is_over(self) -> bool:
        """Its time is up, and all faults have ended."""
        return self._is_over and not self._state.agenda.under_way and not self._state.is_server_busy

    def turn(self) -> None:
        """Execute what is due, and replace dead processes."""
        self._state.agenda.turn()
        for part in list(self._stage.parts.values()):
            if not part.is_running:
                self._bury(part)
        self._is_over = self._is_over or now() >= self._ends_at

    def _strike(self, kind: str) -> None:
        if self._is_over:
            return
        if not self._is_calm:
            self._strikes[kind]()
        self._state.agenda.add(
            now() + self._state.rng.uniform(0.3, 1.7) * INTERVALS_S[kind], lambda: self._strike(kind)
        )

    def _bury(self, part: Part) -> None:
        """Restart a dead process; report it if we did not kill it."""
        if not part.is_ended:
            part.is_ended = True
            if part.popen.returncode == -signal.SIGKILL and part.role == "worker":
                self._state.note("poison_kill", part.key, min(now() - 0.5, self._stage.last_word(part)), math.inf)
            elif not self._was_never_let_in(part):
                self.deaths.append(part.described_end())
        if part.name in self._stage.parts and self._stage.parts[part.name] is part:
            del self._stage.parts[part.name]
            self._state.agenda.add(now() + _RESPAWN_S, lambda: self._revive(part.name))

    def _was_never_let_in(self, part: Part) -> bool:
        """Whether it exited as intended: a password that is rejected at the start ends the process."""
        is_refused = any(since <= now() and until >= part.began for since, until in self._state.refusals)
        return is_refused and part.popen.returncode == 1 and not self._stage.has_got_through(part)

    def _revive(self, name: str) -> None:
        self._stage.start(name)
        self._skew(name)

    def _skew(self, name: str | None = None) -> None:
        if self._stage.faketime is not None:
            self._state.counts["client_skew"] += len(SKEWS) if name is None else name in SKEWS

    # -- pauses

    def _rest(self) -> None:
        """Start no new faults; some time after the last one has ended, kill workers."""
        self._is_calm = True
        if self._state.agenda.under_way or self._state.is_server_busy:
            self._state.agenda.add(now() + 0.1, self._rest)
        else:
            self._state.agenda.add(now() + _CALM_BEFORE_S, self._kill_in_calm)

    def _kill_in_calm(self) -> None:
        # The process that may be the reclaimer is not killed.
        for name in ("worker-1", "worker-3"):
            part = self._stage.parts.get(name)
            if part is not None and part.is_running and not part.is_ended:
                since = now()
                self._stage.kill(part)
                self._state.note("worker_kill", part.key, since, math.inf, is_calm=True)
        self._state.agenda.add(now() + _CALM_AFTER_S, self._go_on)

    def _go_on(self) -> None:
        self._is_calm = False
        if not self._is_over:
            self._state.agenda.add(now() + _CALM_EVERY_S, self._rest)


def _strikes(state: StormState, left_out: Collection[str]) -> dict[str, Callable[[], None]]:
    """The function for each kind of fault, in the order in which they are drawn."""
    groups = (ProcessFaults(state), NetworkFaults(state), ServerFaults(state))
    return {
        kind: next(getattr(group, kind) for group in groups if hasattr(group, kind))
        for kind in INTERVALS_S
        if kind not in left_out
    }
