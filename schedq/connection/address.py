"""Where Redis is: a URL, or a client object that is taken for its connection settings."""

from __future__ import annotations

import os
import re
from typing import Any, Final
from urllib.parse import urlsplit

import redis
import redis.asyncio.connection as async_connections
import redis.connection as connections
from redis.backoff import NoBackoff
from redis.retry import Retry

from schedq import embedded
from schedq.errors import UsageError

DEFAULT_URL: Final = "redis://localhost:6379/0"
SCHEMES: Final = ("redis", "rediss", "unix", "embedded")
REPLY_S: Final = 5.0
"""Seconds to wait for a reply, or for a connection, before the connection is given up."""

_TAKEN: Final = frozenset({"host", "port", "path", "db", "username", "password", "credential_provider"})


class Address:
    """Where a queue's Redis is, without a connection to it.

    Attributes:
        label: the place for messages; never holds a password.
        is_default: nobody named a place.
    """

    def __init__(self, place: object = None) -> None:
        """Take a URL, a redis-py client, or None for the environment's URL, else localhost.

        Raises:
            UsageError: the URL's scheme is unknown or the URL can't be read.
        """
        self.is_default = False
        if place is None:
            place = os.environ.get("SCHEDQ_REDIS_URL") or os.environ.get("REDIS_URL")
            self.is_default = place is None
        self._embedded_url = ""
        self._settings: dict[str, Any] = {}
        self._kind = "Connection"
        if place is None or isinstance(place, str):
            self._read_url(DEFAULT_URL if place is None else place)
        elif isinstance(place, (redis.Redis, redis.asyncio.Redis)):
            self._read_client(place)
        else:
            raise UsageError(f"redis must be a URL or a redis-py client, got {type(place).__name__}")
        self.label = self._label()

    def __repr__(self) -> str:
        return f"Address({self.label!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and (self._kind, self._embedded_url, self._settings) == (
            other._kind,
            other._embedded_url,
            other._settings,
        )

    def __hash__(self) -> int:
        return hash((self._kind, self.label))

    def connection(self, name: str) -> connections.Connection:
        """A new blocking connection that is not connected yet; `name` is shown by CLIENT LIST."""
        kind = getattr(connections, self._kind)
        made: connections.Connection = kind(**self._arguments(name), socket_timeout=REPLY_S, retry=_no_retry())
        return made

    def async_connection(self, name: str) -> async_connections.Connection:
        """The same for asyncio. It has no timeout of its own for replies: its line keeps time."""
        kind = getattr(async_connections, self._kind)
        made: async_connections.Connection = kind(**self._arguments(name), socket_timeout=None)
        return made

    @property
    def is_embedded(self) -> bool:
        """Whether the server behind this address is ours to start."""
        return bool(self._embedded_url)

    def start_server(self) -> None:
        """Start the embedded server that this address means, if it does not run; it may block for a while.

        Raises:
            StoreUnavailable: it can't be started.
        """
        if self.is_embedded:
            self._settings["path"] = embedded.ensure_server(self._embedded_url)

    def _arguments(self, name: str) -> dict[str, Any]:
        keepalive = {} if self._kind == "UnixDomainSocketConnection" else {"socket_keepalive": True}
        return {
            **self._settings,
            **keepalive,
            "client_name": name,
            "driver_info": None,
            "socket_connect_timeout": REPLY_S,
            "protocol": 2,
            "decode_responses": True,
            "encoding_errors": "surrogateescape",
            "health_check_interval": 0,
        }

    def _read_url(self, url: str) -> None:
        scheme = url.partition("://")[0] if "://" in url else ""
        if scheme not in SCHEMES:
            raise UsageError(
                f"unknown Redis URL scheme in {_without_secret(url)!r}; use one of "
                + ", ".join(f"{known}://" for known in SCHEMES)
            )
        if scheme == "embedded":
            # Made absolute now: the working folder may be another one when a connection is lost and made anew.
            self._embedded_url = f"embedded://{embedded.data_directory(url)}"
            self._kind = "UnixDomainSocketConnection"
            return
        read = _read(url)
        if read is None:
            raise UsageError(
                f"Redis URL {_without_secret(url)!r} can't be read: the port and the database must be numbers, and "
                "@ : / ? # in a user name or password be written as %40 %3A %2F %3F %23"
            )
        port, given = read
        self._kind = given.pop("connection_class", connections.Connection).__name__
        self._settings = {key: value for key, value in given.items() if key in _TAKEN or key.startswith("ssl_")}
        if self._kind == "UnixDomainSocketConnection":
            if not self._settings.get("path"):
                raise UsageError(f"Redis URL {_without_secret(url)!r} names no socket; write unix:///path/to/socket")
        else:
            self._settings["port"] = port or 6379

    def _read_client(self, client: Any) -> None:
        pool = client.connection_pool
        self._settings = {
            key: value
            for key, value in pool.connection_kwargs.items()
            if (key in _TAKEN or key.startswith("ssl_")) and value is not None
        }
        kind = pool.connection_class
        for name in ("UnixDomainSocketConnection", "SSLConnection", "Connection"):
            if issubclass(kind, (getattr(connections, name), getattr(async_connections, name))):
                self._kind = name
                return
        raise UsageError(f"the client's connections are of an unknown class, {kind.__name__}; pass a URL instead")

    def _label(self) -> str:
        if self._embedded_url:
            return self._embedded_url
        db = self._settings.get("db", 0) or 0
        if self._kind == "UnixDomainSocketConnection":
            return f"unix://{self._settings.get('path')}" + (f"?db={db}" if db else "")
        scheme = "rediss" if self._kind == "SSLConnection" else "redis"
        return f"{scheme}://{self._settings.get('host', 'localhost')}:{self._settings.get('port', 6379)}/{db}"


def _no_retry() -> Retry:
    return Retry(NoBackoff(), 0)


def _read(url: str) -> tuple[int | None, dict[str, Any]] | None:
    """The port and all that the library finds in a URL; None if it makes no sense: the error may quote the password."""
    try:
        return urlsplit(url).port, connections.parse_url(url)  # the port says so when it is no number
    except ValueError:
        return None


def _without_secret(url: str) -> str:
    """Scheme and host of a URL that makes no sense; whatever else it holds may be a password, or a piece of one."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    if re.search("[/?#].*@", rest) or not re.fullmatch("[A-Za-z0-9+.-]*", scheme):
        return "…"
    host = re.split("[:/?#]", rest.rpartition("@")[2])[0]
    return f"{scheme}{mark}{host}"
