"""Places as URLs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn
from urllib.parse import unquote, urlsplit

import redis.connection as connections

from schedq import embedded
from schedq.connection.cluster import Cluster
from schedq.connection.own_server import OwnServer
from schedq.connection.place import Place
from schedq.connection.sentinel import Sentinels
from schedq.errors import UsageError

SCHEMES: Final = (
    "redis",
    "rediss",
    "unix",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
    "embedded",
)
REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
WHO: Final = frozenset({"username", "password", "credential_provider"})
"""Settings of a client or a URL that say who asks; beside those that begin with `ssl_`."""
WHERE: Final = frozenset({"host", "port", "path", "db"})
"""Settings that say where it leads."""
_USER: Final = ("username", "password")
_STRAY_AT: Final = re.compile("[/?#].*@")


def read(url: str) -> Place | OwnServer | Cluster | Sentinels:
    """What a URL means.

    Raises:
        UsageError: its scheme is unknown, or it can't be read; the message has no password.
    """
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme not in SCHEMES:
        raise UsageError(
            f"unknown Redis URL scheme in {without_secret(url)!r}; use one of "
            + ", ".join(f"{known}://" for known in SCHEMES)
        )
    if scheme == "embedded":
        # Made absolute now: the working folder may be another one when a connection is lost and made anew.
        return OwnServer(f"embedded://{embedded.data_directory(url)}")
    parts = _read(url)
    if parts is None:
        raise UsageError(
            f"Redis URL {without_secret(url)!r} can't be read: the port and the database must be numbers, and "
            "@ : / ? # in a user name or password be written as %40 %3A %2F %3F %23"
        )
    if scheme.endswith("+cluster"):
        return _cluster(parts)
    return _sentinels(parts) if scheme.endswith("+sentinel") else _single(parts)


def taken(given: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """The settings of these names, and those about TLS.

    Raises:
        UsageError: certificates are to be checked by OCSP.
    """
    ocsp = {name for name in given if "_ocsp" in name}
    if any(given[name] for name in ocsp):
        # Only blocking connections can; to leave the check out would trust whom the user does not.
        raise UsageError(f"{', '.join(sorted(ocsp))}: schedq can't check certificates by OCSP")
    wanted = {name for name in given if name in names or name.startswith("ssl_")} - ocsp
    return {name: given[name] for name in given if name in wanted and given[name] is not None}


def without_secret(url: str) -> str:
    """Scheme and host of a URL that makes no sense; whatever else it holds may be a password, or a piece of one."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    if _STRAY_AT.search(rest) or not re.fullmatch("[A-Za-z0-9+.-]*", scheme):
        return "…"
    host = re.split("[:/?#]", rest.rpartition("@")[2])[0]
    return f"{scheme}{mark}{host}"


@dataclass(frozen=True)
class _Parts:
    """A URL taken to pieces.

    Attributes:
        url: the whole.
        kind: class of connections.
        given: what the client library found in it; of one of several hosts, without those.
        hosts: each with its port, or None.
        path: without the slash before it.
    """

    url: str
    kind: str
    given: dict[str, Any]
    hosts: tuple[tuple[str, int | None], ...]
    path: str

    def hosts_at(self, port: int) -> Iterator[tuple[str, int]]:
        """Hosts and their ports, this one if they have none.

        Raises:
            UsageError: one is missing.
        """
        for host, own in self.hosts:
            if not host:
                self.refuse("a host is missing; write HOST:PORT, and a comma between two")
            yield host, own or port

    def refuse(self, reason: str) -> NoReturn:
        """Raise it as wrong."""
        raise UsageError(f"Redis URL {without_secret(self.url)!r}: {reason}")


def _read(url: str) -> _Parts | None:
    """The pieces of a URL; None if it makes no sense: the library's error may quote the password."""
    try:
        parts = urlsplit(url)
        user, at, hosts = parts.netloc.rpartition("@")
        found = [urlsplit(f"//{host}") for host in hosts.split(",")]
        pairs = tuple((unquote(one.hostname or ""), one.port) for one in found)  # the port says so when it is no number
        simple, mark, _ = parts.scheme.partition("+")
        if mark and _STRAY_AT.search(url.partition("://")[2]):
            return None
        given = connections.parse_url(f"{simple}://{user}{at}host/?{parts.query}" if mark else url)
    except ValueError:
        return None
    kind = given.pop("connection_class", connections.Connection).__name__
    return _Parts(url, kind, given, pairs, parts.path.strip("/"))


def _single(parts: _Parts) -> Place:
    settings = taken(parts.given, WHO | WHERE)
    if parts.kind != "UnixDomainSocketConnection":
        settings["port"] = settings.get("port", REDIS_PORT)
    elif not settings.get("path"):
        raise UsageError(f"Redis URL {without_secret(parts.url)!r} names no socket; write unix:///path/to/socket")
    return Place(parts.kind, settings)


def _cluster(parts: _Parts) -> Cluster:
    db = parts.path or parts.given.get("db", 0)
    if str(db) != "0":
        parts.refuse(f"a cluster has database 0 only, not {db}")
    return Cluster(Place(parts.kind, taken(parts.given, WHO)), tuple(parts.hosts_at(REDIS_PORT)))


def _sentinels(parts: _Parts) -> Sentinels:
    service, _, db = parts.path.partition("/")
    if not service:
        parts.refuse(f"it names no service; write {parts.url.partition(':')[0]}://HOST:{SENTINEL_PORT}/SERVICE")
    db = db or str(parts.given.get("db", 0))
    if not (db.isascii() and db.isdigit()):
        parts.refuse(f"the database after the service must be a number, not {db!r}")
    way = Place(parts.kind, {**taken(parts.given, WHO), "db": int(db)})
    # Their user is another one than the servers': most have none.
    theirs = {name: value for name in _USER if (value := parts.given.get(f"sentinel_{name}")) is not None}
    asked = Place(parts.kind, {**taken(parts.given, frozenset()), **theirs})
    return Sentinels(way, tuple(asked.at(*host) for host in parts.hosts_at(SENTINEL_PORT)), unquote(service))
