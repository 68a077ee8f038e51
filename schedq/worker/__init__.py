"""The worker: claims jobs, runs them, says how they ended."""

from schedq.worker.worker import Worker

__all__ = ["Worker"]
