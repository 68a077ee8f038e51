"""Say which tests have just failed, and whether they are few enough to be looked at once more, alone.

    python scripts/second_look.py MOST

The exit code is 0 if 1 to MOST failed; of more, the machine's load is not the cause.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FAILED = Path(__file__).resolve().parent.parent / ".venv" / "pytest" / "v" / "cache" / "lastfailed"
"""Written by pytest, see `cache_dir` in pyproject.toml."""


def main(most: int) -> int:
    """Print, and answer the exit code."""
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 1 <= len(failed) <= most:
        return 1
    print("\nscripts/test: failed beside others, and now run alone; unsteady, if they pass:")
    print(*(f"  {name}" for name in failed), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
