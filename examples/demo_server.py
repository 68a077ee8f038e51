"""The demo of the Redis documentation's job-queue guide, extended: immediate and delayed jobs, mock workers, a page.

Run `python demo_server.py` and open the address it prints. It needs only schedq and a Redis server.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Callable, Sequence
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from demo_pool import Pool, Tuning

from schedq import Exponential, JobRecord, Queue, SchedqError, StoreUnavailable

FOLDER: Final = Path(__file__).parent
FILES: Final = {
    "/": ("demo_server.html", "text/html; charset=utf-8"),
    "/demo_server.js": ("demo_server.js", "text/javascript; charset=utf-8"),
    "/demo_server.css": ("demo_server.css", "text/css; charset=utf-8"),
    "/demo_server.svg": ("demo_server.svg", "image/svg+xml"),
}
SECURITY: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
MOST_AT_ONCE: Final = 1000
LONGEST_DELAY_S: Final = 86_400
_SHOWN: Final = 12
_LONGEST_BODY: Final = 10_000


def number(least: int, most: int) -> int:
    """A random number for sample data; nothing depends on its value."""
    return random.randint(least, most)  # noqa: S311


def email() -> dict[str, Any]:
    """Sample arguments of an e-mail."""
    return {"kind": "email", "to": f"user{number(1, 999)}@example.org", "subject": "Welcome"}


def webhook() -> dict[str, Any]:
    """Sample arguments of a webhook."""
    return {"kind": "webhook", "url": "https://example.org/hooks/orders", "order": number(1000, 9999)}


def thumbnail() -> dict[str, Any]:
    """Sample arguments of a thumbnail."""
    return {"kind": "thumbnail", "picture": f"upload-{number(1, 999)}.jpg", "width": 320}


def invoice() -> dict[str, Any]:
    """Sample arguments of an invoice."""
    return {"kind": "invoice", "customer": number(100, 999), "cents": number(100, 99_999)}


KINDS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "email": email,
    "webhook": webhook,
    "thumbnail": thumbnail,
    "invoice": invoice,
}


class Demo:
    """What the page can request. It uses only the public methods of one queue."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.pool = Pool(queue)
        self.acts: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "/api/enqueue": self.enqueue,
            "/api/workers/start": lambda _: self._run(self.pool.start),
            "/api/workers/stop": lambda _: self._run(self.pool.stop),
            "/api/workers/tune": lambda body: self._run(lambda: self.pool.tune(Tuning(**body))),
            "/api/reclaim": lambda _: {"reclaimed": self.queue.reclaim_stuck()},
            "/api/purge": lambda _: {"purged": self.queue.purge()},
        }

    def state(self) -> dict[str, Any]:
        """Depths, totals, workers, and the first jobs of every list."""
        lists = {
            "pending": self.queue.list_pending(limit=_SHOWN),
            "delayed": self.queue.list_delayed(limit=_SHOWN),
            "processing": self.queue.list_processing(limit=_SHOWN),
            "completed": self.queue.list_completed(limit=_SHOWN),
            "failed": self.queue.list_failed(limit=_SHOWN),
        }
        return {
            "queue": self.queue.settings.name,
            "stats": self.queue.stats(),
            "pool": self.pool.state(),
            "lists": {name: [as_row(job) for job in jobs] for name, jobs in lists.items()},
        }

    def enqueue(self, body: dict[str, Any]) -> dict[str, Any]:
        """Enqueue `count` jobs of a `kind`, due after `delay` seconds."""
        kind, count, delay = body.get("kind"), body.get("count", 1), body.get("delay", 0)
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_AT_ONCE:
            raise ValueError(f"count must be a whole number from 1 to {MOST_AT_ONCE}, got {count!r}")
        if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay <= LONGEST_DELAY_S:
            raise ValueError(f"delay must be from 0 to {LONGEST_DELAY_S} seconds, got {delay!r}")
        payloads = [KINDS[kind]() for _ in range(count)]
        return {"enqueued": self.queue.enqueue_many(payloads, delay=delay or None)}

    def _run(self, act: Callable[[], None]) -> dict[str, Any]:
        act()
        return self.pool.state()


def as_row(job: JobRecord) -> dict[str, Any]:
    """A job as the page shows it; instants are ms on Redis's clock, 0 where they do not apply."""
    return {
        "id": job.id,
        "payload": job.payload,
        "attempts": job.attempts,
        "run_at_ms": job.run_at_ms,
        "claimed_at_ms": job.claimed_at_ms,
        "error": job.last_error,
    }


class Page(BaseHTTPRequestHandler):
    """Handles a request. Only this server's own page may act: host and origin must match, and the body must be JSON."""

    server: DemoServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Return a file of the page, or the state."""
        path = urlsplit(self.path).path
        if not self._is_for_us():
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, {"error": "unknown host"})
        elif path == "/api/state":
            self._try(self.server.demo.state)
        elif path in FILES:
            name, kind = FILES[path]
            self._send(HTTPStatus.OK, _file(name), kind)
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "no such page"})

    def do_POST(self) -> None:
        """Carry out one action."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LONGEST_BODY:
            self.close_connection = True
            return self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": f"at most {_LONGEST_BODY} bytes"})
        text = self.rfile.read(int(length))
        act = self.server.demo.acts.get(urlsplit(self.path).path)
        origin = self.headers.get("Origin", "")
        if not self._is_for_us() or urlsplit(origin).netloc != self.headers.get("Host"):
            return self._answer(HTTPStatus.FORBIDDEN, {"error": "only this server's own page may do this"})
        if act is None:
            return self._answer(HTTPStatus.NOT_FOUND, {"error": "no such action"})
        if self.headers.get_content_type() != "application/json":
            return self._answer(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, {"error": "send JSON"})
        return self._try(lambda: act(_object(text)))

    def log_message(self, *_: object) -> None:
        """Log nothing: the page sends a request every 800 ms."""

    def _is_for_us(self) -> bool:
        """Whether the Host header is ours; a foreign name that resolves to this machine means DNS rebinding."""
        return not self.server.own_names or self.headers.get("Host") in self.server.own_names

    def _try(self, act: Callable[[], dict[str, Any]]) -> None:
        try:
            self._answer(HTTPStatus.OK, act())
        except StoreUnavailable as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)})
        except (SchedqError, ValueError, TypeError) as error:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})

    def _answer(self, status: HTTPStatus, facts: dict[str, Any]) -> None:
        self._send(status, json.dumps(facts).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in (SECURITY | {"Content-Type": kind, "Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class DemoServer(ThreadingHTTPServer):
    """Serves the page of one demo."""

    daemon_threads = True

    def __init__(self, host: str, port: int, demo: Demo) -> None:
        super().__init__((host, port), Page)
        self.demo = demo
        self.address = f"{host}:{self.server_port}"
        loopback = ("127.0.0.1", "localhost")
        # On other interfaces the names by which clients reach this machine are unknown.
        self.own_names = {f"{name}:{self.server_port}" for name in loopback} if host in loopback else set()


@cache
def _file(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def _object(text: bytes) -> dict[str, Any]:
    found = json.loads(text or b"{}")
    if not isinstance(found, dict):
        raise ValueError("send a JSON object")
    return found


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description="A web page for watching jobs being enqueued, processed, lost and reclaimed."
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1; there is no login)"
    )
    parser.add_argument("--port", type=int, default=8090, help="port to listen on; 0 for any free port (default 8090)")
    parser.add_argument("--redis-host", help="host of Redis (default: from REDIS_URL, else localhost)")
    parser.add_argument("--redis-port", type=int, help="port of Redis (default 6379)")
    parser.add_argument("--queue-name", default="demo-server", help="name of the queue (default demo-server)")
    parser.add_argument("--visibility-ms", type=int, default=5000, help="length of a lease (default 5000)")
    return parser.parse_args(given)


def redis_url(given: argparse.Namespace) -> str:
    """The address from the flags, else REDIS_URL, else localhost."""
    if given.redis_host or given.redis_port:
        return f"redis://{given.redis_host or 'localhost'}:{given.redis_port or 6379}"
    return os.environ.get("REDIS_URL") or "redis://localhost:6379"


def place(url: str) -> str:
    """Host and port of a URL, without its password."""
    parts = urlsplit(url)
    return f"{parts.hostname or parts.path}:{parts.port or 6379}" if parts.scheme.startswith("redis") else url


def main() -> None:
    """Serve until Ctrl-C."""
    given = arguments()
    url = redis_url(given)
    backoff = Exponential(base=2, factor=2, cap=60, jitter=0.5)
    try:
        with Queue(given.queue_name, redis=url, visibility_ms=given.visibility_ms, backoff=backoff) as queue:
            queue.stats()
            server = DemoServer(given.host, given.port, Demo(queue))
            print(f"Redis job-queue demo server listening on http://{server.address}")
            print(f"Using Redis at {place(url)}")
            print(f"Visibility timeout: {given.visibility_ms} ms", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print("stopping; mock workers finish their current jobs")
            finally:
                server.server_close()
                server.demo.pool.close()
    except (SchedqError, OSError) as error:
        raise SystemExit(f"demo_server: {error}") from None


if __name__ == "__main__":
    main()
