"""One server: its address and credentials, new connections to it, and single queries over a short-lived one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import redis.asyncio.connection as async_connections
import redis.connection as connections
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import ResponseError
from redis.retry import Retry

from schedq.connection import redis_internals
from schedq.connection.resolver import in_thread
from schedq.errors import SchedqError, StoreUnavailable, UsageError
from schedq.model.settings import Settings


def name_of(queues: Sequence[Settings]) -> str:
    """The name of a connection of some queues in CLIENT LIST."""
    return f"schedq-{queues[0].name}" + (f"+{len(queues) - 1}" if len(queues) > 1 else "")


REPLY_S: Final = 5.0
"""Seconds to wait for a reply, or for a connection, before the connection is closed."""
SEARCH_S: Final = 1.5
"""The same for a server that is only asked where another one is. It is shorter because the next server may know."""
_warned_of: Final[set[tuple[str, str]]] = set()
_ASYNC_KINDS: Final[Mapping[str, Any]] = {
    "Connection": redis_internals.TcpConnection,
    "SSLConnection": redis_internals.TlsConnection,
    "UnixDomainSocketConnection": async_connections.UnixDomainSocketConnection,
}


@dataclass(frozen=True)
class Endpoint:
    """One server, without a connection to it.

    Attributes:
        kind: the name of redis-py's connection class.
        settings: address, credentials and TLS options.
        label: the name of this server in messages; never contains a password.
        must_show_role: the server must confirm that it is the primary, because the Sentinel that named it may be wrong.
    """

    kind: str
    settings: Mapping[str, Any] = field(repr=False)
    label: str = field(default="", compare=False)
    must_show_role: bool = False

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self._label())

    def with_address(self, host: str, port: int) -> Endpoint:
        """Return another server that is reached with the same settings."""
        return replace(self, settings={**self.settings, "host": host, "port": port}, label="")

    def connection(self, name: str, reply_s: float | None = None) -> connections.Connection:
        """Return a new blocking connection that is not connected yet. CLIENT LIST shows `name`."""
        self._warn_if_unverified()
        kind, limit = getattr(connections, self.kind), reply_s or REPLY_S
        made: connections.Connection = kind(
            **self._arguments(name, limit), socket_timeout=limit, retry=Retry(NoBackoff(), 0)
        )
        return made

    def async_connection(self, name: str) -> async_connections.Connection:
        """Return the same for asyncio. It has no timeout for replies, because `AsyncConnection` has its own."""
        self._warn_if_unverified()
        made: async_connections.Connection = _ASYNC_KINDS[self.kind](
            **self._arguments(name, REPLY_S), socket_timeout=None
        )
        return made

    def ask(self, *commands: tuple[str | int, ...]) -> list[Any]:
        """Send commands over a new connection and return their replies. It blocks.

        Raises:
            RedisError, OSError: raised by redis-py.
        """
        replies = self.ask_each(*commands)
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise reply
        return replies

    def ask_each(self, *commands: tuple[str | int, ...]) -> list[Any]:
        """The same, with errors that Redis replied as values.

        Raises:
            RedisError, OSError: raised by redis-py; Redis did not reply.
        """
        connection = self.connection("schedq-search", SEARCH_S)
        try:
            connection.connect()
            connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            return [_read(connection) for _ in commands]
        finally:
            connection.disconnect()

    def _warn_if_unverified(self) -> None:
        """Warn if TLS settings do not ensure that this is the intended server."""
        if self.kind != "SSLConnection":
            return
        if self.settings.get("ssl_cert_reqs") in ("none", 0):  # ssl.CERT_NONE is 0
            _warn_once(
                "%s: its certificate is not verified (ssl_cert_reqs=none), so an attacker on the network can read and "
                "change jobs, and learn the password; to trust your own CA, add ?ssl_ca_certs=FILE to the URL",
                self.label,
            )
        elif self.settings.get("ssl_check_hostname") is False:
            _warn_once(
                "%s: the name in its certificate is not verified (ssl_check_hostname=false), so any server with a "
                "certificate from the same CA can impersonate it",
                self.label,
            )

    def _arguments(self, name: str, connect_s: float) -> dict[str, Any]:
        keepalive = {} if self.kind == "UnixDomainSocketConnection" else {"socket_keepalive": True}
        provider = self.settings.get("credential_provider")
        return {
            **self.settings,
            **({} if provider is None else {"credential_provider": CredentialAdapter(provider)}),
            **keepalive,
            "client_name": name,
            "driver_info": None,
            "socket_connect_timeout": connect_s,
            "protocol": 2,
            "decode_responses": True,
            "encoding_errors": "surrogateescape",
            "health_check_interval": 0,
        }

    def _label(self) -> str:
        db = self.settings.get("db", 0) or 0
        if self.kind == "UnixDomainSocketConnection":
            return f"unix://{self.settings.get('path')}" + (f"?db={db}" if db else "")
        host_port = joined(self.settings.get("host", "localhost"), self.settings.get("port", 6379))
        return f"{self.scheme}://{host_port}/{db}"

    @property
    def scheme(self) -> str:
        """The scheme of a URL to this server, with or without TLS."""
        return "rediss" if self.kind == "SSLConnection" else "redis"


def warn_unheard(label: str, error: Exception) -> None:
    """Warn that a server rejects subscriptions."""
    _warn_once(
        "%s does not let this user subscribe (%s), so events are not received and finished jobs are noticed late; "
        "`schedq doctor --acl` prints what the Redis user needs",
        label,
        error,
    )


def _warn_once(text: str, label: str, *values: object) -> None:
    """Log a warning about a server, once per process."""
    if (text, label) not in _warned_of:
        from schedq.logs import log

        _warned_of.add((text, label))
        log.warning(text, label, *values)


def joined(host: str, port: int | str) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


PASSWORD_FILE: Final = "SCHEDQ_REDIS_PASSWORD_FILE"  # noqa: S105 - where a password is, not what it is
"""Environment variable with the path of the password file, used for URLs without a password."""
Credentials = tuple[str] | tuple[str, str]


@dataclass(frozen=True)
class PasswordFile(CredentialProvider):
    """A password in a file.

    Attributes:
        path: the absolute path of the file.
        username: the user who has this password; '' for the server's default user.
    """

    path: str
    username: str = ""

    @classmethod
    def at(cls, path: str, username: str | None) -> PasswordFile:
        """Resolve the path now: the working folder may have changed by the time a lost connection is reopened."""
        return cls(os.path.abspath(path), username or "")

    def get_credentials(self) -> Credentials:
        """Read the user name and the password from the file, without the line break at its end.

        Raises:
            UsageError: the file can't be read, or is empty.
        """
        try:
            password = Path(self.path).read_bytes().decode().rstrip("\r\n")
        except OSError as error:
            raise UsageError(f"the password file {self.path} can't be read: {error.strerror or error}") from error
        except UnicodeDecodeError:
            raise UsageError(f"the password file {self.path} is not UTF-8 text") from None
        if not password:
            raise UsageError(f"the password file {self.path} is empty")
        return (self.username, password) if self.username else (password,)


class CredentialAdapter(CredentialProvider):
    """Wraps an application's credential provider: turns its errors into schedq's and never blocks an event loop."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        made = getattr(type(provider), "get_credentials_async", None)
        self._is_blocking = made in (None, CredentialProvider.get_credentials_async)

    def get_credentials(self) -> Credentials:
        """Return the provider's current credentials.

        Raises:
            StoreUnavailable: the provider raised an OSError.
            UsageError: the provider raised another error.
        """
        with _failures_named():
            return cast(Credentials, self._provider.get_credentials())

    async def get_credentials_async(self) -> Credentials:
        """Return the same; a provider that blocks is called in a thread."""
        if self._is_blocking:
            return await in_thread(self.get_credentials)
        with _failures_named():
            return cast(Credentials, await self._provider.get_credentials_async())


@contextmanager
def _failures_named() -> Iterator[None]:
    try:
        yield
    except SchedqError:
        raise
    except Exception as error:
        kind = StoreUnavailable if isinstance(error, OSError) else UsageError
        raise kind(f"the credential provider failed: {type(error).__name__}: {error}") from error


def _read(connection: connections.Connection) -> Any:
    """The next reply; an error that Redis replied as a value."""
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
