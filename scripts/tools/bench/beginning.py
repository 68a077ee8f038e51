"""The beginning of a run: signals, the server, empty results, and the environments of the contestants."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import click

from scripts.tools.bench import processes
from scripts.tools.bench.entries import SCHEDQ, Contestant
from scripts.tools.bench.environments import Environments, MissingEnvironmentError
from scripts.tools.bench.machine import find_server, machine
from scripts.tools.bench.timing import SEED


def begin(server: Path | None, folder: Path, *, quick: bool) -> tuple[Environments, Path, dict[str, Any]]:
    """Prepare this process; returns the environments, the server's executable, and empty results."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by default in a shell script's background
    processes.adopt_orphans()
    binary, server_name = find_server(server, say)
    return Environments(folder.absolute(), say), binary, _blank() | {"server": server_name, "quick": quick}


def _blank() -> dict[str, Any]:
    """Empty results."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine(),
        "seed": SEED,
        "versions": {},
        "figures": {},
        "left_out": [],
        "troubles": [],
    }


def ready(environments: Environments, contestants: Iterable[Contestant], found: dict[str, Any]) -> list[Contestant]:
    """The contestants whose environment could be created."""
    made = []
    for entry in contestants:
        try:
            environments.make(entry)
            found["versions"][entry.name] = environments.versions(entry)
            made.append(entry)
        except MissingEnvironmentError as error:
            if entry.name == SCHEDQ.name:
                raise click.ClickException(f"{entry.name} can't be measured: {error}") from error
            found["left_out"].append(f"{entry.name} is skipped: {error}")
            say(found["left_out"][-1])
    return made


def say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


def _end(*_: object) -> NoReturn:
    sys.exit(143)
