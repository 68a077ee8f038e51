"""The same request sent twice because a reply was lost: nothing more changes, and the caller gets the first result."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from schedq import Discard, NewJob, Queue, StoreUnavailable
from schedq.transitions import cancel, requeue, reschedule, scripts
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.proxy import Proxy
from tests.servers import Server

Verb = Callable[[Handle], Any]


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def queue(make_queue: MakeQueue, proxy: Proxy) -> Handle:
    """A queue whose requests go through the proxy; the server knows all scripts already."""
    queue = make_queue(url=proxy.url)
    for name in ("enqueue", "claim", "recover", "settle", "renew", "cancel", "reschedule", "requeue", "purge", "pause"):
        queue.redis.script_load(scripts.load(name).source)
    return queue


def lose(proxy: Proxy, script: str, way: str = "reply") -> None:
    getattr(proxy, f"lose_{way}")(scripts.load(script).sha)


WAYS = pytest.mark.parametrize("way", ["reply", "request"])


@WAYS
def test_an_enqueued_job_is_there_once(queue: Handle, proxy: Proxy, way: str):
    lose(proxy, "enqueue", way)

    job_id = queue.enqueue({"n": 1})

    assert proxy.faults == 1
    assert queue.places() == {"pending": [job_id]}
    assert queue.state().totals() == {"enqueued_total": 1}


@WAYS
@pytest.mark.parametrize("options", [{}, {"delay": 60}], ids=["now", "later"])
def test_many_enqueued_jobs_are_there_once_and_in_order(queue: Handle, proxy: Proxy, way: str, options: Any):
    lose(proxy, "enqueue", way)

    ids = queue.enqueue_many(range(2500), **options)

    assert proxy.faults == 1
    assert queue.places() == {"delayed" if options else "pending": ids}
    assert queue.state().totals() == {"enqueued_total": 2500}


@WAYS
def test_a_repeated_claim_gets_only_what_its_first_sending_took(queue: Handle, proxy: Proxy, way: str):
    first, second = queue.enqueue_many([1, 2])
    lose(proxy, "claim", way)

    job = queue.claim(0)

    assert proxy.faults == 1
    assert (job.id, job.payload, job.attempts) == (first, 1, 1)
    assert queue.places() == {"processing": [first], "pending": [second]}
    assert queue.complete(job)


def test_a_repeated_claim_finds_its_jobs_even_below_many_later_claims(
    queue: Handle, proxy: Proxy, make_queue: MakeQueue
):
    """`processing` is searched newest first, page by page."""
    first, *rest = queue.enqueue_many(range(451))
    proxy.hold_reply(scripts.load("claim").sha)
    future = queue.start("claim", 0)
    other = make_queue(queue.name)
    while queue.redis.llen(queue.keys.pending) == 451:
        time.sleep(0.002)
    while other.claim(0):
        pass
    proxy.cut()
    proxy.let_go()

    job = future.result(60)

    assert job.id == first
    assert queue.state().ids("processing") == [first, *rest]


def test_a_waiting_claim_survives_the_loss_of_its_connection(queue: Handle, proxy: Proxy, make_queue: MakeQueue):
    producer = make_queue(queue.name)
    future = queue.start("claim", 60_000)
    time.sleep(0.1)

    proxy.cut()
    job_id = producer.enqueue(1)

    assert future.result(60).id == job_id


ENDS: dict[str, tuple[Verb, str]] = {
    "complete": (lambda queue: queue.complete(queue.claim(0), "done"), "completed"),
    "retry": (lambda queue: queue.fail(queue.claim(0)), "delayed"),
    "fail": (lambda queue: queue.fail(queue.claim(0), Discard()), "failed"),
    "snooze": (lambda queue: queue.snooze(queue.claim(0), 60), "delayed"),
    "release": (lambda queue: queue.release(queue.claim(0)), "pending"),
}


@WAYS
@pytest.mark.parametrize("end", ENDS)
def test_an_attempt_ends_once_and_the_repetition_gets_true(queue: Handle, proxy: Proxy, way: str, end: str):
    verb, place = ENDS[end]
    job_id = queue.enqueue(1)
    lose(proxy, "settle", way)

    assert verb(queue) is True

    assert proxy.faults == 1
    assert queue.places() == {place: [job_id]}
    assert len(queue.get_job(job_id).history) == 1


def waiting(queue: Handle) -> str:
    job_id: str = queue.enqueue(1)
    return job_id


def delayed(queue: Handle) -> str:
    job_id: str = queue.enqueue(1, delay=60)
    return job_id


def running(queue: Handle) -> str:
    job_id = waiting(queue)
    queue.claim(0)
    return job_id


def failed(queue: Handle) -> str:
    job_id = waiting(queue)
    queue.fail(queue.claim(0), Discard())
    return job_id


@WAYS
@pytest.mark.parametrize(
    ("script", "made", "verb", "answer", "place"),
    [
        ("cancel", waiting, "cancel", "cancelled", "cancelled"),
        ("cancel", delayed, "cancel", "cancelled", "cancelled"),
        ("cancel", running, "cancel", "asked", "processing"),
        ("reschedule", delayed, "run_now", True, "pending"),
        ("requeue", failed, "requeue", True, "pending"),
    ],
)
def test_a_repeated_request_of_an_operator_gets_the_first_result(
    queue: Handle,
    proxy: Proxy,
    way: str,
    script: str,
    made: Callable[[Handle], str],
    verb: str,
    answer: Any,
    place: str,
):
    job_id = made(queue)
    lose(proxy, script, way)

    assert getattr(queue, verb)(job_id) == answer

    assert proxy.faults == 1
    assert queue.places() == {place: [job_id]}


def test_failed_jobs_are_requeued_once_and_counted(queue: Handle, proxy: Proxy):
    ids = [failed(queue) for _ in range(5)]
    lose(proxy, "requeue")

    assert queue.requeue_failed() == 5

    assert queue.places() == {"pending": ids}
    assert queue.stats()["requeued_total"] == 5


@pytest.mark.parametrize(
    ("made", "request_of"),
    [
        (waiting, lambda queue, job_id: cancel.cancel(queue.settings, job_id)),
        (running, lambda queue, job_id: cancel.cancel(queue.settings, job_id)),
        (delayed, lambda queue, job_id: reschedule.reschedule(queue.settings, job_id, "in", 5000)),
        (failed, lambda queue, job_id: next(requeue.requeue(queue.settings, job_id))[0]),
    ],
)
def test_the_very_same_request_again_changes_not_a_byte(queue: Handle, made: Any, request_of: Any):
    request = request_of(queue, made(queue))
    first = queue._ask(request)
    before = queue.dump()

    assert queue._ask(request) == first
    assert queue.dump() == before


def test_another_request_of_the_same_kind_is_a_new_one(queue: Handle):
    job_id = waiting(queue)
    assert queue.cancel(job_id) == "cancelled"
    assert queue.cancel(job_id) == "no"
    assert queue.requeue(job_id) is True
    assert queue.requeue(job_id) is False
    assert queue.cancel(job_id) == "cancelled"

    assert queue.places() == {"cancelled": [job_id]}


@WAYS
def test_a_pause_and_a_purge_are_done_whatever_is_lost(queue: Handle, proxy: Proxy, way: str):
    queue.enqueue_many(range(700))
    lose(proxy, "pause", way)
    queue.pause()
    lose(proxy, "purge", way)
    queue.purge()

    assert proxy.faults == 2
    assert queue.places() == {}
    assert queue.stats()["paused_since_ms"]


@pytest.mark.parametrize("way", ["reply", "request"])
def test_without_retries_the_error_says_that_the_result_is_unknown(make_queue: MakeQueue, proxy: Proxy, way: str):
    queue = make_queue(url=proxy.url, retry_for=0)
    queue.enqueue("known")
    lose(proxy, "enqueue", way)

    with pytest.raises(StoreUnavailable, match="enqueue"):
        queue.enqueue("unknown", job_id="mine")

    assert queue.enqueue("unknown", job_id="mine") == "mine"
    assert len(queue.state().ids("pending")) == 2


@pytest.mark.breaks("totals", because="no history is kept")
def test_a_job_that_has_run_and_is_forgotten_is_not_made_again(make_queue: MakeQueue, proxy: Proxy):
    """Its record was deleted before its producer noticed that the reply was lost."""
    settings = {"min_keep": 0.4, "retry_for": 0.4, "completed_history": 0}
    queue = make_queue(url=proxy.url, **settings)
    worker = make_queue(queue.name, **settings)
    worker.redis.script_load(scripts.load("enqueue").source)
    proxy.hold_reply(scripts.load("enqueue").sha)
    future = queue.start("enqueue", {"n": 1})
    job = worker.claim(60_000)
    worker.complete(job)
    time.sleep(0.5)
    worker.enqueue("other")
    worker.complete(worker.claim(0))
    assert worker.get_job(job.id) is None, "its record is gone"

    proxy.cut()
    proxy.let_go()

    with pytest.raises(StoreUnavailable, match="enqueue"):
        future.result(60)
    assert queue.state().ids("pending") == []
    assert queue.stats()["enqueued_total"] == 2


# -- a reply that never comes


@WAYS
def test_a_job_that_may_be_stored_is_named_and_can_be_stored_once(
    queue: Handle, proxy: Proxy, make_queue: MakeQueue, way: str
):
    impatient = make_queue(queue.queue.name, url=proxy.url, retry_for=0)
    lose(proxy, "enqueue", way)

    with pytest.raises(StoreUnavailable) as unknown:
        impatient.enqueue({"n": 1})

    job_id = unknown.value.job_id
    assert unknown.value.job_ids == (job_id,)
    assert impatient.enqueue({"n": 1}, job_id=job_id) == job_id
    assert queue.places() == {"pending": [job_id]}
    assert queue.state().totals() == {"enqueued_total": 1}


def test_a_call_of_a_task_that_may_be_stored_is_named(queue: Handle, proxy: Proxy, make_queue: MakeQueue):
    impatient = make_queue(queue.queue.name, url=proxy.url, retry_for=0)
    task = impatient.task(name="send")(lambda: None)
    enqueue = task.enqueue if isinstance(impatient.queue, Queue) else lambda: impatient.run(task.aenqueue())
    lose(proxy, "enqueue")

    with pytest.raises(StoreUnavailable) as unknown:
        enqueue()

    assert queue.places() == {"pending": [unknown.value.job_id]}


@WAYS
def test_of_many_jobs_those_that_are_not_known_to_be_stored_are_named(
    queue: Handle, proxy: Proxy, make_queue: MakeQueue, way: str
):
    impatient = make_queue(queue.queue.name, url=proxy.url, retry_for=0)
    lose(proxy, "enqueue", way)

    with pytest.raises(StoreUnavailable) as unknown:
        impatient.enqueue_many(range(1200))

    ids = unknown.value.job_ids
    assert len(ids) == len(set(ids)) == 1200
    assert unknown.value.job_id == ""
    assert pickle.loads(pickle.dumps(unknown.value)).job_ids == ids
    impatient.enqueue_many([NewJob(number, job_id=job_id) for number, job_id in enumerate(ids)])
    assert sorted(queue.state().ids("pending")) == sorted(ids)


def test_a_call_that_stores_nothing_names_no_job(queue: Handle, proxy: Proxy, make_queue: MakeQueue):
    impatient = make_queue(queue.queue.name, url=proxy.url, retry_for=0)
    job_id = queue.enqueue(1)
    lose(proxy, "cancel")

    with pytest.raises(StoreUnavailable) as unknown:
        impatient.cancel(job_id)

    assert (unknown.value.job_id, unknown.value.job_ids) == ("", ())
