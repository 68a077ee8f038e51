"""Live events, and gaps where some may have been missed."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from schedq import Queue
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import Server
from tests.waiting import until


def followed(queue: Handle, timeout: float | None = None) -> Generator[Any, None, None]:
    """The events that either client yields."""
    found: Any = queue.queue.inspector.follow(timeout)
    if isinstance(queue.queue, Queue):
        yield from found
        return
    try:
        while True:
            yield queue.run(anext(found))
    except StopAsyncIteration:
        return
    finally:
        queue.run(found.aclose())


def listeners(queue: Handle) -> int:
    with queue.server.client() as client:  # the server may have been restarted since the last look
        _, count = client.execute_command("PUBSUB", "NUMSUB", queue.keys.events)
    return int(count)


def test_it_ends_after_a_time_of_silence(queue: Handle):
    assert list(followed(queue, 0.05)) == []


def test_a_lost_connection_is_shown_once_and_events_continue(make_queue: MakeQueue):
    with Server() as server:
        queue = make_queue(at=server)
        events = followed(queue)
        heard = queue.start_iteration(events)
        until(lambda: listeners(queue) == 1)
        job_id = queue.enqueue(1)
        queue.complete(queue.claim(0))
        assert heard.result(60)["id"] == job_id

        heard = queue.start_iteration(events)
        for _ in range(2):
            server.kill()
            server.start()
        assert heard.result(60) is None

        heard = queue.start_iteration(events)
        until(lambda: listeners(queue) == 1)
        queue.cancel(queue.enqueue(2))
        assert heard.result(60)["status"] == "cancelled"
        events.close()
        queue.forget()
        queue.close()


def test_events_alone_say_nothing_of_a_loss(make_queue: MakeQueue):
    with Server() as server:
        queue = make_queue(at=server)
        events = queue.events()
        heard = queue.start_iteration(events)
        until(lambda: listeners(queue) == 1)
        server.kill()
        server.start()
        until(lambda: listeners(queue) == 1)

        queue.cancel(queue.enqueue(2))

        assert heard.result(60)["status"] == "cancelled"
        events.close()
        queue.forget()
        queue.close()
