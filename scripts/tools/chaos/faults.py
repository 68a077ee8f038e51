"""The kinds of faults, how often they occur, and the record of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scripts.tools.chaos.attempts import VISIBILITY_MS

LEASE_S: Final = VISIBILITY_MS / 1000
SERVER: Final = "server"
INTERVALS_S: Final = {
    # kind: average seconds between two of them
    "worker_kill": 2.2,
    "promoter_kill": 6.0,
    "redis_kill": 12.0,
    "worker_stop": 9.0,
    "worker_restart": 12.0,
    "cut": 3.5,
    "black_hole": 8.0,
    "lost_reply": 2.5,
    "slow_wire": 10.0,
    "client_kill": 8.0,
    "script_flush": 6.0,
    "clock_step": 16.0,
    "memory_squeeze": 14.0,
    "server_slow": 11.0,
    "loop_block": 5.0,
    "executor_full": 11.0,
    "password_refused": 17.0,
}
OF_JOBS: Final = ("poison_kill", "timed_out_thread", "unknown_task")
"""Faults caused by jobs that producers enqueue among the others."""
OF_PROMISES: Final = ("timed_out_thread", "unknown_task")
"""Those of them that are counted where their promise is judged."""
SCENES: Final = ("blocked_workers", "fleet_kill", "old_release", "old_application", "empty_store", "failed_start")
"""Run in parallel with the storm, one at a time, on workers and a server of their own."""
KINDS: Final = (*INTERVALS_S, *OF_JOBS, "client_skew", *SCENES)
KILLS: Final = ("worker_kill", "promoter_kill", "redis_kill", "poison_kill")
NETWORK: Final = ("cut", "black_hole", "lost_reply", "slow_wire", "client_kill")
CLOCK: Final = ("client_skew", "clock_step")


@dataclass(slots=True)
class Fault:
    """A fault that was injected.

    Attributes:
        until: when it was over; infinity for the end of a process.
        target: key of a process, or SERVER.
        is_calm: no other fault was active.
    """

    kind: str
    since: float
    until: float
    target: str
    is_calm: bool = False
