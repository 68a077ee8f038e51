"""The tasks of schedq that run in child processes. A worker without such tasks starts no children."""

import marking
from with_schedq import queue


@queue.task(isolate=True)
def mark_isolated(number: int, reference: float) -> None:
    marking.mark(number, reference)


@queue.task(isolate=True)
def burn(number: int, reference: float) -> None:
    marking.burn(number, reference)


@queue.task(isolate=True, timeout=marking.HANG_TIMEOUT_S, max_attempts=1)
def hang(number: int, reference: float) -> None:
    marking.hang(number, reference)


TASKS = {"isolated": mark_isolated, "burn": burn, "hang": hang}
