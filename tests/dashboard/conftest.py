"""A dashboard, the server that runs it, and a client or a browser that opens it."""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from typing import Any, ClassVar, Final

import httpx
import pytest
import redis

from schedq import Queue
from schedq.dashboard import Dashboard, actions, create_app
from schedq.dashboard.serving import DashboardServer, address_of, bound, server_of
from tests.servers import Server

TOKEN = "correct horse battery staple"
CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')


@dataclass(frozen=True)
class Served:
    """A running dashboard.

    Attributes:
        url: where it is.
        dashboard: the application.
    """

    url: str
    dashboard: Dashboard


NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Clients that only speak HTTP need no certificates, and reading those takes longer than a request."""


def fetched(url: str, **options: Any) -> httpx.Response:
    """A page, as a client without cookies gets it."""
    return httpx.get(url, timeout=60, verify=NO_TLS, **options)


class Visitor:
    """A client that keeps cookies, and can send the forms of pages; no JavaScript."""

    under_way: ClassVar[list[Visitor]] = []

    def __init__(self, url: str, **headers: str) -> None:
        self.http = httpx.Client(base_url=url, headers={"accept": "text/html", **headers}, timeout=60, verify=NO_TLS)
        self.origin = url
        self.under_way.append(self)

    def get(self, path: str, **options: Any) -> httpx.Response:
        """A page as it is."""
        return self.http.get(path, **options)

    def page(self, path: str) -> str:
        """A page that is there."""
        answer = self.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.text

    def token(self, path: str = "/queues/mail") -> str:
        """The token of the forms of a page."""
        found = CSRF.search(self.get(path).text)
        assert found, path
        return found[1]

    def post(self, path: str, fields: dict[str, Any], **headers: str) -> httpx.Response:
        """A form as a browser sends it, with the token unless it is there."""
        data = fields if "csrf" in fields else {"csrf": self.token(), **fields}
        return self.http.post(path, data=data, headers={"origin": self.origin, **headers})

    def ask(self, do: str, *, queue: str = "mail", **fields: Any) -> tuple[str, dict[str, Any]]:
        """Press a button: the page that asks, and the fields of its form."""
        asked = self.post(f"/queues/{queue}/confirm", {"do": do, **fields})
        assert asked.status_code == 200, asked.text
        hidden: dict[str, Any] = {}
        for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', asked.text):
            hidden.setdefault(name, []).append(unescape(value))
        return unescape(asked.text), hidden

    def do(self, do: str, *, queue: str = "mail", **fields: Any) -> str:
        """Press a button, confirm, and go on to the page that comes next."""
        _, hidden = self.ask(do, queue=queue, **fields)
        done = self.post(f"/queues/{queue}/act", hidden | fields)
        assert done.status_code == 303, done.text
        return unescape(self.page(done.headers["location"]))


@pytest.fixture(scope="module")
def store() -> Iterator[Server]:
    """A server whose queues are those of one test."""
    with Server() as server:
        yield server


@pytest.fixture
def raw(store: Server) -> redis.Redis:
    """A plain client, on an empty Redis."""
    store.lasting_client.flushall()
    return store.lasting_client


@pytest.fixture
def queue(store: Server, raw: redis.Redis) -> Iterator[Queue]:
    """The one queue there is, once it is used."""
    with Queue("mail", redis=store.own_url) as queue:
        yield queue


class Running:
    """A dashboard on its own port, in its own thread."""

    def __init__(self, dashboard: Dashboard) -> None:
        ready = threading.Event()
        listening = bound("127.0.0.1", 0, is_protected=False)
        self.served = Served(address_of(listening), dashboard)
        self._server: DashboardServer = server_of(dashboard, ready.set)
        self._loop = asyncio.new_event_loop()

        def run() -> None:
            self._loop.run_until_complete(self._server.serve(sockets=[listening]))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert ready.wait(60)

    def stop(self) -> None:
        """End it in order."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._server.handle_exit, signal.SIGTERM, None)
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def serve(store: Server) -> Iterator[Callable[..., Served]]:
    """Serves a dashboard; options are those of `create_app`."""
    under_way: list[Running] = []

    def serve(**options: Any) -> Served:
        running = Running(create_app(options.pop("redis", store.own_url), **options))
        under_way.append(running)
        return running.served

    yield serve
    for running in under_way:
        running.stop()


@pytest.fixture(scope="module")
def served(store: Server) -> Iterator[Served]:
    """A dashboard that serves this machine, for all tests of a file."""
    running = Running(create_app(store.own_url))
    yield running.served
    running.stop()


@pytest.fixture
def visitor(served: Served) -> Visitor:
    """A client of that one."""
    return Visitor(served.url)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """All jobs are counted and acted on before a response, however long that takes."""
    monkeypatch.setattr(actions, "_COUNTING_S", 60)
    monkeypatch.setattr(actions, "WAIT_S", 60)


@pytest.fixture(autouse=True)
def _visitors_leave() -> Iterator[None]:
    yield
    while Visitor.under_way:
        Visitor.under_way.pop().http.close()
