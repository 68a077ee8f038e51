"""Streams: what changes reaches every browser, from one drawing, and ends with the browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import redis

from schedq import Queue
from schedq.dashboard import create_app
from schedq.dashboard import live as streams
from tests.dashboard.conftest import Running, Served, Visitor
from tests.servers import Server
from tests.waiting import until

Serve = Callable[..., Served]
STREAM = {"accept": "text/event-stream"}
PATH = "/queues/mail/jobs"


def events(answer: httpx.Response) -> Iterator[tuple[str, Any]]:
    """Name and data of each event."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_a_stream_brings_the_page_and_then_what_changes(visitor: Visitor, queue: Queue):
    queue.enqueue(1)
    with visitor.http.stream("GET", PATH, headers=STREAM) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        heard = events(answer)
        name, first = next(heard)
        job_id = queue.enqueue(2)
        changes = next(regions for _, regions in heard if job_id in regions.get("live_jobs", ""))

    assert name == "regions"
    assert set(first) == {"live_depths", "live_jobs"}
    assert set(changes) <= set(first)


def test_nothing_of_one_browsers_own_is_in_a_stream(visitor: Visitor, queue: Queue):
    queue.enqueue(1)
    token = visitor.token()

    with visitor.http.stream("GET", "/queues/mail", headers=STREAM) as answer:
        _, regions = next(events(answer))

    assert token not in json.dumps(regions)
    assert "csrf" not in re.sub("[0-9a-v]{26}", "ID", json.dumps(regions))


def test_one_rendering_serves_all_browsers_and_none_is_made_without_one(served: Served, queue: Queue, store: Server):
    queue.enqueue(1)
    live = served.dashboard._live
    until(lambda: not live._channels)  # those of earlier tests have ended
    visitors = [Visitor(served.url) for _ in range(10)]
    streams = [visitor.http.stream("GET", PATH, headers=STREAM) for visitor in visitors]
    heard = [events(stream.__enter__()) for stream in streams]  # garbage collection would close a stream
    for each in heard:
        next(each)

    assert (live._streams, len(live._channels)) == (10, 1)
    connected = {client["name"] for client in _clients(store) if client["name"].startswith("schedq-mail")}
    assert len(connected) <= 2  # the dashboard's and this test's

    for stream in streams:
        stream.__exit__(None, None, None)
    for visitor in visitors:
        visitor.http.close()
    until(lambda: not live._channels)
    assert live._streams == 0


def _clients(store: Server) -> list[dict[str, str]]:
    with store.client() as client:
        found: list[dict[str, str]] = client.client_list()
        return found


def test_there_are_only_so_many(serve: Serve, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams, "MOST_STREAMS", 2)
    url = serve().url
    queue.enqueue(1)
    with httpx.Client(base_url=url, headers=STREAM, timeout=60) as client:
        with client.stream("GET", PATH) as one, client.stream("GET", PATH) as two:
            heard = events(one), events(two)  # one that is let go closes its stream
            for each in heard:
                next(each)
            with client.stream("GET", PATH) as three:
                refused = three

        assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
        until(lambda: _is_served(client))


def _is_served(client: httpx.Client) -> bool:
    with client.stream("GET", PATH) as answer:
        return answer.status_code == 200


def test_an_outage_of_redis_and_its_end_are_shown():
    with Server() as server, Queue("mail", redis=server.own_url) as queue:
        queue.enqueue(1)
        running = Running(create_app(server.own_url))
        try:
            with httpx.stream("GET", running.served.url + PATH, headers=STREAM, timeout=60) as answer:
                heard = events(answer)
                next(heard)
                server.kill()
                trouble = next(data for name, data in heard if name == "trouble")
                page = httpx.get(running.served.url + PATH, timeout=60)
                server.start()
                back = next(regions for name, regions in heard if name == "regions")
        finally:
            running.stop()

    assert "UTC: " in trouble
    assert (page.status_code, "Redis is unavailable" in page.text, "Traceback" in page.text) == (503, True, False)
    assert re.search(r"[^.]\. No jobs are lost", page.text)  # one full stop, even if the error ends with its own
    assert set(back) == {"live_depths", "live_jobs"}


def test_a_server_that_stops_ends_its_streams(store: Server, queue: Queue):
    queue.enqueue(1)
    running = Running(create_app(store.own_url))
    with httpx.stream("GET", running.served.url + PATH, headers=STREAM, timeout=60) as answer:
        heard = events(answer)
        next(heard)
        running.stop()

        assert all(name in ("regions", "trouble") for name, _ in heard)  # which comes to an end


def test_the_stream_of_a_finished_action_says_so_once_and_ends(
    visitor: Visitor, queue: Queue, caplog: pytest.LogCaptureFixture
):
    with visitor.http.stream("GET", "/errands/nosuch", headers=STREAM) as answer:
        heard = [*events(answer)]

    assert [name for name, _ in heard] == ["trouble", "gone"]
    assert "This action is unknown here" in heard[0][1]
    assert caplog.records == []


def test_a_page_that_fails_at_every_drawing_is_logged_once(
    visitor: Visitor, queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    drawings = []

    def broken(*_: object, **__: object) -> None:
        drawings.append(1)
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(streams, "TICK_S", 0.01)
    monkeypatch.setattr("schedq.dashboard.rendering.Renderer.live_regions", broken)
    with visitor.http.stream("GET", PATH, headers=STREAM) as answer:
        heard = events(answer)
        assert next(heard) == ("trouble", "this page can't be rendered: ZeroDivisionError")
        until(lambda: len(drawings) >= 3)

    assert [record.message for record in caplog.records if record.exc_info] == ["a page can't be rendered"]


def test_a_page_that_can_not_be_rendered_says_so(visitor: Visitor, queue: Queue, raw: redis.Redis):
    queue.enqueue(1)
    with visitor.http.stream("GET", PATH, headers=STREAM) as answer:
        heard = events(answer)
        next(heard)
        raw.delete("queue:mail:pending")
        raw.set("queue:mail:pending", "of the wrong type")

        trouble = next(data for name, data in heard if name == "trouble")

    assert "queue:mail:pending" in trouble
