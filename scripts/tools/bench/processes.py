"""Processes of the benchmark: their resource use, and how they are stopped, by pid. Reads /proc (Linux only)."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_START: Final = 19
"""Index of the process's start time in /proc/PID/stat, counted from its state."""
_GONE_S: Final = 60
"""How long a killed process may take to disappear on a busy machine."""
_PR_SET_CHILD_SUBREAPER: Final = 36


def adopt_orphans() -> None:
    """Become the parent of orphaned processes, so that none of them escapes."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(command: Sequence[str], environment: dict[str, str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a process in its own session: Ctrl-C reaches only the benchmark, which then stops the process."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def tree(pid: int) -> list[int]:
    """A process and all its current descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and (fields := _stat(int(path.name))):
            children.setdefault(int(fields[1]), []).append(int(path.name))
    found = [pid]
    for each in found:
        found += children.get(each, ())
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on (state, parent, …); empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """It exists and is not a zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z"


def is_running(pid: int) -> bool:
    """It runs, or could run if a CPU were free."""
    return _stat(pid)[:1] == ["R"]


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds that they have used, including those of their ended children."""
    return sum(sum(map(int, fields[11:15])) for pid in pids if (fields := _stat(pid))) / _TICKS


def machine_cpu_s() -> float:
    """CPU seconds used by all processes on this machine, summed over all cores."""
    user, nice, system, _idle, _wait, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + irq + soft) / _TICKS


def pss_mb(pids: Iterable[int]) -> float:
    """Memory; shared pages are divided among their processes."""
    kilobytes = 0
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes / 1024


def end(processes: Sequence[subprocess.Popen[bytes]], patience_s: float = 3) -> None:
    """Send SIGTERM to each, then SIGKILL to the remaining ones and their descendants."""
    family = _family(processes)
    for process in processes:
        if process.poll() is None:
            process.terminate()
    until = time.monotonic() + patience_s
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.01, until - time.monotonic()))
    _kill(processes, family | _family(processes))


def kill(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Send SIGKILL to each of them and to all their descendants."""
    _kill(processes, _family(processes))


def end_all() -> None:
    """Send SIGKILL to every process that the benchmark has started and not yet stopped."""
    for pid in tree(os.getpid())[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _reap({pid})


Family = set[tuple[int, str]]
"""Processes by pid and start time, because the pid of an ended process may have been reused."""


def _family(processes: Sequence[subprocess.Popen[bytes]]) -> Family:
    pids = {pid for process in processes if process.returncode is None for pid in tree(process.pid)}
    return {(pid, fields[_START]) for pid in pids if (fields := _stat(pid))}


def _kill(processes: Sequence[subprocess.Popen[bytes]], family: Family) -> None:
    for _ in range(3):  # a process may start another while it is being killed
        family |= _family([process for process in processes if process.poll() is None])
        for pid, start in family:
            if _is_there(pid, start):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.wait()
    _reap({pid for pid, _ in family} - {process.pid for process in processes})
    until = time.monotonic() + _GONE_S
    while any(_is_there(*each) and is_alive(each[0]) for each in family) and time.monotonic() < until:
        time.sleep(0.01)


def _is_there(pid: int, start: str) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[_START] == start


def _reap(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
