"""The worker: claims jobs, runs them, and records how they ended."""

from schedq.worker.worker import Worker

__all__ = ["Worker"]
