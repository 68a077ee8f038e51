"""Health: whether a worker makes progress, not whether its process is alive."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import pytest

from schedq import Queue, UsageError
from schedq.metrics import health as rules
from schedq.metrics.health import Children, Health, HealthProbe, Reply, fetch, pages
from schedq.metrics.web import TEXT, Response, WebServer
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import Server
from tests.waiting import until
from tests.worker.crew import Crew, Gate, Post

LIMIT_S = 0.5


def reason(probe: HealthProbe, text: str) -> str:
    """The reason that says so, once there is one. (A machine that stalls reports other reasons in between.)"""

    def found() -> list[str]:
        health = probe.health()
        return [word for word in (*health.failures, *health.degraded) if text in word]

    return until(found)[0]


def begin(crew: Crew, probe: HealthProbe, *queues: Any, **options: Any) -> Post:
    """A watched worker that is well."""
    post = crew.start(*queues, observers=[probe], **options)
    probe.attach(post.worker)
    until(lambda: probe.health().is_healthy)
    return post


@pytest.fixture
def probe() -> HealthProbe:
    return HealthProbe(LIMIT_S)


def test_a_worker_that_has_not_begun_is_not_well(probe: HealthProbe) -> None:
    assert probe.health() == Health(degraded=("the worker has not started yet",))
    assert pages(probe.health)["/healthz"]("").code == 503
    assert pages(probe.health)["/livez"]("").code == 200


def test_an_idle_worker_is_healthy_and_its_fetch_loop_runs(queue: Handle, crew: Crew, probe: HealthProbe) -> None:
    queue.task(lambda: None, name="nothing")
    begin(crew, probe, queue)
    until(lambda: probe.health().facts["queues"][queue.name]["beat_s_ago"] is not None)
    first = until(lambda: probe._rounds.get(queue.name)) or 0.0

    until(lambda: probe._rounds[queue.name] > first)

    answer = until(lambda: (found := pages(probe.health)["/healthz"]("")).code == 200 and found)
    health = json.loads(answer.body)
    assert (health["status"], health["reasons"]) == ("ok", [])
    assert health["queues"][queue.name]["in_flight"] == 0
    assert health["queues"][queue.name]["claim_s_ago"] >= 0


def test_a_blocked_event_loop_is_reported_while_it_is_blocked(queue: Handle, crew: Crew, probe: HealthProbe) -> None:
    free = threading.Event()

    @queue.task
    async def block() -> None:
        assert free.wait(120)

    begin(crew, probe, queue)
    try:
        job = block.enqueue()
        reason(probe, "the event loop has been blocked for ")
        assert pages(probe.health)["/livez"]("").code == 503
    finally:
        free.set()
    job.result(60)

    until(lambda: probe.health().is_healthy)


def test_a_redis_that_is_away_is_a_reason_that_no_new_process_would_mend(crew: Crew, probe: HealthProbe) -> None:
    with Server(topology="single") as server, Queue("away", redis=server.url) as queue:
        queue.task(name="nothing")(lambda: None)
        begin(crew, probe, type("Wrapped", (), {"queue": queue}))
        server.kill()

        reason(probe, "queue away: Redis has been unreachable for ")
        assert pages(probe.health)["/healthz"]("").code == 503
        until(lambda: pages(probe.health)["/livez"]("").code == 200)

        server.start()
        until(lambda: probe.health().is_healthy)
        crew.end()


def test_claims_that_are_refused_are_a_reason(make_queue: MakeQueue, crew: Crew, probe: HealthProbe) -> None:
    queue = make_queue(visibility_ms=30_000)
    queue.task(lambda: None, name="nothing")
    begin(crew, probe, queue)
    queue.redis.set(queue.keys.leases, "no zset")
    queue.enqueue({"task": "nothing"})

    found = reason(probe, f"queue {queue.name}: Redis has refused claims for")
    queue.redis.delete(queue.keys.leases)

    assert "WRONGTYPE" in found
    until(lambda: probe.health().is_healthy)


def test_a_stopped_fetch_loop_is_reported(
    queue: Handle, crew: Crew, probe: HealthProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.task(lambda: None, name="nothing")
    post = begin(crew, probe, queue)
    monkeypatch.setattr(rules, "_SILENCE_S", 0.5)
    until(lambda: probe._beats)
    fetcher = post.queue_worker.fetcher
    monkeypatch.setattr(fetcher, "notify", lambda: None)  # nothing reaches it any more

    stalled = f"queue {queue.name}: its fetch loop has been stalled for"
    reason(probe, stalled)
    answer = until(lambda: (found := pages(probe.health)["/livez"]("")).code == 503 and found)
    assert stalled in answer.body.decode()
    monkeypatch.undo()
    until(lambda: probe.health().is_healthy)


def test_a_stopping_worker_is_not_ready_but_alive(queue: Handle, crew: Crew, probe: HealthProbe, gate: Gate) -> None:
    hold = gate.task(queue)
    post = begin(crew, probe, queue)
    job = hold.enqueue()
    gate.until_held()

    post.stop()

    until(lambda: probe.health().degraded == ("the worker is stopping",))
    until(lambda: pages(probe.health)["/livez"]("").code == 200)
    gate.open()
    assert job.result(60) == "held"


# -- the small web server


@pytest.fixture
def web_server() -> Iterator[WebServer]:
    def fail(_accept: str) -> Response:
        raise RuntimeError("as it must be")

    web_server = WebServer({"/ok": lambda accept: Response(200, TEXT, accept.encode() or b"fine"), "/bad": fail})
    web_server.start()
    yield web_server
    web_server.close()


def ask(web_server: WebServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    host, _, port = web_server.url.removeprefix("http://").rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=60)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_the_server_serves_its_pages_and_nothing_else(web_server: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(web_server, "/ok") == (200, "fine")
    assert ask(web_server, "/ok?a=b", Accept="text/html") == (200, "text/html")
    assert ask(web_server, "/ok", "HEAD") == (200, "")
    assert ask(web_server, "/ok", "POST")[0] == 501
    assert ask(web_server, "/../etc/passwd") == (404, "not found; the pages are: /ok /bad\n")
    with caplog.at_level(logging.ERROR, logger="schedq"):
        assert ask(web_server, "/bad") == (500, "failed; see the log\n")
    assert "as it must be" in caplog.text


def test_silent_clients_do_not_delay_others(web_server: WebServer) -> None:
    host, _, port = web_server.url.removeprefix("http://").rpartition(":")
    silent = [socket.create_connection((host, int(port)), timeout=60) for _ in range(8)]

    assert ask(web_server, "/ok") == (200, "fine")

    for one in silent:
        one.close()


def dripping(web_server: WebServer, count: int) -> list[socket.socket]:
    """Clients that have begun a request and send a byte of it now and then."""
    host, _, port = web_server.url.removeprefix("http://").rpartition(":")
    clients = [socket.create_connection((host, int(port)), timeout=60) for _ in range(count)]
    for client in clients:
        client.sendall(b"GET /ok HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    return clients


def is_cut(client: socket.socket) -> bool:
    """Whether the server closed a client's connection; if so, without waiting."""
    try:
        client.sendall(b"x")
        client.settimeout(0.02)
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("count", [16, 300])
def test_any_number_of_slow_clients_do_not_delay_another_one(web_server: WebServer, count: int) -> None:
    clients = dripping(web_server, count)

    assert [ask(web_server, "/ok") for _ in range(5)] == [(200, "fine")] * 5

    clients[-1].sendall(b"yes\r\n\r\n")  # a slow client that is not among the oldest gets its response, too
    assert clients[-1].recv(12) == b"HTTP/1.0 200"
    assert is_cut(clients[0]) == (count == 300)
    assert threading.active_count() < 200
    for client in clients:
        client.close()


def test_a_client_that_sends_a_byte_now_and_then_is_cut_when_its_time_is_over(
    web_server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.metrics.web._TIMEOUT_S", 0.3)
    began = time.monotonic()
    [client] = dripping(web_server, 1)

    until(lambda: is_cut(client))

    assert time.monotonic() - began >= 0.3
    client.close()


def test_a_client_that_does_not_read_its_response_is_disconnected_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedq.metrics.web._TIMEOUT_S", 0.3)
    threads: list[threading.Thread] = []

    def big(_accept: str) -> Response:
        threads.append(threading.current_thread())
        return Response(200, TEXT, b"x" * 50_000_000)

    web_server = WebServer({"/big": big})
    web_server.start()
    with socket.create_connection(("127.0.0.1", int(web_server.url.rpartition(":")[2])), timeout=60) as client:
        client.sendall(b"GET /big HTTP/1.1\r\n\r\n")
        until(lambda: threads)
        threads[0].join(60)
        assert not threads[0].is_alive(), "it still sends"
    web_server.close()


def test_a_slow_page_does_not_delay_other_pages() -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)

    def slow(_accept: str) -> Response:
        begun.release()
        gate.wait(30)
        return Response(200, TEXT, b"at last")

    web_server = WebServer({"/slow": slow, "/ok": lambda _: Response(200, TEXT, b"fine")})
    web_server.start()
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(ask, web_server, "/slow") for _ in range(8)]
        assert all(begun.acquire(timeout=30) for _ in waiting)

        assert ask(web_server, "/slow") == (503, "8 other requests are already waiting for this page\n")
        assert ask(web_server, "/ok") == (200, "fine")

        gate.set()
        assert [answer.result() for answer in waiting] == [(200, "at last")] * 8
    web_server.close()


def test_a_port_that_is_taken_is_named(web_server: WebServer) -> None:
    port = int(web_server.url.rpartition(":")[2])

    with pytest.raises(UsageError, match=rf"can't listen on 127.0.0.1 port {port}: .*in use"):
        WebServer({}, port=port)


def test_it_listens_only_on_the_loopback_interface_by_default(web_server: WebServer) -> None:
    assert web_server.url.startswith("http://127.0.0.1:")


# -- a fleet


def test_a_fleet_is_as_well_as_its_worst_process() -> None:
    sick = WebServer(pages(lambda: Health(failures=("the event loop has been blocked for 9.0 s",))))
    well = WebServer(pages(Health))
    for web_server in (sick, well):
        web_server.start()
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

    assert (absent.failures, absent.degraded) == ((), ("process 2: does not respond: it is not running",))
    assert ill.failures == ("process 2: the event loop has been blocked for 9.0 s",)
    assert fine.is_healthy
    assert set(fine.facts["processes"]) == {"1", "2"}


def test_a_process_that_hangs_is_one_that_a_new_one_would_mend() -> None:
    with socket.socket() as deaf:  # it keeps its port, which another process would soon have, but refuses connections
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        health = Children(lambda: {1: port}).health()

    assert health.failures and "process 1: does not respond" in health.failures[0]


def _refuse(listener: socket.socket) -> None:
    with listener.accept()[0] as wire:
        wire.recv(1000)
        wire.sendall(b"-NOAUTH\r\n")


def test_a_reply_that_is_not_http_counts_as_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_refuse, args=(listener,), daemon=True)
        thread.start()
        reply = fetch("127.0.0.1", listener.getsockname()[1], "/healthz", 60)
        thread.join(60)

    assert isinstance(reply, Reply)
    assert (reply.code, reply.page) == (0, None)
