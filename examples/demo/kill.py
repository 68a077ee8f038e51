"""Kills a worker with SIGKILL in the middle of a job."""

from __future__ import annotations

import signal
from typing import Final

from demo.checks import Kill
from demo.sandbox import Sandbox

MIDDLE_MS: Final = 400  # of a job that takes two to three seconds


def kill_worker_of(job_id: str, sandbox: Sandbox) -> Kill | None:
    """Kill the job's worker once it has run for a while; None if it has not yet, or if the job has ended."""
    record, now_ms = sandbox.queue.get_job(job_id), sandbox.now_ms()
    if record is None or record.status != "processing" or now_ms - record.started_at_ms < MIDDLE_MS:
        return None
    worker = next((child for child in sandbox.workers if child.owns(record.worker)), None)
    if worker is None:
        return None
    # Stop it first, so that it can't finish the job between our last look and the kill.
    worker.process.send_signal(signal.SIGSTOP)
    held = sandbox.queue.get_job(job_id)
    if held is None or (held.status, held.worker) != ("processing", record.worker):
        worker.process.send_signal(signal.SIGCONT)
        return None
    worker.process.kill()
    worker.process.wait()
    return Kill(job_id, record.worker, sandbox.now_ms())
