"""What applications use: queues, tasks, jobs, schedules, the inspector."""

from schedq.queue.queue import AsyncQueue, Queue

__all__ = ["AsyncQueue", "Queue"]
