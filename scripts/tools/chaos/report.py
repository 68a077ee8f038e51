"""The results of a long run as a table for the handbook: fault × outcome.

The result is in `soak.json`, written by `scripts/chaos --seconds 3600 --record scripts/tools/chaos/soak.json`. The
table is generated only from it, and a test compares the handbook with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from scripts.tools.chaos.attempts import VISIBILITY_MS
from scripts.tools.chaos.faults import KINDS
from scripts.tools.handbook import Block

SOAK: Final = Path(__file__).with_name("soak.json")
BLOCK: Final = Block("faults-survived.md", "chaos")
Result = dict[str, Any]

NAMES: Final = {
    "worker_kill": "a worker is killed (SIGKILL)",
    "poison_kill": "a job kills its worker",
    "promoter_kill": "a promoter is killed",
    "redis_kill": "Redis is killed and restarted (`appendfsync always`)",
    "worker_stop": "a worker or promoter is frozen for longer than a lease (SIGSTOP)",
    "worker_restart": "a worker is asked to stop (SIGTERM, 1 s of grace)",
    "cut": "all connections of a process are reset",
    "black_hole": "nothing passes for up to 1.4 leases; data then arrives late, or never",
    "lost_reply": "Redis executes a request, but the reply is lost",
    "slow_wire": "all data arrives late and in pieces",
    "client_kill": "CLIENT KILL of all clients",
    "script_flush": "SCRIPT FLUSH",
    "memory_squeeze": "memory is full: new jobs are rejected",
    "server_slow": "Redis is frozen for up to 2.5 s",
    "clock_step": "Redis's clock steps by an hour, forward or back",
    "loop_block": "a handler blocks a worker's event loop for up to 5 s",
    "executor_full": "a worker's default executor is full, and its connections are reset",
    "password_refused": "Redis rejects the password for up to 2.5 s, and disconnects all clients",
    "timed_out_thread": "a plain handler exceeds its timeout and occupies its thread",
    "unknown_task": "a worker gets a task that it does not have",
    "blocked_workers": "a worker is killed while all other event loops are blocked",
    "fleet_kill": "40 candidates start together, and the promoter is killed",
    "old_release": "workers of an old release start and stop while a new one runs",
    "old_application": "workers with an older schedule start and stop while a new one runs",
    "empty_store": "Redis comes back empty",
    "failed_start": "a worker can't open one of its resources",
    "client_skew": "a worker whose clock is an hour ahead or behind, a promoter a day ahead",
}
_HEADS: Final = ("fault", "times", "jobs lost", "early starts", "starts after completion", "restarts because of it")


def recorded() -> Result:
    """The result of the soak."""
    found: Result = json.loads(SOAK.read_text())
    return found


def text(result: Result) -> str:
    """The text for the handbook."""
    lines = [f"| {' | '.join(_HEADS)} |", f"|{'---|' * len(_HEADS)}"]
    outcomes = [f"{result[name]:,}" for name in ("lost", "early", "after_completion")]
    for kind in [kind for kind in KINDS if kind in result["faults"]]:
        times = "not tested here" if kind in result["left_out"] else f"{result['faults'][kind]:,}"
        again = f"{result['again'].get(kind, 0):,}"
        lines.append(f"| {' | '.join([NAMES[kind], times, *outcomes, again])} |")
    return f"{_summary(result)}\n\n" + "\n".join(lines) + "\n"


def _summary(result: Result) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items() if name != "server")
    again, unexplained = result["twice_explained"], result["twice_unexplained"]
    return (
        f"`scripts/chaos --seconds {result['seconds']} --seed {result['seed']}` of {result['date']} "
        f"({versions}, {result['versions']['server']}):\n"
        f"{result['jobs']:,} jobs, {result['kills']:,} kills, {result['network_faults']:,} faults of the network. "
        f"{result['lost']} jobs were lost; {again:,} attempts were started again because a\n"
        f"fault had kept their worker from renewing the lease, {unexplained} without such a fault; {result['illegal']} "
        "jobs have a history without a legal order.\n"
        f"With leases of {VISIBILITY_MS / 1000:g} s the jobs of a killed worker started elsewhere at most "
        f"{result['recovery_max_ms'] / 1000:.1f} s after its death when no other fault was active."
        + (_of_takeovers(result) if result.get("takeover_max_ms") else "")
        + (_of_slots(result) if "slots" in result else "")
    )


def _of_takeovers(result: Result) -> str:
    return f" Another promoter took over from a killed one within {result['takeover_max_ms'] / 1000:.1f} s."


def _of_slots(result: Result) -> str:
    passed = result["slots_coalesced"] + result["slots_leapt"]
    return (
        f"\nOf {result['slots']:,} slots of schedules, one a second, {result['slots_twice']} had two jobs; "
        f"{result['slots_missed']} had none outside an outage, a takeover or a step of the clock; {passed:,} of these "
        "were replaced by the last one, as catch_up specifies."
    )
