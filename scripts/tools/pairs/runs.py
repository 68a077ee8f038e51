"""One run in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import click

from tests.servers import Server

FOLDER: Final = Path(__file__).parent
_PATIENCE_S: Final = 300


def run(program: str, row: str, package: Path, server: Server, jobs: int | None) -> dict[str, Any]:
    """What a run of a row prints, with the package in this folder.

    Raises:
        ClickException: the run failed.
    """
    environment = {**os.environ, "PYTHONPATH": str(package), "PAIRS_REDIS": server.url, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-P", str(FOLDER / program), row, *([] if jobs is None else [str(jobs)])],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
    )
    if done.returncode:
        raise click.ClickException(f"row {row} failed with {package}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
