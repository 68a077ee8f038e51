"""How notices leave this machine: as a request to a web server, or as the input of a program."""

from __future__ import annotations

import http.client
import os
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from contextlib import closing, suppress
from typing import Final, Protocol
from urllib.parse import urlsplit

from schedq.errors import UsageError

LIMIT_S: Final = 10.0
"""Seconds that one notice may take, by default."""
AUTHORIZATION: Final = "SCHEDQ_WEBHOOK_AUTHORIZATION"
"""Environment variable with the value of the header `Authorization`."""


_STDERR: Final = 2


class DeliveryError(Exception):
    """A notice was not delivered; the message says why, and names no secret.

    Args:
        why: the reason, in words.
        is_general: other notices would fail too, for example because nothing listens there.
    """

    def __init__(self, why: str, *, is_general: bool = False) -> None:
        super().__init__(why)
        self.is_general = is_general


class Receiver(Protocol):
    """Whoever gets the notices."""

    label: str
    """Its name for the log, without secrets."""

    def send(self, body: bytes) -> None:
        """Deliver one notice, in JSON.

        Raises:
            DeliveryError: it was not accepted, or not in time.
        """


class Webhook:
    """Posts each notice to a URL. Only a status from 200 to 299 counts as delivered; redirects are not followed.

    Args:
        url: http or https. It may contain secrets, so it is never logged as a whole.
        authorization: the value of the header `Authorization`, or ''.
        limit_s: seconds for the whole request.

    Raises:
        UsageError: the URL or the header is invalid.
    """

    def __init__(self, url: str, authorization: str = "", limit_s: float = LIMIT_S) -> None:
        self._is_secure, self._host, self._port, self._path = _parts(url)
        self._limit_s = limit_s
        self._headers = {"Content-Type": "application/json", "User-Agent": "schedq"}
        if authorization:
            if not (authorization.isascii() and authorization.isprintable()):
                raise UsageError(f"{AUTHORIZATION} must be printable ASCII, on one line")
            self._headers["Authorization"] = authorization
        self.label = f"{'https' if self._is_secure else 'http'}://{urlsplit(url).netloc}"

    def send(self, body: bytes) -> None:
        """Post one notice.

        Raises:
            DeliveryError: the server can't be reached, is too slow, or replies with another status.
        """
        with closing(self._connection()) as connection:
            timer = threading.Timer(self._limit_s, _cut, (connection,))  # a server may send a byte now and then
            timer.daemon = True
            timer.start()
            try:
                connection.request("POST", self._path, body, self._headers)
                response = connection.getresponse()
                status = response.status
            except (OSError, http.client.HTTPException) as error:
                is_late = not timer.is_alive() or isinstance(error, TimeoutError)
                why = f"no reply within {self._limit_s:g} s" if is_late else str(error) or type(error).__name__
                raise DeliveryError(f"{self.label}: {why}", is_general=True) from error
            finally:
                timer.cancel()
        if not 200 <= status < 300:
            hint = ", and redirects are not followed" if 300 <= status < 400 else ""
            raise DeliveryError(f"{self.label}: status {status}{hint}")

    def _connection(self) -> http.client.HTTPConnection:
        if self._is_secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._limit_s, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._limit_s)


def _parts(url: str) -> tuple[bool, str, int | None, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")
    except ValueError as error:
        raise UsageError(f"the URL of the webhook is invalid: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError("the URL of the webhook must be http://HOST or https://HOST, with a path if it needs one")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"the URL of the webhook must not contain a password; put it into {AUTHORIZATION}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not (path.isascii() and path.isprintable()) or " " in path:
        raise UsageError("the URL of the webhook has characters that must be percent-encoded")
    return parts.scheme == "https", host, port, path


def _cut(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


class NoticeProgram:
    """Starts a program for each notice, which reads it from standard input. Exit code 0 means delivered.

    What it prints goes to standard error. After the time limit it is killed, with the processes of its group.

    Args:
        command: the program and its arguments, split as a shell does; no shell runs it.
        limit_s: seconds that it may take.

    Raises:
        UsageError: the command is empty or can't be split, or there is no such program.
    """

    def __init__(self, command: str, limit_s: float = LIMIT_S) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"the command {command!r:.200} can't be split into words: {error}") from error
        if not self._words:
            raise UsageError("the command must not be empty")
        if shutil.which(self._words[0]) is None:
            raise UsageError(f"there is no program {self._words[0]!r:.200}, or it is not executable")
        self._limit_s = limit_s
        self.label = self._words[0]

    def send(self, body: bytes) -> None:
        """Run the program once.

        Raises:
            DeliveryError: it does not start, fails, or takes too long.
        """
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own command, without a shell
                self._words, stdin=subprocess.PIPE, stdout=_STDERR, start_new_session=True
            )
        except OSError as error:
            raise DeliveryError(f"{self.label}: {error.strerror or error}", is_general=True) from error
        try:
            process.communicate(body, timeout=self._limit_s)
        except subprocess.TimeoutExpired:
            raise DeliveryError(f"{self.label}: killed, as it took more than {self._limit_s:g} s") from None
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
            raise DeliveryError(f"{self.label}: {how}")
