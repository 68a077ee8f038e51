"""Health: that a worker gets on, not that its process lives."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import pytest

from schedq import Queue, UsageError
from schedq.monitor import health as rules
from schedq.monitor.children import Children, Reply, fetch
from schedq.monitor.health import Health, Watch, pages
from schedq.monitor.web import TEXT, Answer, Web
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import Server
from tests.worker.crew import Crew, Post, until

LIMIT_S = 0.5


def reason(watch: Watch, text: str) -> str:
    """The reason that says so, once there is one. (A machine that stands still gives others meanwhile.)"""

    def found() -> list[str]:
        health = watch.health()
        return [word for word in (*health.ails, *health.waits) if text in word]

    return until(found)[0]


def begin(crew: Crew, watch: Watch, *queues: Any, **options: Any) -> Post:
    """A watched worker that is well."""
    post = crew.start(*queues, observers=[watch], **options)
    watch.over(post.worker)
    until(lambda: watch.health().is_well)
    return post


@pytest.fixture
def watch() -> Watch:
    return Watch(LIMIT_S)


def test_a_worker_that_has_not_begun_is_not_well(watch: Watch) -> None:
    assert watch.health() == Health(waits=("the worker has not begun yet",))
    assert pages(watch.health)["/healthz"]("").code == 503
    assert pages(watch.health)["/livez"]("").code == 200


def test_an_idle_worker_is_well_and_its_pump_goes_round(queue: Handle, crew: Crew, watch: Watch) -> None:
    queue.task(lambda: None, name="nothing")
    begin(crew, watch, queue)
    until(lambda: watch.health().facts["queues"][queue.name]["beat_s_ago"] is not None)
    first = watch._rounds[queue.name]

    until(lambda: watch._rounds[queue.name] > first)

    answer = pages(watch.health)["/healthz"]("")
    told = json.loads(answer.body)
    assert (answer.code, told["status"], told["reasons"]) == (200, "ok", [])
    assert told["queues"][queue.name]["in_flight"] == 0
    assert told["queues"][queue.name]["claim_s_ago"] >= 0


def test_a_blocked_event_loop_is_seen_while_it_is_blocked(queue: Handle, crew: Crew, watch: Watch) -> None:
    free = threading.Event()

    @queue.task
    async def block() -> None:
        assert free.wait(120)

    begin(crew, watch, queue)
    try:
        job = block.enqueue()
        reason(watch, "the event loop has been blocked for ")
        assert pages(watch.health)["/livez"]("").code == 503
    finally:
        free.set()
    job.result(60)

    until(lambda: watch.health().is_well)


def test_a_redis_that_is_away_is_a_reason_that_no_new_process_would_mend(crew: Crew, watch: Watch) -> None:
    with Server(topology="single") as server, Queue("away", redis=server.url) as queue:
        queue.task(name="nothing")(lambda: None)
        begin(crew, watch, type("Wrapped", (), {"queue": queue}))
        server.kill()

        reason(watch, "queue away: Redis has been away for ")
        assert pages(watch.health)["/healthz"]("").code == 503
        until(lambda: pages(watch.health)["/livez"]("").code == 200)

        server.start()
        until(lambda: watch.health().is_well)
        crew.end()


def test_claims_that_are_refused_are_a_reason(make_queue: MakeQueue, crew: Crew, watch: Watch) -> None:
    queue = make_queue(visibility_ms=30_000)
    queue.task(lambda: None, name="nothing")
    begin(crew, watch, queue)
    queue.redis.set(queue.keys.broken, "no list")
    queue.enqueue({"task": "nothing"})

    found = reason(watch, f"queue {queue.name}: Redis has refused claims for")
    queue.redis.delete(queue.keys.broken)

    assert "WRONGTYPE" in found
    until(lambda: watch.health().is_well)


def test_a_pump_that_stands_still_is_seen(
    queue: Handle, crew: Crew, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.task(lambda: None, name="nothing")
    post = begin(crew, watch, queue)
    monkeypatch.setattr(rules, "_SILENCE_S", 0.5)
    until(lambda: watch._beats)
    pump = post.worker._stations[0].pump
    monkeypatch.setattr(pump, "stir", lambda: None)  # nothing reaches it any more

    reason(watch, f"queue {queue.name}: its pump has stood still for")
    assert pages(watch.health)["/livez"]("").code == 503
    monkeypatch.undo()
    until(lambda: watch.health().is_well)


def test_a_worker_that_stops_takes_no_more_and_yet_lives(queue: Handle, crew: Crew, watch: Watch) -> None:
    queue.task(lambda: None, name="nothing")
    post = begin(crew, watch, queue)

    post.stop()

    until(lambda: watch.health().waits == ("the worker stops",))
    until(lambda: pages(watch.health)["/livez"]("").code == 200)


# -- the small web server


@pytest.fixture
def web() -> Iterator[Web]:
    def fail(_accept: str) -> Answer:
        raise RuntimeError("as it must be")

    web = Web({"/ok": lambda accept: Answer(200, TEXT, accept.encode() or b"fine"), "/bad": fail})
    web.start()
    yield web
    web.close()


def ask(web: Web, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    host, _, port = web.url.removeprefix("http://").rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=60)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_the_server_answers_what_is_there_and_nothing_else(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(web, "/ok") == (200, "fine")
    assert ask(web, "/ok?a=b", Accept="text/html") == (200, "text/html")
    assert ask(web, "/ok", "HEAD") == (200, "")
    assert ask(web, "/ok", "POST")[0] == 501
    assert ask(web, "/../etc/passwd") == (404, "nothing is here; there is: /ok /bad\n")
    with caplog.at_level(logging.ERROR, logger="schedq"):
        assert ask(web, "/bad") == (500, "failed; the log says why\n")
    assert "as it must be" in caplog.text


def test_clients_that_say_nothing_do_not_keep_others_from_being_answered(web: Web) -> None:
    host, _, port = web.url.removeprefix("http://").rpartition(":")
    silent = [socket.create_connection((host, int(port)), timeout=60) for _ in range(8)]

    assert ask(web, "/ok") == (200, "fine")

    for one in silent:
        one.close()


def dripping(web: Web, count: int) -> list[socket.socket]:
    """Clients that have begun a request and send a byte of it now and then."""
    host, _, port = web.url.removeprefix("http://").rpartition(":")
    clients = [socket.create_connection((host, int(port)), timeout=60) for _ in range(count)]
    for client in clients:
        client.sendall(b"GET /ok HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    return clients


def is_cut(client: socket.socket) -> bool:
    """Whether the server hung up on a client; if so, at once."""
    try:
        client.sendall(b"x")
        client.settimeout(0.02)
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("count", [16, 300])
def test_however_many_clients_are_slow_another_one_is_answered(web: Web, count: int) -> None:
    clients = dripping(web, count)

    assert [ask(web, "/ok") for _ in range(5)] == [(200, "fine")] * 5

    clients[-1].sendall(b"yes\r\n\r\n")  # a slow one that is not among the oldest gets its answer, too
    assert clients[-1].recv(12) == b"HTTP/1.0 200"
    assert is_cut(clients[0]) == (count == 300)
    assert threading.active_count() < 200
    for client in clients:
        client.close()


def test_a_client_that_sends_a_byte_now_and_then_is_cut_when_its_time_is_over(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.monitor.web._PATIENCE_S", 0.3)
    [client] = dripping(web, 1)

    until(lambda: is_cut(client))

    client.close()


def test_a_client_that_does_not_read_its_answer_is_cut_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedq.monitor.web._PATIENCE_S", 0.3)
    web = Web({"/big": lambda _: Answer(200, TEXT, b"x" * 50_000_000)})
    web.start()
    before = threading.active_count()
    with socket.create_connection(("127.0.0.1", int(web.url.rpartition(":")[2])), timeout=60) as client:
        client.sendall(b"GET /big HTTP/1.1\r\n\r\n")
        until(lambda: threading.active_count() > before)
        until(lambda: threading.active_count() == before)
    web.close()


def test_a_page_that_takes_long_keeps_no_other_page_from_being_answered() -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)

    def slow(_accept: str) -> Answer:
        begun.release()
        gate.wait(30)
        return Answer(200, TEXT, b"at last")

    web = Web({"/slow": slow, "/ok": lambda _: Answer(200, TEXT, b"fine")})
    web.start()
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(ask, web, "/slow") for _ in range(8)]
        assert all(begun.acquire(timeout=30) for _ in waiting)

        assert ask(web, "/slow") == (503, "8 others wait for this page already\n")
        assert ask(web, "/ok") == (200, "fine")

        gate.set()
        assert [answer.result() for answer in waiting] == [(200, "at last")] * 8
    web.close()


def test_a_port_that_is_taken_is_named(web: Web) -> None:
    port = int(web.url.rpartition(":")[2])

    with pytest.raises(UsageError, match=rf"can't listen on 127.0.0.1 port {port}: .*in use"):
        Web({}, port=port)


def test_it_listens_on_the_loopback_alone_unless_told_otherwise(web: Web) -> None:
    assert web.url.startswith("http://127.0.0.1:")


# -- a fleet


def test_a_fleet_is_as_well_as_its_worst_process() -> None:
    sick = Web(pages(lambda: Health(ails=("the event loop has been blocked for 9.0 s",))))
    well = Web(pages(Health))
    for web in (sick, well):
        web.start()
    ports: dict[int, int | None] = {1: int(well.url.rpartition(":")[2]), 2: None}
    children = Children(lambda: ports)
    try:
        absent = children.health()
        ports[2] = int(sick.url.rpartition(":")[2])
        ill = children.health()
        ports[2] = ports[1]
        fine = children.health()
    finally:
        sick.close()
        well.close()

    assert (absent.ails, absent.waits) == ((), ("process 2: does not answer: it is not running",))
    assert ill.ails == ("process 2: the event loop has been blocked for 9.0 s",)
    assert fine.is_well
    assert set(fine.facts["processes"]) == {"1", "2"}


def test_a_process_that_hangs_is_one_that_a_new_one_would_mend() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    health = Children(lambda: {1: port}).health()

    assert health.ails and "process 1: does not answer" in health.ails[0]


def _refuse(listener: socket.socket) -> None:
    with listener.accept()[0] as wire:
        wire.recv(1000)
        wire.sendall(b"-NOAUTH\r\n")


def test_what_is_no_http_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_refuse, args=(listener,), daemon=True)
        thread.start()
        reply = fetch("127.0.0.1", listener.getsockname()[1], "/healthz", 60)
        thread.join(60)

    assert isinstance(reply, Reply)
    assert (reply.code, reply.page) == (0, None)
