"""The payload level: no tasks and no worker, only a queue and your own loop.

The other end can be a program in any language that can talk to Redis.
"""

from __future__ import annotations

from schedq import Queue


def produce(queue: Queue) -> None:
    """Enqueue two messages: one now, one in a second."""
    queue.enqueue({"kind": "greeting", "to": "ada"})
    queue.enqueue({"kind": "greeting", "to": "grace"}, delay=1)


def consume(queue: Queue) -> None:
    """Process jobs until none arrives for four seconds."""
    while job := queue.claim(timeout_ms=4000):
        try:
            print(f"hello {job.payload['to']} (attempt {job.attempts})")
        except Exception as error:  # noqa: BLE001 - whatever it was, the job comes back, or has failed for good
            queue.fail(job, repr(error))
        else:
            # False: this took longer than the lease, and the job now belongs to another worker. Long jobs call renew().
            queue.complete(job, {"said": "hello"})


if __name__ == "__main__":
    with Queue("greetings", visibility_ms=30_000) as greetings:
        produce(greetings)
        consume(greetings)
        print(greetings.stats()["completed_total"], "done")
