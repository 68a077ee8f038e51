"""One server: how connections to it are made, and a single question to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import redis.asyncio.connection as async_connections
import redis.connection as connections
from redis.backoff import NoBackoff
from redis.retry import Retry

from schedq.connection import resolver
from schedq.connection.credentials import Guarded
from schedq.logger import log

REPLY_S: Final = 5.0
"""Seconds to wait for a reply, or for a connection, before the connection is given up."""
SEARCH_S: Final = 1.5
"""The same for each server that is only asked where another one is: the next may know."""
_warned_of: Final[set[str]] = set()
_ASYNC_KINDS: Final[Mapping[str, Any]] = {
    "Connection": resolver.TcpConnection,
    "SSLConnection": resolver.TlsConnection,
    "UnixDomainSocketConnection": async_connections.UnixDomainSocketConnection,
}


@dataclass(frozen=True)
class Place:
    """One server, without a connection to it.

    Attributes:
        kind: the client library's class of connections.
        settings: where it is, who asks, and how TLS is done.
        label: the place for messages; never holds a password.
        must_show_role: a Sentinel named it, and may be wrong for a while: it must say itself that it is the primary.
    """

    kind: str
    settings: Mapping[str, Any] = field(repr=False)
    label: str = field(default="", compare=False)
    must_show_role: bool = False
    is_default = False

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self._label())

    def at(self, host: str, port: int) -> Place:
        """Another server, reached in the same way."""
        return replace(self, settings={**self.settings, "host": host, "port": port}, label="")

    def connection(self, name: str, reply_s: float | None = None) -> connections.Connection:
        """A new blocking connection that is not connected yet; `name` is shown by CLIENT LIST."""
        self._warn_of_strangers()
        kind, limit = getattr(connections, self.kind), reply_s or REPLY_S
        made: connections.Connection = kind(
            **self._arguments(name, limit), socket_timeout=limit, retry=Retry(NoBackoff(), 0)
        )
        return made

    def async_connection(self, name: str) -> async_connections.Connection:
        """The same for asyncio. It has no timeout of its own for replies: its line keeps time."""
        self._warn_of_strangers()
        made: async_connections.Connection = _ASYNC_KINDS[self.kind](
            **self._arguments(name, REPLY_S), socket_timeout=None
        )
        return made

    def ask(self, *commands: tuple[str | int, ...]) -> list[Any]:
        """The replies to some commands, over a short connection of their own. It blocks.

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

    def _warn_of_strangers(self) -> None:
        """Say once per process that this may be another server than the one that is meant."""
        if self.kind != "SSLConnection" or self.label in _warned_of:
            return
        if self.settings.get("ssl_cert_reqs") in ("none", 0):  # ssl.CERT_NONE is 0
            _warned_of.add(self.label)
            log.warning(
                "%s: its certificate is not verified (ssl_cert_reqs=none), so anybody on the way can read and change "
                "jobs, and learn the password; ?ssl_ca_certs=FILE names a CA of your own",
                self.label,
            )
        elif self.settings.get("ssl_check_hostname") is False:
            _warned_of.add(self.label)
            log.warning(
                "%s: the name in its certificate is not verified (ssl_check_hostname=false), so any server that has a "
                "certificate of that CA can take its place",
                self.label,
            )

    def _arguments(self, name: str, connect_s: float) -> dict[str, Any]:
        keepalive = {} if self.kind == "UnixDomainSocketConnection" else {"socket_keepalive": True}
        provider = self.settings.get("credential_provider")
        return {
            **self.settings,
            **({} if provider is None else {"credential_provider": Guarded(provider)}),
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


def joined(host: str, port: int | str) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
