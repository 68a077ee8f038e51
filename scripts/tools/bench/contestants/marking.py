"""What every job does, whatever the engine: append 32 bytes to a file, which takes about 1 µs."""

import os
import struct
import time

RECORD = struct.Struct("<qddq")
"""Job number, reference instant, now (Unix seconds), pid."""

NAP_S = 60
"""How long the job of the crash row sleeps after its mark."""

BURN_S = 0.1
HANG_TIMEOUT_S = 2
"""The timeout of the job that hangs."""

_file = os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def mark(number: int, reference: float) -> None:
    """Record that job `number` has started; `reference` is the instant from which it is measured."""
    os.write(_file, RECORD.pack(number, reference, time.time(), os.getpid()))


def burn(number: int, reference: float) -> None:
    """Compute in pure Python for a tenth of a second of the processor's time, and then mark."""
    until = time.thread_time() + BURN_S
    while time.thread_time() < until:
        for _ in range(1000):
            pass
    mark(number, reference)


def hang(number: int, reference: float) -> None:
    """Mark, and compute forever."""
    mark(number, reference)
    while True:
        pass


def marked() -> int:
    """Number of jobs started so far."""
    return os.fstat(_file).st_size // RECORD.size
