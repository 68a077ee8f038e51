"""The job: the checksum of one file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from schedq import Discard, Queue, current_job

queue = Queue("checksums")
BLOCK = 1 << 20


@queue.task(max_attempts=3, timeout=3600)
def checksum(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal digits. Reports the bytes read so far.

    Worker and script must see the same files: send a job the name of its data, not the data.
    """
    job, digest, done = current_job(), hashlib.sha256(), 0
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                if job.is_cancelled:  # a thread can't be interrupted, so the job checks
                    raise Discard("stopped")
                digest.update(block)
                done += len(block)
                job.progress(done, max(size, done), path.name)
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise Discard(f"{path}: {error.strerror}") from error  # another attempt would not help
    return digest.hexdigest()
