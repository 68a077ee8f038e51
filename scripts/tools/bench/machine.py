"""Where the bench runs: the machine, and the server that it measures on."""

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
"""What the peers' known figures were measured on."""


def machine() -> dict[str, Any]:
    """What figures depend on."""
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
    """The server's program and what it is: the one that is asked for, else redis-server 7.0, else the embedded one.

    It is said which; one that does not run ends the bench.
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
