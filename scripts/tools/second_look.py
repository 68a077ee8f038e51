"""Rerun the few tests that failed in the parallel run, one at a time, and report which of them are flaky.

    python -m scripts.tools.second_look MOST [arguments for pytest]

The suite starts real processes and loads the whole machine. A test that fails in the parallel run and passes alone is
flaky: it fails the run unless tests/flaky.toml lists it. The exit code is 0 only if all failed tests pass alone and
are listed. More than MOST failures are not caused by load, so they are not repeated.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".venv" / "pytest"
"""pytest's cache folder, as set in pyproject.toml; `-o cache_dir=FOLDER` overrides it."""
KNOWN = ROOT / "tests" / "flaky.toml"
MOST_DAYS = 60


@dataclass(frozen=True, slots=True)
class FlakyTest:
    """A test that is known to fail occasionally in the parallel run.

    Attributes:
        id: as pytest prints it; without the part in brackets it covers all cases of the test.
        since: date of the entry; it expires after MOST_DAYS.
        reason: why the test fails, and why it has not been fixed yet.
    """

    id: str
    since: dt.date
    reason: str

    def is_current(self, today: dt.date) -> bool:
        """Whether the entry still excuses the test."""
        return dt.timedelta(0) <= today - self.since <= dt.timedelta(days=MOST_DAYS)


def main(most: int, arguments: Sequence[str]) -> int:
    """Rerun the failed tests, and return the exit code."""
    folder = cache(arguments)
    failed = last_failed(folder)
    if not 1 <= len(failed) <= most:
        return 1
    print("\nscripts/test: these tests failed in the parallel run; rerunning them one at a time:")
    print(*(f"  {name}" for name in failed), sep="\n", flush=True)
    code = alone(arguments)
    passed = [name for name in failed if name not in last_failed(folder)]
    return verdict(passed, code, known(), dt.datetime.now(tz=dt.UTC).date())


def verdict(passed: Iterable[str], code: int, listed: Iterable[FlakyTest], today: dt.date) -> int:
    """Report for each test that passed alone whether it is a known flaky test; return the exit code of the run."""
    current = {entry.id: entry for entry in listed if entry.is_current(today)}
    for name in passed:
        entry = current.get(name) or current.get(name.partition("[")[0])
        if entry is None:
            code = code or 1
            advice = f"fails in the parallel run and passes alone: fix it, or list it in {KNOWN.name}"
            print(f"scripts/test: flaky: {name} {advice}")
        else:
            print(f"scripts/test: flaky: {name}, known since {entry.since}: {entry.reason}")
    return code


def cache(arguments: Sequence[str]) -> Path:
    """The cache folder of a run with these arguments."""
    said = [argument.removeprefix("cache_dir=") for argument in arguments if argument.startswith("cache_dir=")]
    return Path(said[-1]) if said else CACHE


def last_failed(folder: Path) -> list[str]:
    """The tests that failed in the last run."""
    file = folder / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


def known() -> list[FlakyTest]:
    """The entries of tests/flaky.toml."""
    return [FlakyTest(**entry) for entry in tomllib.loads(KNOWN.read_text()).get("flaky", [])]


def alone(arguments: Sequence[str]) -> int:
    """Rerun the failed tests one at a time on the otherwise idle machine; returns pytest's exit code."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        *arguments,
        "-n",
        "0",
        "--last-failed",
        "--last-failed-no-failures",
        "none",
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
