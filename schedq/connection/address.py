"""Where Redis is: a URL, or a client object of redis-py, of which only the settings are read."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from typing import Any, Final, NoReturn
from urllib.parse import unquote

import redis
import redis.asyncio.connection as async_connections
import redis.asyncio.sentinel as async_sentinel
import redis.connection as connections
import redis.sentinel

from schedq import embedded
from schedq.connection.endpoint import PASSWORD_FILE, Endpoint, PasswordFile
from schedq.connection.topology import Cluster, EmbeddedEndpoint, Sentinels
from schedq.errors import UsageError

DEFAULT_URL: Final = "redis://localhost:6379/0"


class Address:
    """Where a queue's Redis is, without a connection to it.

    Attributes:
        label: names it in messages; never holds a password.
        is_default: nobody named one.
    """

    def __init__(self, target: object = None) -> None:
        """Take a URL, a redis-py client, or None for the environment's URL, else localhost.

        Raises:
            UsageError: the URL's scheme is unknown or the URL can't be read.
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
        """Whether it is a Redis Cluster: keys are on several servers; those of a queue are on one, which may change."""
        return isinstance(self._target, Cluster)

    @property
    def db(self) -> int:
        """The number of the database.

        Raises:
            UsageError: a client object names one that is no number.
        """
        template = self._target.template if isinstance(self._target, Sentinels) else self._target
        db = template.settings.get("db") or 0 if isinstance(template, Endpoint) else 0
        if not str(db).isdecimal():
            raise UsageError(f"the database must be a number, got {db!r}")
        return int(db)

    @property
    def is_found_by_asking(self) -> bool:
        """Whether `find` may block."""
        return not isinstance(self._target, Endpoint)

    def find(self, key: str) -> Endpoint:
        """The server that holds `key` now: ask again for each connection.

        It blocks for about ten seconds at most, unless `is_found_by_asking` is false. An embedded server is started.

        Raises:
            StoreUnavailable: it can't be found, or not be started.
            UsageError: the servers that know it refuse to say.
        """
        return self._target if isinstance(self._target, Endpoint) else self._target.find(key)

    def enlist(self, queue: str, *, again: bool = False) -> None:
        """On a cluster, add a name to the list of queues; elsewhere the greeting does. It does not block.

        Once per process, unless it is to be done `again`.
        """
        if isinstance(self._target, Cluster):
            self._target.enlist(queue, again=again)

    def queues(self, *, scan: bool) -> list[str]:
        """On a cluster, what `directory.names` is elsewhere: no one server knows them all. It blocks.

        Raises:
            StoreUnavailable, UsageError: as `find`.
        """
        assert isinstance(self._target, Cluster)
        return self._target.queues(scan=scan)


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
"""Settings of a client or a URL that say who logs in; those that begin with `ssl_` do, too."""
LOCATION: Final = frozenset({"host", "port", "path", "db"})
"""Settings that say which server and database."""
_USER: Final = ("username", "password")
_STRAY_AT: Final = re.compile("[/?#].*@", re.DOTALL)
_SHAPE: Final = re.compile(
    r"(?P<scheme>[a-z+]+)://(?:(?P<user>[^/?#\[\]]*)@)?(?P<hosts>[^/?#@]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?"
)
_HOST: Final = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>[0-9]*))?")
_HIGHEST_PORT: Final = 65_535
_VERIFIED: Final = ("required", "optional", "none")
_BAD_VALUE: Final = re.compile(r"Invalid value for '(?P<name>\w+)'")
"""How the client library says which option of a query makes no sense."""
_OPTIONS: Final = frozenset(
    {"client_name", "host", "password", "password_file", "path", "port", "username"}
    | {"sentinel_password", "sentinel_password_file", "sentinel_username"}
)
"""What a query may say, besides `ssl_…` and what the client library parses as numbers."""


def read_url(url: str) -> Endpoint | EmbeddedEndpoint | Cluster | Sentinels:
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
        # Made absolute now: the working folder may be another one when a lost connection is opened again.
        return EmbeddedEndpoint(f"embedded://{embedded.data_directory(url)}")
    parts = _read(url)
    if parts is None:
        raise UsageError(
            f"Redis URL {without_secret(url)!r} can't be read: the host must be a name or an address, the port and the "
            "database must be numbers, and @ : / ? # [ ] in a user name or password be written as %40 %3A %2F %3F %23 "
            "%5B %5D"
        )
    if scheme.endswith("+cluster"):
        return _cluster_of_url(parts)
    return _sentinels_of_url(parts) if scheme.endswith("+sentinel") else _server_of_url(parts)


def picked(given: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
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
        given: user, password and what the client library found in the query.
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

    def credentials(self, user: Sequence[str], default: str | None = None) -> dict[str, Any]:
        """Take a user's name and password, or password file, out of what was given.

        Args:
            user: what the URL calls a user's name and password.
            default: the file of a URL that says neither a password nor a file.

        Returns:
            The settings of that user, in the client library's words.

        Raises:
            UsageError: the URL says both a password and a file.
        """
        name, secret = user
        path = self.given.pop(f"{secret}_file", None)
        if path and secret in self.given:
            self.refuse(f"it says {secret} and {secret}_file; one of the two, please")
        if secret not in self.given and (path := path or default):
            return {"credential_provider": PasswordFile.at(path, self.given.pop(name, None))}
        found = zip(("username", "password"), (self.given.pop(each, None) for each in user), strict=True)
        return {word: value for word, value in found if value is not None}

    def refuse(self, reason: str) -> NoReturn:
        """Raise it as wrong."""
        raise UsageError(f"Redis URL {without_secret(self.url)!r}: {reason}")


def hosts_of(text: str) -> tuple[tuple[str, int | None], ...]:
    """The hosts in `a:1,[::1]:2,b`, each with its port, or None.

    Raises:
        ValueError: a port is no number, brackets hold no IPv6 address, or no host can have such a name; the message may
            quote a password.
    """
    return tuple(_host(one) for one in text.split(","))


def _host(text: str) -> tuple[str, int | None]:
    found = _HOST.fullmatch(text)
    if not found or int(found["port"] or 0) > _HIGHEST_PORT:
        raise ValueError(f"{text!r} is no HOST:PORT")
    if found["six"] is None:
        name = unquote(found["name"].lower())
        name.encode("idna")  # or it fails at each connection
    else:
        name = unquote(found["six"])
        IPv6Address(name)
    return name, int(found["port"]) if found["port"] else None


def _read(url: str) -> _Parts | None:
    """The pieces of a URL; None if it makes no sense: the reason may quote the password.

    The standard library takes only a URL of one host to pieces: later releases refuse the brackets of one among others.
    """
    shape = _SHAPE.fullmatch(url.strip())
    if not shape or _is_cut_password(shape["hosts"], shape["path"] or "", shape["query"] or "", shape["scheme"]):
        return None
    simple = shape["scheme"].partition("+")[0]
    try:
        hosts = hosts_of(shape["hosts"])
        given = connections.parse_url(f"{simple}://?{shape['query'] or ''}")
        given.pop("credential_provider", None)  # an object, which no URL can name
        if isinstance(lowest := given.get("ssl_min_version"), str):  # redis-py 8.0 leaves it as it stands
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
    """Whether a user name or password seems to hold a raw `/` or `?`, so that a piece of it is taken for the host.

    An `@` may stand in the path of a socket and in the value of a known option; elsewhere it ends a user's name.
    """
    known = connections.URL_QUERY_ARGUMENT_PARSERS.keys() | _OPTIONS
    names = [item.partition("=")[0] for item in query.split("&") if "@" in item]
    if any(name not in known and not name.startswith("ssl_") for name in names):
        return True
    return "@" in path and (scheme != "unix" or bool(hosts))


def _checked(parts: _Parts, template: Endpoint) -> Endpoint:
    """The template, if connections can be made so.

    Raises:
        UsageError: an option about TLS is unknown, has a wrong value, or stands where there is no TLS.
    """
    options = sorted(name for name in template.settings if name.startswith("ssl_"))
    if options and template.kind != "SSLConnection":
        parts.refuse(f"{', '.join(options)}: without TLS there is no such option; with TLS the URL begins with rediss")
    known = inspect.signature(connections.SSLConnection).parameters
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
        parts.refuse("a single server has one host; several are written redis+cluster://… or redis+sentinel://…")
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
    db = parts.path or parts.given.get("db", 0)
    if str(db) != "0":
        parts.refuse(f"a cluster has database 0 only, not {db}")
    template = _checked(parts, Endpoint(parts.kind, picked(parts.given, CREDENTIALS)))
    return Cluster(template, tuple(parts.hosts_at(REDIS_PORT)))


def _sentinels_of_url(parts: _Parts) -> Sentinels:
    service, _, db = parts.path.partition("/")
    if not service:
        parts.refuse(f"it names no service; write {parts.url.partition(':')[0]}://HOST:{SENTINEL_PORT}/SERVICE")
    db = db or str(parts.given.get("db", 0))
    if not (db.isascii() and db.isdigit()):
        parts.refuse(f"the database after the service must be a number, not {db!r}")
    template = _checked(parts, Endpoint(parts.kind, {**picked(parts.given, CREDENTIALS), "db": int(db)}))
    # Their user is another one than the servers': most have none.
    theirs = parts.credentials([f"sentinel_{name}" for name in _USER])
    asked = Endpoint(parts.kind, {**picked(parts.given, frozenset()), **theirs})
    return Sentinels(
        template, tuple(asked.with_address(*host) for host in parts.hosts_at(SENTINEL_PORT)), unquote(service)
    )


CLIENTS: Final = (redis.Redis, redis.asyncio.Redis, redis.RedisCluster, redis.asyncio.RedisCluster)


def read_client(client: Any) -> Endpoint | Cluster | Sentinels:
    """What a client leads to.

    Raises:
        UsageError: it is of a kind whose settings can't be read, or leads to replicas.
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
    raise UsageError(f"the client's connections are of an unknown class, {kind.__name__}; pass a URL instead")


def _sentinels_of_client(pool: Any) -> Sentinels:
    if not pool.is_master:
        raise UsageError("the client leads to replicas; pass one of Sentinel.master_for, or a redis+sentinel:// URL")
    template = _server_of_client(pool)
    template = replace(template, settings={"db": 0, **template.settings}, label="")
    sentinels = [
        _server_of_client(client.connection_pool, frozenset({"host", "port"}))
        for client in pool.sentinel_manager.sentinels
    ]
    return Sentinels(template, tuple(sentinels), pool.service_name)


def _cluster_of_client(client: Any) -> Cluster:
    given = client.get_connection_kwargs()
    is_tls = given.get("ssl") or issubclass(
        given.get("connection_class", connections.Connection),
        (connections.SSLConnection, async_connections.SSLConnection),
    )
    seeds = [(str(node.host), int(node.port or REDIS_PORT)) for node in client.startup_nodes]
    return Cluster(Endpoint("SSLConnection" if is_tls else "Connection", picked(given, CREDENTIALS)), tuple(seeds))
