"""Does the faults of a run, and notes what was done when.

From time to time the storm rests, and workers are killed while nothing else is wrong: how soon their jobs start
elsewhere is measured then.
"""

from __future__ import annotations

import math
import random
import signal
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import redis

from tests.chaos.agenda import Agenda
from tests.chaos.app import SPARED
from tests.chaos.faults import INTERVALS_S, KINDS, LEASE_S, SERVER, Fault
from tests.chaos.record import now
from tests.chaos.stage import SKEWS, Part, Stage
from tests.chaos.timetable import Timetable

HOUR_S: Final = 3600
_CALM_EVERY_S: Final = 120.0
_CALM_BEFORE_S: Final = 3.0
_CALM_AFTER_S: Final = LEASE_S + 3.0
_RESPAWN_S: Final = 0.3
_UNTIL_OBEYED_S: Final = 1.0
"""Seconds that may pass until a handler comes along that stops the loop."""
FULL_S: Final = 6.0
"""Seconds for which the threads of a worker's default executor are busy."""
_FEWEST: Final = 3
"""Workers that must be running for one more to be ended: on a slow machine a start takes its time."""


class Storm:
    """Does faults for a while.

    Args:
        seed: which, when and to whom.
        left_out: kinds that are not done.
    """

    def __init__(
        self, stage: Stage, seed: int, seconds: float, timetable: Timetable, left_out: Collection[str] = ()
    ) -> None:
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self.deaths: list[str] = []
        self._stage = stage
        self._timetable = timetable
        self._rng = random.Random(seed)
        self._seconds = seconds
        self._left_out = left_out
        self._agenda = Agenda()
        self._refusals: list[tuple[float, float]] = []
        self._is_server_busy = False
        self._is_calm = False
        self._is_over = False
        self._skew()

    # -- the agenda

    def begin(self) -> None:
        """From now on `turn` does things."""
        began = now()
        self._ends_at = began + self._seconds
        self._agenda.add(began, self._rest)
        for kind, every in INTERVALS_S.items():
            if kind not in self._left_out:
                self._agenda.add(began + self._rng.uniform(0, every), lambda kind=kind: self._strike(kind))  # type: ignore[misc]

    @property
    def is_over(self) -> bool:
        """Its time is up, and nothing of it is left."""
        return self._is_over and not self._agenda.under_way and not self._is_server_busy

    def turn(self) -> None:
        """Do what is due, and replace the dead."""
        self._agenda.turn()
        for part in list(self._stage.parts.values()):
            if not part.is_running:
                self._bury(part)
        self._is_over = self._is_over or now() >= self._ends_at

    def _strike(self, kind: str) -> None:
        if self._is_over:
            return
        if not self._is_calm:
            getattr(self, f"_{kind}")()
        self._agenda.add(now() + self._rng.uniform(0.3, 1.7) * INTERVALS_S[kind], lambda: self._strike(kind))

    def _note(self, kind: str, target: str, since: float, until: float | None = None, *, is_calm: bool = False) -> None:
        self.faults.append(Fault(kind, since, now() if until is None else until, target, is_calm))
        self.counts[kind] += 1

    def _bury(self, part: Part) -> None:
        """Start a dead process again; who died by nobody's hand is spoken of."""
        if not part.is_ended:
            part.is_ended = True
            if part.popen.returncode == -signal.SIGKILL and part.role == "worker":
                self._note("poison_kill", part.key, min(now() - 0.5, self._stage.last_word(part)), math.inf)
            elif not self._was_never_let_in(part):
                self.deaths.append(f"{part.key} ended by itself, exit code {part.popen.returncode}")
        if part.name in self._stage.parts and self._stage.parts[part.name] is part:
            del self._stage.parts[part.name]
            self._agenda.add(now() + _RESPAWN_S, lambda: self._revive(part.name))

    def _was_never_let_in(self, part: Part) -> bool:
        """Whether it has ended as it should: a password that is refused at the start is not waited for."""
        is_refused = any(since <= now() and until >= part.began for since, until in self._refusals)
        return is_refused and part.popen.returncode == 1 and not self._stage.has_got_through(part)

    def _revive(self, name: str) -> None:
        self._stage.start(name)
        self._skew(name)

    def _skew(self, name: str | None = None) -> None:
        if self._stage.faketime is not None:
            self.counts["client_skew"] += len(SKEWS) if name is None else name in SKEWS

    # -- processes

    def _pick(self, *roles: str, spared: bool = True) -> Part | None:
        found = [part for role in roles for part in self._stage.having(role, spared=spared)]
        return self._rng.choice(found) if found else None

    def _worker_kill(self) -> None:
        self._kill("worker_kill", "worker", _FEWEST)

    def _promoter_kill(self) -> None:
        self._kill("promoter_kill", "promoter", 1)

    def _kill(self, kind: str, role: str, fewest: int) -> None:
        frozen = [p for p in self._stage.parts.values() if p.role == role and p.is_frozen and p.is_running]
        part = self._rng.choice(frozen) if frozen and self._rng.random() < 0.2 else self._pick(role, spared=False)
        if part is None or part.name in SPARED or len(self._stage.having(role)) < fewest:
            return
        if not (part.is_frozen or self._stage.can_spare_one):
            return
        since = now()
        self._stage.kill(part)
        self._note(kind, part.key, since, math.inf)

    def _worker_restart(self) -> None:
        part = self._pick("worker", spared=False)
        if part is None or len(self._stage.having("worker")) < _FEWEST or not self._stage.can_spare_one:
            return
        part.is_ended = True
        part.send(signal.SIGTERM)
        self._note("worker_restart", part.key, now(), math.inf)
        self._await_end(part, now() + 20)

    def _await_end(self, part: Part, deadline: float) -> None:
        if part.is_running and now() >= deadline:
            part.send(signal.SIGKILL)
        elif part.is_running:
            self._agenda.last(0.2, lambda: self._await_end(part, deadline))

    def _worker_stop(self) -> None:
        part = self._pick("worker", "promoter")
        if part is None or not self._stage.can_spare_one:
            return
        since, seconds = now(), self._rng.uniform(1.1, 1.8) * LEASE_S
        part.is_frozen = True
        part.send(signal.SIGSTOP)

        def thaw() -> None:
            part.is_frozen = False
            if part.is_running:
                part.send(signal.SIGCONT)
            self._note("worker_stop", part.key, since)

        self._agenda.last(seconds, thaw)

    def _loop_block(self) -> None:
        if part := self._pick("worker"):
            since, seconds = now(), self._rng.choice((1.0, 2.7, 5.0))
            self._stage.order(part, block=seconds)
            self._agenda.last(seconds + _UNTIL_OBEYED_S, lambda: self._note("loop_block", part.key, since))

    def _executor_full(self) -> None:
        """Fill the executor, and lose Redis a moment later: to connect again must not need it."""
        if part := self._pick("worker"):
            self._stage.order(part, fill=FULL_S)

            def cut() -> None:
                # One that was never let in ends at the first refusal of the password, and has no way back to find.
                is_at_work = part.is_running and not (part.is_ended or part.is_frozen)
                if is_at_work and self._stage.has_got_through(part):
                    self._stage.network.cut(part.name)
                    self._note("executor_full", part.key, now())

            self._agenda.last(0.4, cut)
            self._agenda.last(FULL_S, lambda: None)

    # -- the network

    def _cut(self) -> None:
        if part := self._pick("worker", "promoter", "producer"):
            self._stage.network.cut(part.name)
            self._note("cut", part.key, now())

    def _lost_reply(self) -> None:
        if part := self._pick("worker", "worker", "producer", "promoter"):
            self._stage.network.lose_replies(part.name)
            self._note("lost_reply", part.key, now(), now() + 0.5)

    def _black_hole(self) -> None:
        part = self._pick("worker", "promoter", "producer")
        if part is None:
            return
        since, seconds = now(), self._rng.choice((0.5, 1.5, 1.4 * LEASE_S))
        keeps = self._rng.random() < 0.5
        self._stage.network.close(part.name)

        def heal() -> None:
            self._stage.network.open(part.name, keeps=keeps)
            self._note("black_hole", part.key, since)

        self._agenda.last(seconds, heal)

    def _slow_wire(self) -> None:
        part = self._pick("worker", "promoter", "producer")
        if part is None:
            return
        self._stage.network.slow(part.name, self._rng.choice((0.02, 0.05, 0.1)))
        since = now()

        def heal() -> None:
            self._stage.network.slow(part.name, 0)
            self._note("slow_wire", part.key, since)

        self._agenda.last(self._rng.uniform(0.5, 2), heal)

    # -- the server

    def _ask_server(self, *words: str | int) -> bool:
        """Send it a command, if nothing is wrong with it just now."""
        if self._is_server_busy:
            return False
        with self._stage.server.client() as client, suppress(redis.RedisError):
            client.execute_command(*words)
            return True
        return False

    def _client_kill(self) -> None:
        if self._ask_server("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"):
            self._note("client_kill", SERVER, now())

    def _script_flush(self) -> None:
        if self._ask_server("SCRIPT", "FLUSH"):
            self._note("script_flush", SERVER, now())

    def _memory_squeeze(self) -> None:
        if self._is_server_busy:
            return
        with self._stage.server.client() as client:
            used = client.info("memory")["used_memory"]
        if self._ask_server("CONFIG", "SET", "maxmemory", used):
            since = now()

            def relax() -> None:
                if not self._ask_server("CONFIG", "SET", "maxmemory", 0):
                    self._agenda.last(0.2, relax)
                    return
                self._note("memory_squeeze", SERVER, since)

            self._agenda.last(self._rng.uniform(0.5, 2), relax)

    def _redis_kill(self) -> None:
        if self._is_server_busy:
            return
        since, self._is_server_busy = now(), True
        self._stage.kill_server()

        def start() -> None:
            self._stage.server.start()
            self._is_server_busy = False
            self._note("redis_kill", SERVER, since)

        self._agenda.last(self._rng.choice((0.0, 0.3, 1.5)), start)

    def _server_slow(self) -> None:
        if self._is_server_busy:
            return
        since, self._is_server_busy = now(), True
        self._stage.server.freeze()

        def thaw() -> None:
            self._stage.server.thaw()
            self._is_server_busy = False
            self._note("server_slow", SERVER, since)

        self._agenda.last(self._rng.choice((0.2, 0.6, 2.5)), thaw)

    def _clock_step(self) -> None:
        if self._is_server_busy:
            return
        offset_s = self._rng.choice((HOUR_S, -HOUR_S))
        self._note("clock_step", SERVER, self._stage.set_clock(offset_s).asked)
        self._agenda.last(self._rng.uniform(2, 6), lambda: self._step_back(offset_s))

    def _step_back(self, offset_s: int) -> None:
        if self._is_server_busy:
            self._agenda.last(0.2, lambda: self._step_back(offset_s))
            return
        self._note("clock_step", SERVER, self._stage.set_clock(0).asked)
        if offset_s > 0:
            self._renew()

    def _renew(self) -> None:  # the schedules' next slots are an hour away
        if self._is_server_busy or not self._timetable.renew():
            self._agenda.last(0.2, self._renew)

    def _password_refused(self) -> None:
        if self._is_server_busy:
            return
        since = now()
        with suppress(redis.RedisError):
            self._stage.let_in(is_let_in=False)
            self._refusals.append((since, math.inf))
            self._agenda.last(self._rng.choice((0.5, 1.5, 2.5)), lambda: self._take_password(since))

    def _take_password(self, since: float) -> None:
        if not self._is_server_busy:
            with suppress(redis.RedisError):
                self._stage.let_in(is_let_in=True)
                self._refusals[-1] = (since, now() + 1)
                self._note("password_refused", SERVER, since)
                return
        self._agenda.last(0.2, lambda: self._take_password(since))

    # -- calm

    def _rest(self) -> None:
        """Let nothing new happen; when all is over, and a while after that, kill workers."""
        self._is_calm = True
        if self._agenda.under_way or self._is_server_busy:
            self._agenda.add(now() + 0.1, self._rest)
        else:
            self._agenda.add(now() + _CALM_BEFORE_S, self._kill_in_calm)

    def _kill_in_calm(self) -> None:
        # Who may do the reclaiming stays.
        for name in ("worker-1", "worker-3"):
            part = self._stage.parts.get(name)
            if part is not None and part.is_running and not part.is_ended:
                since = now()
                self._stage.kill(part)
                self._note("worker_kill", part.key, since, math.inf, is_calm=True)
        self._agenda.add(now() + _CALM_AFTER_S, self._go_on)

    def _go_on(self) -> None:
        self._is_calm = False
        if not self._is_over:
            self._agenda.add(now() + _CALM_EVERY_S, self._rest)
