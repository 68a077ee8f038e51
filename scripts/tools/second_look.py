"""Run the few tests that failed beside others once more, alone, and say what that means.

    python -m scripts.tools.second_look MOST [pytest's arguments]

The suite starts real processes and so fills the machine. A test that fails beside others and passes alone is unsteady:
it fails the run, unless tests/unsteady.toml knows it. The exit code is 0 only if all that failed pass alone and are
known; of more failures than MOST the machine's load is not the cause, and they are not looked at again.
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
"""Where pytest writes down which tests failed, as pyproject.toml says; `-o cache_dir=FOLDER` names another folder."""
KNOWN = ROOT / "tests" / "unsteady.toml"
MOST_DAYS = 60


@dataclass(frozen=True, slots=True)
class Unsteady:
    """A test that is known to fail beside others now and then.

    Attributes:
        id: as pytest prints it; without the part in brackets it stands for all cases of the test.
        since: the day on which it was written down; after MOST_DAYS it excuses nothing.
        reason: why it fails, and why that is not mended yet.
    """

    id: str
    since: dt.date
    reason: str

    def is_current(self, today: dt.date) -> bool:
        """Whether it still excuses the test."""
        return dt.timedelta(0) <= today - self.since <= dt.timedelta(days=MOST_DAYS)


def main(most: int, arguments: Sequence[str]) -> int:
    """Look again, and return the exit code."""
    folder = cache(arguments)
    failed = last_failed(folder)
    if not 1 <= len(failed) <= most:
        return 1
    print("\nscripts/test: failed beside others, and now run alone:")
    print(*(f"  {name}" for name in failed), sep="\n", flush=True)
    code = alone(arguments)
    passed = [name for name in failed if name not in last_failed(folder)]
    return verdict(passed, code, known(), dt.datetime.now(tz=dt.UTC).date())


def verdict(passed: Iterable[str], code: int, listed: Iterable[Unsteady], today: dt.date) -> int:
    """Say of each test that passed alone whether it may be unsteady; return the exit code of the run."""
    current = {entry.id: entry for entry in listed if entry.is_current(today)}
    for name in passed:
        entry = current.get(name) or current.get(name.partition("[")[0])
        if entry is None:
            code = code or 1
            told = f"fails beside others and passes alone: mend it, or list it in {KNOWN.name}"
            print(f"scripts/test: unsteady: {name} {told}")
        else:
            print(f"scripts/test: unsteady: {name}, known since {entry.since}: {entry.reason}")
    return code


def cache(arguments: Sequence[str]) -> Path:
    """The folder in which a run with these arguments has written down what failed."""
    said = [argument.removeprefix("cache_dir=") for argument in arguments if argument.startswith("cache_dir=")]
    return Path(said[-1]) if said else CACHE


def last_failed(folder: Path) -> list[str]:
    """The tests that failed when they were run last."""
    file = folder / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


def known() -> list[Unsteady]:
    """The list of unsteady tests."""
    return [Unsteady(**entry) for entry in tomllib.loads(KNOWN.read_text()).get("unsteady", [])]


def alone(arguments: Sequence[str]) -> int:
    """Run what failed once more, one test after the other, with the machine to themselves; pytest's exit code."""
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
