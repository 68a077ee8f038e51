"""The application of `scripts/chaos --isolated`: good tasks, and some that end or block the process they run in."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from schedq import Fixed, Queue, current_job

queue = Queue(
    "isolated",
    redis=os.environ.get("CHAOS_REDIS"),
    visibility_ms=4000,
    max_attempts=10,
    backoff=Fixed(0.2),
    completed_history=100_000,
    failed_history=100_000,
    completed_ttl=7200,
    failed_ttl=7200,
)


def noted(event: str) -> None:
    """Append an event of the current job to the record: with one write, because several processes share the file."""
    job = current_job()
    line = f"{event} {time.monotonic():.6f} {job.id} {os.getpid()} {os.getppid()}\n"
    with (Path(os.environ["CHAOS_FOLDER"]) / "record").open("ab", buffering=0) as file:
        file.write(line.encode())


@queue.task(isolate=True)
def good(number: int) -> int:
    """Computes for some hundredths of a second, and reports progress."""
    noted("start")
    data = str(number).encode()
    for turn in range(10):
        data = hashlib.pbkdf2_hmac("sha256", data, b"salt", 5000)
        current_job().progress(turn + 1, 10)
    noted("end")
    return number * 2


@queue.task(isolate=True, max_attempts=2)
def crash() -> None:
    """A segmentation fault, of a process that has started another one."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    os.kill(os.getpid(), signal.SIGSEGV)


@queue.task(isolate=True, max_attempts=2)
def leave() -> None:
    """Ends its process."""
    os._exit(7)


@queue.task(isolate=True, max_attempts=2)
def hog() -> None:
    """Uses more and more memory."""
    held = []
    while True:
        held.append(bytearray(os.urandom(1)) * (8 * 1024**2))
        time.sleep(0.02)


@queue.task(isolate=True, max_attempts=2, timeout=1)
def loop_in_c() -> None:
    """Holds the interpreter lock forever."""
    re.match(r"(a+)+$", "a" * 60 + "b")


@queue.task(isolate=True, max_attempts=2, timeout=1)
def ignore() -> None:
    """Ignores SIGTERM."""
    while True:
        try:
            time.sleep(600)
        except BaseException:
            continue


BAD: Final = {
    "crash": "ended by signal 11 (SIGSEGV",
    "leave": "ended with exit code 7",
    "hog": "used more memory than the memory limit",
    "loop_in_c": "timed out after 1 s",
    "ignore": "timed out after 1 s",
}
"""Task → what its error says."""
