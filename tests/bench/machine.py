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

ROOT: Final = Path(__file__).parents[2]
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
    """The server's program and what it is: the one that is asked for, else redis-server 7.0, else the embedded one."""
    if given:
        return given, _named(given)
    sys.path.append(str(ROOT / "scripts"))
    from servers import SERVERS, MissingServerError, find

    try:
        binary = find(SERVERS[_WANTED]).binary
    except MissingServerError as error:
        binary = server_binary()
        say(f"{error}; measuring on the embedded server instead")
    return binary, _named(binary)


def _named(binary: Path) -> str:
    said = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\w+) server v=([\d.]+)", said)
    return f"{found[1].lower()}-server {found[2]}" if found else said.strip()
