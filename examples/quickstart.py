"""schedq in ten lines. `schedq worker quickstart:queue` runs the jobs, `python quickstart.py` enqueues one."""

from schedq import Queue

queue = Queue("quickstart")


@queue.task
def add(a: int, b: int) -> int:
    """Return a + b; it runs in whichever worker process claims the job."""
    return a + b


if __name__ == "__main__":
    now = add.enqueue(1, 2)
    later = add.options(delay=2).enqueue(3, b=4)
    print(now.result(timeout=30), later.result(timeout=30))
