"""The minimum for any engine to start a job at once: a push by one process, a blocked pop by another.

Raw sockets without a client library: the time this machine takes to wake Redis and then the other process.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from scripts.tools.bench import processes
from scripts.tools.bench.arena import ROOT
from scripts.tools.bench.throughput import Figures
from scripts.tools.bench.timing import SEED, spread
from tests.servers import Server

_WARM: Final = 20
_PATIENCE_S: Final = 30


def measure(binary: Path | None, *, hops: int, low_s: float, high_s: float) -> Figures:
    """Time from before the push to after the pop, one at a time, `low_s` to `high_s` seconds apart."""
    with Server(binary, topology="single") as server:
        popper = subprocess.Popen(
            [sys.executable, "-m", __name__, str(server.port), str(_WARM + hops)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        try:
            _push(server.port, _WARM + hops, low_s, high_s)
            said, _ = popper.communicate(timeout=_PATIENCE_S)
        finally:
            processes.end([popper])
    return spread([float(line) for line in said.splitlines()[_WARM:]])


def _push(port: int, hops: int, low_s: float, high_s: float) -> None:
    draw = random.Random(SEED)
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.sendall(b"BLPOP ready 0\r\n")
        wire.recv(64)
        for hop in range(hops):
            word = f"{time.time():.9f}"
            wire.sendall(f"LPUSH hop {word}\r\n".encode())
            wire.recv(64)
            time.sleep(0.005 if hop < _WARM else draw.uniform(low_s, high_s))


def _pop(port: int, hops: int) -> None:
    """Write the duration of each hop in ms."""
    with socket.create_connection(("127.0.0.1", port)) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.sendall(b"LPUSH ready 1\r\n")
        wire.recv(64)
        for _ in range(hops):
            wire.sendall(b"BLPOP hop 0\r\n")
            reply = wire.recv(256)
            at = time.time()
            print((at - float(reply.split(b"\r\n")[4])) * 1000)


if __name__ == "__main__":
    _pop(int(sys.argv[1]), int(sys.argv[2]))
