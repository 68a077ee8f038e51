"""The job: one picture, in pure Python, which holds the interpreter lock all the time."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from schedq import ProcessDied, Queue, current_job

queue = Queue("mandelbrot")
MOST_STEPS = 80


@queue.task(isolate=True, timeout=120, max_attempts=3, discard_on=ProcessDied)
def render(path: Path, width: int, height: int) -> int:
    """Write a picture as a PNG file, and return its size in bytes. Reports the rows so far.

    A picture that ends its process would do so again, so `discard_on` makes this its last attempt.
    """
    job = current_job()
    rows = [[0] * width for _ in range(height)]
    for y, row in enumerate(rows):
        for x in range(width):
            row[x] = steps(3.0 * x / width - 2.2, 2.4 * y / height - 1.2)
        job.progress(y + 1, height, "rows")
    new = path.with_suffix(".new")
    new.write_bytes(png(rows))
    new.replace(path)  # in one step: no half picture if the process ends
    return path.stat().st_size


def steps(real: float, imaginary: float) -> int:
    """The steps until the point has left the circle, at most `MOST_STEPS`."""
    start = here = complex(real, imaginary)
    for step in range(MOST_STEPS):
        if abs(here) > 2:
            return step
        here = here * here + start
    return MOST_STEPS


def png(rows: list[list[int]]) -> bytes:
    """A PNG file of 8-bit grey pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + bytes(255 - 255 * value // MOST_STEPS for value in row) for row in rows)
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
