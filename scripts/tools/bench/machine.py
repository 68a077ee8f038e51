"""The machine that runs the benchmark, and the server that it measures on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from schedq.embedded import server_binary
from schedq.errors import StoreUnavailable
from scripts.tools.servers import SERVERS, MissingServerError, find

ROOT: Final = Path(__file__).parents[3]
_WANTED: Final = "redis-7.0"
"""The version on which the peers' known figures were measured."""


def machine() -> dict[str, Any]:
    """The properties of the machine that affect the figures."""
    info = Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.+)", info)
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        system = platform.system()
    return {
        "cores": os.cpu_count() or 1,
        "cpu": " ".join(name[1].split()) if name else platform.machine(),
        "memory_gib": round(int(memory[1]) / 2**20) if memory else 0,
        "system": system,
        "python": platform.python_version(),
    }


def find_server(given: Path | None, say: Callable[[str], None]) -> tuple[Path, str]:
    """The server's executable and name: the given one, else redis-server 7.0, else the embedded one.

    The choice is printed. A server that does not run ends the benchmark.
    """
    binary = given or _found(say)
    name = _named(binary)
    say(f"server: {name} ({binary})")
    return binary, name


def _found(say: Callable[[str], None]) -> Path:
    try:
        return find(SERVERS[_WANTED]).binary
    except MissingServerError as error:
        say(f"{error}; measuring on the embedded server instead")
    try:
        return server_binary()
    except StoreUnavailable as error:
        sys.exit(f"scripts/bench: {error}")


def _named(binary: Path) -> str:
    try:
        said = subprocess.run([str(binary), "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"scripts/bench: the server {binary} does not run here: {error}")
    found = re.search(r"(\w+) server v=([\d.]+)", said)
    return f"{found[1].lower()}-server {found[2]}" if found else said.strip()
