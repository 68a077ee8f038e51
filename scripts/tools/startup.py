"""Measure the CPU time in which a program starts: imports, defines a task, enqueues its first job.

    python -m scripts.tools.startup [RUNS]

The programs take turns, 21 times by default, in an environment with the packages that schedq requires and no others.
The figures are medians of user plus system time. The exit code is 1 if one is above its limit. Run it by hand on an
idle machine: the ratios bear some load, the milliseconds do not.
"""

from __future__ import annotations

import compileall
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

from scripts.tools.package import ROOT
from tests.releases import BEFORE, unpack
from tests.servers import Server

TASK: Final = """
from schedq import Queue
queue = Queue("mail")
@queue.task
def send(address): pass
"""
PROGRAMS: Final = {
    "python": ("now", "pass"),
    "import redis": ("now", "import redis"),
    "import schedq": ("now", "import schedq"),
    "a Queue with a task": ("now", TASK),
    "the first enqueue": ("now", f"{TASK}send.enqueue('ada@example.org')"),
    f"the first enqueue, {BEFORE}": ("before", f"{TASK}send.enqueue('ada@example.org')"),
}
"""Name → the release it runs with, and its text."""
LIMITS: Final = {
    "import schedq": ("import redis", 1.15),
    "a Queue with a task": ("import redis", 1.35),
    "the first enqueue": (f"the first enqueue, {BEFORE}", 1.0),
}
"""Name → what it may take at most, as a multiple of another."""


def main(arguments: list[str]) -> int:
    """Measure, print the table, and return the exit code."""
    runs = int(arguments[0]) if arguments else 21
    with tempfile.TemporaryDirectory() as name, Server() as server:
        folder = Path(name)
        if not unpack(BEFORE, folder / "before"):
            sys.exit(f"startup: this clone has no commit {BEFORE}")
        (folder / "now").mkdir()
        (folder / "now" / "schedq").symlink_to(ROOT / "schedq")
        python = bare_python(folder / "bare")
        for part in (folder / "before", ROOT / "schedq"):  # also where the caller forbids to write bytecode
            compileall.compile_dir(part, quiet=2)
        spent: dict[str, list[float]] = {name: [] for name in PROGRAMS}
        for number in range(runs + 1):
            for name, (release, text) in PROGRAMS.items():
                settings = {"PYTHONPATH": release, "PYTHONPYCACHEPREFIX": "", "REDIS_URL": server.unix_url}
                used = cpu_ms([str(python), "-c", text], folder, settings)
                if number:  # the first run reads the files from the disk
                    spent[name].append(used)
    medians = {name: statistics.median(found) for name, found in spent.items()}
    print(f"median of {runs} runs, ms of CPU time; load {os.getloadavg()[0]:.1f}")
    for name, median in medians.items():
        print(f"{name:<28}{median:8.1f}{compared(name, medians)}")
    return int(any(median > limit(name, medians) for name, median in medians.items()))


def bare_python(folder: Path) -> Path:
    """The interpreter of a new environment with what schedq requires."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", str(ROOT)], stdin=subprocess.DEVNULL, check=True)
    return python


def cpu_ms(command: list[str], folder: Path, settings: dict[str, str]) -> float:
    """User and system time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=os.environ | settings, stdin=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def limit(name: str, medians: dict[str, float]) -> float:
    """The most that a program may take."""
    other, ratio = LIMITS.get(name, (name, 1.0))
    return medians[other] * ratio


def compared(name: str, medians: dict[str, float]) -> str:
    """How a program compares with the one that limits it."""
    if name not in LIMITS:
        return ""
    other, ratio = LIMITS[name]
    return f"   {medians[name] / medians[other]:.2f} of {other!r}, at most {ratio:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
