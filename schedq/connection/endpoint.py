"""One server: who logs in, how connections to it are made, and a single question to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import redis.asyncio.connection as async_connections
import redis.connection as connections
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.retry import Retry

from schedq.connection import redis_internals
from schedq.connection.resolver import in_thread
from schedq.errors import SchedqError, StoreUnavailable, UsageError
from schedq.logs import log

REPLY_S: Final = 5.0
"""Seconds to wait for a reply, or for a connection, before the connection is given up."""
SEARCH_S: Final = 1.5
"""The same for each server that is only asked where another one is: the next may know."""
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
        kind: the client library's class of connections.
        settings: where it is, who asks, and how TLS is done.
        label: names it in messages; never holds a password.
        must_show_role: the server itself must say that it is the primary: the Sentinel that named it may be wrong.
    """

    kind: str
    settings: Mapping[str, Any] = field(repr=False)
    label: str = field(default="", compare=False)
    must_show_role: bool = False

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self._label())

    def with_address(self, host: str, port: int) -> Endpoint:
        """Another server, reached in the same way."""
        return replace(self, settings={**self.settings, "host": host, "port": port}, label="")

    def connection(self, name: str, reply_s: float | None = None) -> connections.Connection:
        """A new blocking connection that is not connected yet; `name` is shown by CLIENT LIST."""
        self._warn_if_unverified()
        kind, limit = getattr(connections, self.kind), reply_s or REPLY_S
        made: connections.Connection = kind(
            **self._arguments(name, limit), socket_timeout=limit, retry=Retry(NoBackoff(), 0)
        )
        return made

    def async_connection(self, name: str) -> async_connections.Connection:
        """The same for asyncio. It has no timeout for replies: `AsyncConnection` keeps time."""
        self._warn_if_unverified()
        made: async_connections.Connection = _ASYNC_KINDS[self.kind](
            **self._arguments(name, REPLY_S), socket_timeout=None
        )
        return made

    def ask(self, *commands: tuple[str | int, ...]) -> list[Any]:
        """The replies to some commands, over a connection of their own. It blocks.

        Raises:
            RedisError, OSError: of the client library.
        """
        connection = self.connection("schedq-search", SEARCH_S)
        try:
            connection.connect()
            connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            return [connection.read_response() for _ in commands]
        finally:
            connection.disconnect()

    def _warn_if_unverified(self) -> None:
        """Warn that this may be another server than the intended one."""
        if self.kind != "SSLConnection":
            return
        if self.settings.get("ssl_cert_reqs") in ("none", 0):  # ssl.CERT_NONE is 0
            _warn_once(
                "%s: its certificate is not verified (ssl_cert_reqs=none), so anybody on the way can read and change "
                "jobs, and learn the password; ?ssl_ca_certs=FILE names a CA of your own",
                self.label,
            )
        elif self.settings.get("ssl_check_hostname") is False:
            _warn_once(
                "%s: the name in its certificate is not verified (ssl_check_hostname=false), so any server that has a "
                "certificate of that CA can take its place",
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
        """What a URL to a server reached in this way begins with; TLS or none."""
        return "rediss" if self.kind == "SSLConnection" else "redis"


def warn_unheard(label: str, error: Exception) -> None:
    """Warn that a server refuses subscriptions."""
    _warn_once(
        "%s refuses to send messages (%s), so events are not seen and ends of jobs are noticed late; "
        "`schedq doctor --acl` prints what the Redis user needs",
        label,
        error,
    )


def _warn_once(text: str, label: str, *values: object) -> None:
    """Log a warning about a server, once per process."""
    if (text, label) not in _warned_of:
        _warned_of.add((text, label))
        log.warning(text, label, *values)


def joined(host: str, port: int | str) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


PASSWORD_FILE: Final = "SCHEDQ_REDIS_PASSWORD_FILE"  # noqa: S105 - where a password is, not what it is
"""Environment variable: the password file of URLs that say no password."""
Credentials = tuple[str] | tuple[str, str]


@dataclass(frozen=True)
class PasswordFile(CredentialProvider):
    """A password in a file.

    Attributes:
        path: absolute.
        username: whose it is, or '' for the server's default user.
    """

    path: str
    username: str = ""

    @classmethod
    def at(cls, path: str, username: str | None) -> PasswordFile:
        """The file of this moment's working folder, which may be another one when a connection is lost."""
        return cls(os.path.abspath(path), username or "")

    def get_credentials(self) -> Credentials:
        """What the file holds now, without the line's end.

        Raises:
            UsageError: it can't be read, or is empty.
        """
        try:
            password = Path(self.path).read_bytes().decode().rstrip("\r\n")
        except OSError as error:
            raise UsageError(f"the password file {self.path} can't be read: {error.strerror or error}") from error
        except UnicodeDecodeError:
            raise UsageError(f"the password file {self.path} is no UTF-8 text") from None
        if not password:
            raise UsageError(f"the password file {self.path} is empty")
        return (self.username, password) if self.username else (password,)


class CredentialAdapter(CredentialProvider):
    """A provider of the application, whose failures become errors of this package and which holds up no event loop."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        made = getattr(type(provider), "get_credentials_async", None)
        self._is_blocking = made in (None, CredentialProvider.get_credentials_async)

    def get_credentials(self) -> Credentials:
        """What the provider says now.

        Raises:
            StoreUnavailable: it can't reach something.
            UsageError: it fails.
        """
        with _failures_named():
            return cast(Credentials, self._provider.get_credentials())

    async def get_credentials_async(self) -> Credentials:
        """The same; a provider that blocks does so in a thread."""
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
