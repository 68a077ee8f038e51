"""Measure how long 20 tests with the pytest plugin take, one after the other, after the server has started.

    scripts/kit [RUNS]

Each of the runs, 5 by default, is a process of its own. The figures are seconds. The exit code is 1 if the median is
above the limit. Run it by hand on an idle machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from scripts.tools.package import ROOT

LIMIT_S: Final = 5.0
TESTS: Final = 20


def main(arguments: list[str]) -> int:
    """Measure, print the figures, and return the exit code."""
    runs = int(arguments[0]) if arguments else 5
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
        found = [seconds(Path(name)) for _ in range(runs)]
    median = statistics.median(tests for tests, _ in found)
    spread = f"{min(tests for tests, _ in found):.2f} to {max(tests for tests, _ in found):.2f}"
    whole = statistics.median(process for _, process in found)
    print(f"{TESTS} tests: {median:.2f} s, the median of {runs} runs ({spread}), at most {LIMIT_S:g}")
    print(f"with the start of Python, of pytest and of the server: {whole:.2f} s; load {os.getloadavg()[0]:.1f}")
    return int(median > LIMIT_S)


def seconds(folder: Path) -> tuple[float, float]:
    """How long the tests took after the server had started, and the whole process."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("SCHEDQ_", "REDIS_", "PYTEST"))}
    took, began = folder / "took", time.perf_counter()
    tests = Path(__file__).with_name("test_shop.py")
    command = [sys.executable, "-m", "pytest", "-q", "-c", "pytest.ini", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=plain | {"PYTHONPATH": str(ROOT), "TOOK": str(took)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    whole = time.perf_counter() - began
    if done.returncode or f"{TESTS} passed" not in done.stdout:
        sys.exit(done.stdout + done.stderr)
    return float(took.read_text()), whole


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
