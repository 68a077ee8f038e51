"""Local receivers: an HTTP server for webhooks, and a mail server that only collects.

`python -m demo.receivers` listens where app.py delivers by default and prints what arrives. It rejects some webhooks
twice to demonstrate retries.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from aiosmtpd.controller import Controller

OLDEST_S = 300  # a signature is valid for five minutes


@dataclass(frozen=True, slots=True)
class Arrival:
    """A webhook or e-mail as received.

    Attributes:
        key: the sender's job id.
        verdict: accepted, duplicate (of an accepted key), refused (503) or forged (401).
        at_ms: arrival, ms since the epoch.
    """

    key: str
    verdict: str
    at_ms: int


class Journal:
    """What has arrived, oldest first; each key is accepted once. Thread-safe."""

    def __init__(self, tell: Callable[[Arrival], None] = lambda _: None) -> None:
        self.arrivals: list[Arrival] = []
        self._tell = tell
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def accept(self, key: str) -> None:
        """Record a valid delivery; it is a duplicate if its key is known."""
        with self._lock:
            verdict = "duplicate" if key in self._known else "accepted"
            self._known.add(key)
            self._note(key, verdict)

    def refuse(self, key: str, verdict: str) -> None:
        """Record a rejected delivery with its verdict."""
        with self._lock:
            self._note(key, verdict)

    def _note(self, key: str, verdict: str) -> None:
        arrival = Arrival(key, verdict, time.time_ns() // 1_000_000)
        self.arrivals.append(arrival)
        self._tell(arrival)


class WebhookReceiver:
    """An HTTP server that accepts signed deliveries and recognizes duplicates by their Idempotency-Key.

    Attributes:
        url: where to post to.
    """

    def __init__(self, secret: str, journal: Journal, *, port: int = 0, refusals: Callable[[str], int]) -> None:
        """Listen on `port` (0: any free port); respond with 503 to the first `refusals(key)` tries of a delivery."""
        self._secret = secret.encode()
        self._journal = journal
        self._refusals = refusals
        self._tries: Counter[str] = Counter()
        self._server = _HttpServer(("127.0.0.1", port), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/hooks"

    def judge(self, headers: Message, body: bytes) -> int:
        """Record one delivery, and return the HTTP status for the response."""
        key = headers.get("Idempotency-Key", "")
        if not key or not self._is_genuine(headers, body):
            self._journal.refuse(key, "forged")
            return 401
        self._tries[key] += 1
        if self._tries[key] <= self._refusals(key):
            self._journal.refuse(key, "refused")
            return 503
        self._journal.accept(key)
        return 200

    def _is_genuine(self, headers: Message, body: bytes) -> bool:
        sent_at = headers.get("Webhook-Timestamp", "")
        if not sent_at.isdecimal() or abs(time.time() - int(sent_at)) > OLDEST_S:
            return False
        expected = hmac.new(self._secret, sent_at.encode() + b"." + body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(f"sha256={expected}", headers.get("Webhook-Signature", ""))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        judge = self.judge

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                if not length or len(body) < length:
                    return  # the sender was killed while it sent: no delivery
                self.send_response(judge(self.headers, body))
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class MailSink:
    """An SMTP server that accepts everything, delivers nothing, and recognizes each e-mail by its Message-ID.

    Attributes:
        port: the port it listens on.
    """

    def __init__(self, journal: Journal, *, port: int = 0) -> None:
        """Listen on `port` once started (0: any free port)."""
        self._journal = journal
        self._server = _SmtpServer(self, hostname="127.0.0.1", port=port, server_hostname="localhost")

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802
        """Accept one e-mail; called by aiosmtpd."""
        message_id = str(message_from_bytes(envelope.content)["Message-ID"])
        self._journal.accept(message_id.strip("<>").partition("@")[0])
        return "250 OK"

    def __enter__(self) -> Self:
        self._server.start()
        self.port: int = self._server.port
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()


class _HttpServer(ThreadingHTTPServer):
    request_queue_size = 128  # with the default of 5, the sixth simultaneous sender waits a second


class _SmtpServer(Controller):
    def _trigger_server(self) -> None:
        assert isinstance(self.server, asyncio.Server)
        self.port = self.server.sockets[0].getsockname()[1]  # known only now if port 0 was requested
        super()._trigger_server()  # type: ignore[no-untyped-call] # untyped in the library


def main() -> None:
    """Receive until Ctrl-C."""
    journal = Journal(lambda arrival: print(f"{arrival.verdict:9} {arrival.key}", flush=True))
    secret = os.environ.get("WEBHOOK_SECRET", "not a secret")
    receiver = WebhookReceiver(secret, journal, port=8080, refusals=lambda key: 2 if sum(key.encode()) % 3 == 0 else 0)
    with receiver, MailSink(journal, port=int(os.environ.get("SMTP_PORT", "8025"))) as sink:
        print(f"webhooks: {receiver.url}   mail: 127.0.0.1:{sink.port}   press Ctrl-C to stop", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
