"""The address of a queue's Redis: a URL, or a redis-py client, of which only the settings are read."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn
from urllib.parse import unquote

import redis
import redis.asyncio.connection as async_connections
import redis.asyncio.sentinel as async_sentinel
import redis.connection as connections
import redis.sentinel

from schedq.connection.endpoint import PASSWORD_FILE, Endpoint, PasswordFile
from schedq.connection.resolver import in_thread
from schedq.errors import UsageError

if TYPE_CHECKING:  # imported for an address that needs one of them: most name a single server
    from schedq.connection.existing import Existing
    from schedq.connection.topology import Cluster, EmbeddedEndpoint, Sentinels

DEFAULT_URL: Final = "redis://localhost:6379/0"


class Address:
    """The address of a queue's Redis, without a connection to it.

    Attributes:
        label: the name of this address in messages; never contains a password.
        is_default: neither the caller nor the environment gave an address, so localhost is used.
    """

    def __init__(self, target: object = None) -> None:
        """Read a URL or the settings of a redis-py client.

        Without either, use the URL in SCHEDQ_REDIS_URL or REDIS_URL, and localhost if neither is set.

        Raises:
            UsageError: the URL's scheme is unknown, or the URL is invalid.
        """
        self.is_default = False
        if target is None:
            target = os.environ.get("SCHEDQ_REDIS_URL") or os.environ.get("REDIS_URL")
            self.is_default = target is None
        if target is None or isinstance(target, str):
            self._target = read_url(DEFAULT_URL if target is None else target)
        elif isinstance(target, CLIENTS):
            self._target = read_client(target)
        else:
            raise UsageError(f"redis must be a URL or a redis-py client, got {type(target).__name__}")
        self.label = self._target.label

    def __repr__(self) -> str:
        return f"Address({self.label!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and self._target == other._target

    def __hash__(self) -> int:
        return hash(self.label)

    @property
    def is_cluster(self) -> bool:
        """Whether this is a Redis Cluster. All keys of one queue are on one node, but that node may change."""
        return self._cluster is not None

    @property
    def _cluster(self) -> Cluster | None:
        if isinstance(self._target, Endpoint):
            return None
        from schedq.connection.topology import Cluster

        return self._target if isinstance(self._target, Cluster) else None

    @property
    def db(self) -> int:
        """The number of the database.

        Raises:
            UsageError: the `db` of a client object is not a number.
        """
        template = getattr(self._target, "template", self._target)
        db = template.settings.get("db") or 0 if isinstance(template, Endpoint) else 0
        if not str(db).isdecimal():
            raise UsageError(f"the database must be a number, got {db!r}")
        return int(db)

    def known(self, key: str) -> Endpoint | None:
        """Return the server that holds `key` now if nothing needs to be asked for that; it never blocks."""
        if isinstance(self._target, Endpoint):
            return self._target
        cluster = self._cluster
        return cluster.known(key) if cluster else None

    def find(self, key: str) -> Endpoint:
        """Return the server that holds `key` now. Call it for each new connection, because the server may change.

        It blocks for up to about ten seconds, unless `known` returns the server. It starts an embedded server that is
        not running.

        Raises:
            StoreUnavailable: the server can't be found or started.
            UsageError: the servers that know the address refuse to tell this user.
        """
        return self._target if isinstance(self._target, Endpoint) else self._target.find(key)

    async def locate(self, key: str) -> Endpoint:
        """The same as `find` for event loops; callers at the same time share a thread on a cluster.

        Raises:
            StoreUnavailable, UsageError: as `find`.
        """
        if (known := self.known(key)) is not None:
            return known
        if cluster := self._cluster:
            return await cluster.locate(key)
        return await in_thread(lambda: self.find(key))

    def enlist(self, queue: str, *, again: bool = False) -> None:
        """On a cluster, add a queue's name to the list of queues, without blocking. Elsewhere the handshake does this.

        A process does this once per queue, unless `again` is true.
        """
        if cluster := self._cluster:
            cluster.enlist(queue, again=again)

    def queues(self, *, scan: bool) -> list[str]:
        """Return the names of all queues of a cluster, where each node knows only some of them. It blocks.

        Raises:
            StoreUnavailable, UsageError: as `find`.
        """
        assert self._cluster is not None
        return self._cluster.queues(scan=scan)

    def spread(self, keys: Sequence[str]) -> dict[str, int]:
        """Return how many of the keys each node of a cluster has the slots of, by node. It blocks.

        Raises:
            StoreUnavailable, UsageError: as `find`.
        """
        assert self._cluster is not None
        return self._cluster.spread(keys)

    def existing(self, keys: Sequence[str]) -> Existing:
        """Return which keys a cluster has: each node is asked for its own, a page per round trip. It blocks.

        Raises:
            StoreUnavailable, UsageError: as `find`.
        """
        assert self._cluster is not None
        return self._cluster.existing(keys)


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
CREDENTIALS: Final = frozenset({"username", "password", "credential_provider"})
"""Settings of a client or a URL that hold credentials; those that begin with `ssl_` may hold some, too."""
LOCATION: Final = frozenset({"host", "port", "path", "db"})
"""Settings that select the server and the database."""
_USER: Final = ("username", "password")
_STRAY_AT: Final = re.compile("[/?#].*@", re.DOTALL)
_SHAPE: Final = re.compile(
    r"(?P<scheme>[a-z+]+)://(?:(?P<user>[^/?#\[\]]*)@)?(?P<hosts>[^/?#@]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?"
)
_HOST: Final = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>[0-9]*))?")
_PLAIN_NAME: Final = re.compile(r"[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})*")
_HIGHEST_PORT: Final = 65_535
_VERIFIED: Final = ("required", "optional", "none")
_BAD_VALUE: Final = re.compile(r"Invalid value for '(?P<name>\w+)'")
"""How redis-py names an option of a query whose value is invalid."""
_OPTIONS: Final = frozenset(
    {"client_name", "host", "password", "password_file", "path", "port", "username"}
    | {"sentinel_password", "sentinel_password_file", "sentinel_username"}
)
"""Options that a query may contain, in addition to `ssl_…` and those that redis-py parses as numbers."""


def read_url(url: str) -> Endpoint | EmbeddedEndpoint | Cluster | Sentinels:
    """Parse a URL.

    Raises:
        UsageError: the scheme is unknown, or the URL is invalid; the message contains no password.
    """
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme not in SCHEMES:
        raise UsageError(
            f"unknown Redis URL scheme in {without_secret(url)!r}; use one of "
            + ", ".join(f"{known}://" for known in SCHEMES)
        )
    if scheme == "embedded":
        from schedq import embedded
        from schedq.connection.topology import EmbeddedEndpoint

        # Absolute from now on: the working folder may have changed by the time a lost connection is reopened.
        return EmbeddedEndpoint(f"embedded://{embedded.data_directory(url)}")
    parts = _read(url)
    if parts is None:
        raise UsageError(
            f"Redis URL {without_secret(url)!r} can't be read: the host must be a name or an address, the port and the "
            "database must be numbers, and @ : / ? # [ ] in a user name or password must be written as %40 %3A %2F %3F "
            "%23 %5B %5D"
        )
    if scheme.endswith("+cluster"):
        return _cluster_of_url(parts)
    return _sentinels_of_url(parts) if scheme.endswith("+sentinel") else _server_of_url(parts)


def picked(given: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Return the settings with these names, and those for TLS.

    Raises:
        UsageError: a setting asks for OCSP checks of certificates.
    """
    ocsp = {name for name in given if "_ocsp" in name}
    if any(given[name] for name in ocsp):
        # redis-py does this only on blocking connections. Skipping the check would trust certificates that the user
        # does not trust.
        raise UsageError(f"{', '.join(sorted(ocsp))}: schedq can't check certificates by OCSP")
    wanted = {name for name in given if name in names or name.startswith("ssl_")} - ocsp
    return {name: given[name] for name in given if name in wanted and given[name] is not None}


def without_secret(url: str) -> str:
    """Return the scheme and host of an invalid URL. Any other part of it may be a password, or a piece of one."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    if _STRAY_AT.search(rest) or not re.fullmatch("[A-Za-z0-9+.-]*", scheme):
        return "…"
    host = re.split("[:/?#]", rest.rpartition("@")[2])[0]
    return f"{scheme}{mark}{host}"


class _Parts(NamedTuple):
    """The parts of a URL.

    Attributes:
        url: the complete URL.
        kind: the name of redis-py's connection class.
        given: the user, the password, and the options that redis-py found in the query.
        hosts: each host with its port, or None.
        path: the path without its leading slash.
    """

    url: str
    kind: str
    given: dict[str, Any]
    hosts: tuple[tuple[str, int | None], ...]
    path: str

    def hosts_at(self, port: int) -> Iterator[tuple[str, int]]:
        """Yield each host with its port, or with `port` if the URL gives none.

        Raises:
            UsageError: a host is missing.
        """
        for host, own in self.hosts:
            if not host:
                self.refuse("a host is missing; write HOST:PORT, and separate several with commas")
            yield host, own or port

    def credentials(self, user: Sequence[str], default: str | None = None) -> dict[str, Any]:
        """Remove a user's name and password, or password file, from `given` and return them.

        Args:
            user: the URL's names for the user name and the password.
            default: the password file if the URL has neither a password nor a file.

        Returns:
            The credentials, under redis-py's names.

        Raises:
            UsageError: the URL has both a password and a file.
        """
        name, secret = user
        path = self.given.pop(f"{secret}_file", None)
        if path and secret in self.given:
            self.refuse(f"it has both {secret} and {secret}_file; use only one of them")
        if secret not in self.given and (path := path or default):
            return {"credential_provider": PasswordFile.at(path, self.given.pop(name, None))}
        found = zip(("username", "password"), (self.given.pop(each, None) for each in user), strict=True)
        return {word: value for word, value in found if value is not None}

    def refuse(self, reason: str) -> NoReturn:
        """Raise a UsageError that names the URL and the reason."""
        raise UsageError(f"Redis URL {without_secret(self.url)!r}: {reason}")


def hosts_of(text: str) -> tuple[tuple[str, int | None], ...]:
    """Parse a list of hosts such as `a:1,[::1]:2,b`. Each is returned with its port, or None.

    Raises:
        ValueError: a port is not a number, brackets do not contain an IPv6 address, or a host name is invalid. The
            message may quote a password.
    """
    return tuple(_host(one) for one in text.split(","))


def _host(text: str) -> tuple[str, int | None]:
    found = _HOST.fullmatch(text)
    if not found or int(found["port"] or 0) > _HIGHEST_PORT:
        raise ValueError(f"{text!r} is not HOST:PORT")
    if found["six"] is None:
        name = unquote(found["name"].lower())
        if not _PLAIN_NAME.fullmatch(name):  # the codec's tables take a millisecond to load
            name.encode("idna")  # an invalid name fails here, and not at each connection
    else:
        name = unquote(found["six"])
        IPv6Address(name)
    return name, int(found["port"]) if found["port"] else None


def _read(url: str) -> _Parts | None:
    """Return the parts of a URL; None if it is invalid. No reason is given, because it could quote the password.

    `urllib.parse` handles URLs with one host only: later releases reject an address in brackets next to other hosts.
    """
    shape = _SHAPE.fullmatch(url.strip())
    if not shape or _is_cut_password(shape["hosts"], shape["path"] or "", shape["query"] or "", shape["scheme"]):
        return None
    simple = shape["scheme"].partition("+")[0]
    try:
        hosts = hosts_of(shape["hosts"])
        given = connections.parse_url(f"{simple}://?{shape['query'] or ''}")
        given.pop("credential_provider", None)  # must be an object, which a URL can't contain
        if isinstance(lowest := given.get("ssl_min_version"), str):  # redis-py 8.0 does not convert it to a number
            if not lowest.isdecimal():
                raise ValueError("Invalid value for 'ssl_min_version'")
            given["ssl_min_version"] = int(lowest)
    except ValueError as error:
        if bad := _BAD_VALUE.match(str(error)):
            raise UsageError(f"Redis URL {without_secret(url)!r}: the value of {bad['name']} is invalid") from None
        return None
    user, _, password = (shape["user"] or "").partition(":")
    given |= {name: unquote(value) for name, value in zip(_USER, (user, password), strict=True) if value}
    kind = given.pop("connection_class", connections.Connection).__name__
    path = shape["path"] or ""
    parts = _Parts(url, kind, given, hosts, path if simple == "unix" else path.strip("/"))
    given |= parts.credentials(_USER, os.environ.get(PASSWORD_FILE))
    return parts


def _is_cut_password(hosts: str, path: str, query: str, scheme: str) -> bool:
    """Whether a user name or password seems to contain a raw `/` or `?`, so that part of it was taken for the host.

    An `@` is valid in a socket's path and in the value of a known option. Anywhere else it ends the credentials.
    """
    known = connections.URL_QUERY_ARGUMENT_PARSERS.keys() | _OPTIONS
    names = [item.partition("=")[0] for item in query.split("&") if "@" in item]
    if any(name not in known and not name.startswith("ssl_") for name in names):
        return True
    return "@" in path and (scheme != "unix" or bool(hosts))


def _checked(parts: _Parts, template: Endpoint) -> Endpoint:
    """Return the template if its TLS options are valid.

    Raises:
        UsageError: a TLS option is unknown, has an invalid value, or is given without TLS.
    """
    options = sorted(name for name in template.settings if name.startswith("ssl_"))
    if options and template.kind != "SSLConnection":
        parts.refuse(f"{', '.join(options)}: these options need TLS; a URL with TLS begins with rediss")
    known = inspect.signature(connections.SSLConnection).parameters if options else {}
    if unknown := [name for name in options if name not in known]:
        parts.refuse(f"there is no option {', '.join(unknown)}")
    if (verified := template.settings.get("ssl_cert_reqs", "required")) not in _VERIFIED:
        parts.refuse(f"ssl_cert_reqs must be {', '.join(_VERIFIED)}; got {verified!r}")
    return template


def _server_of_url(parts: _Parts) -> Endpoint:
    settings = picked(parts.given, CREDENTIALS | LOCATION)
    if parts.kind == "UnixDomainSocketConnection":
        settings |= {"path": unquote(parts.path)} if parts.path else {}
        if not settings.get("path"):
            raise UsageError(f"Redis URL {without_secret(parts.url)!r} names no socket; write unix:///path/to/socket")
        return _checked(parts, Endpoint(parts.kind, settings))
    if len(parts.hosts) > 1:
        parts.refuse("a single server has one host; for several, write redis+cluster://… or redis+sentinel://…")
    ((host, port),) = parts.hosts
    db = unquote(parts.path).replace("/", "")
    settings |= {"host": host} if host else {}
    settings["port"] = port or settings.get("port", REDIS_PORT)
    if db and "db" not in settings:
        if not (db.isascii() and db.isdigit()):
            parts.refuse("the database after the host must be a number")
        settings["db"] = int(db)
    return _checked(parts, Endpoint(parts.kind, settings))


def _cluster_of_url(parts: _Parts) -> Cluster:
    from schedq.connection.topology import Cluster

    db = parts.path or parts.given.get("db", 0)
    if str(db) != "0":
        parts.refuse(f"a cluster has database 0 only, not {db}")
    template = _checked(parts, Endpoint(parts.kind, picked(parts.given, CREDENTIALS)))
    return Cluster(template, tuple(parts.hosts_at(REDIS_PORT))).shared()


def _sentinels_of_url(parts: _Parts) -> Sentinels:
    from schedq.connection.topology import Sentinels

    service, _, db = parts.path.partition("/")
    if not service:
        parts.refuse(f"it names no service; write {parts.url.partition(':')[0]}://HOST:{SENTINEL_PORT}/SERVICE")
    db = db or str(parts.given.get("db", 0))
    if not (db.isascii() and db.isdigit()):
        parts.refuse(f"the database after the service must be a number, not {db!r}")
    template = _checked(parts, Endpoint(parts.kind, {**picked(parts.given, CREDENTIALS), "db": int(db)}))
    # Sentinels have users of their own, different from those of the servers; most have none.
    theirs = parts.credentials([f"sentinel_{name}" for name in _USER])
    asked = Endpoint(parts.kind, {**picked(parts.given, frozenset()), **theirs})
    return Sentinels(
        template, tuple(asked.with_address(*host) for host in parts.hosts_at(SENTINEL_PORT)), unquote(service)
    )


CLIENTS: Final = (redis.Redis, redis.asyncio.Redis, redis.RedisCluster, redis.asyncio.RedisCluster)


def read_client(client: Any) -> Endpoint | Cluster | Sentinels:
    """Return the address that a redis-py client uses.

    Raises:
        UsageError: the client's settings can't be read, or it connects to replicas.
    """
    if isinstance(client, (redis.RedisCluster, redis.asyncio.RedisCluster)):
        return _cluster_of_client(client)
    pool = client.connection_pool
    if isinstance(pool, (redis.sentinel.SentinelConnectionPool, async_sentinel.SentinelConnectionPool)):
        return _sentinels_of_client(pool)
    return _server_of_client(pool)


def _server_of_client(pool: Any, where: frozenset[str] = LOCATION) -> Endpoint:
    kind = pool.connection_class
    for name in ("UnixDomainSocketConnection", "SSLConnection", "Connection"):
        if issubclass(kind, (getattr(connections, name), getattr(async_connections, name))):
            return Endpoint(name, picked(pool.connection_kwargs, CREDENTIALS | where))
    raise UsageError(f"the client's connections have an unknown class, {kind.__name__}; pass a URL instead")


def _sentinels_of_client(pool: Any) -> Sentinels:
    from schedq.connection.topology import Sentinels

    if not pool.is_master:
        raise UsageError("the client connects to replicas; pass Sentinel.master_for(…), or a redis+sentinel:// URL")
    template = _server_of_client(pool)
    template = replace(template, settings={"db": 0, **template.settings}, label="")
    sentinels = [
        _server_of_client(client.connection_pool, frozenset({"host", "port"}))
        for client in pool.sentinel_manager.sentinels
    ]
    return Sentinels(template, tuple(sentinels), pool.service_name)


def _cluster_of_client(client: Any) -> Cluster:
    from schedq.connection.topology import Cluster

    given = client.get_connection_kwargs()
    is_tls = given.get("ssl") or issubclass(
        given.get("connection_class", connections.Connection),
        (connections.SSLConnection, async_connections.SSLConnection),
    )
    seeds = [(str(node.host), int(node.port or REDIS_PORT)) for node in client.startup_nodes]
    return Cluster(
        Endpoint("SSLConnection" if is_tls else "Connection", picked(given, CREDENTIALS)), tuple(seeds)
    ).shared()
