"""Addresses of Redis: URLs, client objects and the environment, and passwords that are never shown."""

from __future__ import annotations

import re
import ssl
import urllib.parse
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.sentinel
from hypothesis import given
from hypothesis import strategies as st

from schedq import Queue, UsageError
from schedq.connection.address import Address, hosts_of

REAL_SPLIT = urllib.parse.urlsplit


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCHEDQ_REDIS_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)


def connects_to(place: object) -> dict[str, Any]:
    """The settings of a new connection that select the server, the database and the user."""
    made = Address(place).find("").connection("name")
    where = ("host", "port", "path", "db", "username", "password")
    return {name: value for name in where if (value := getattr(made, name, None)) not in (None, "")}


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://", {"host": "localhost", "port": 6379, "db": 0}),
        ("redis://example.org", {"host": "example.org", "port": 6379, "db": 0}),
        ("redis://example.org:7000/3", {"host": "example.org", "port": 7000, "db": 3}),
        ("redis://ada:p%40ss@h/1", {"host": "h", "port": 6379, "db": 1, "username": "ada", "password": "p@ss"}),
        ("rediss://:pw@h:1", {"host": "h", "port": 1, "db": 0, "password": "pw"}),
        ("unix:///tmp/r.sock?db=2", {"path": "/tmp/r.sock", "db": 2}),
        ("unix://:pw@/tmp/r.sock", {"path": "/tmp/r.sock", "db": 0, "password": "pw"}),
        ("unix:///tmp/r@2.sock", {"path": "/tmp/r@2.sock", "db": 0}),
        ("redis://h?password=p@ss&db=4", {"host": "h", "port": 6379, "db": 4, "password": "p@ss"}),
        ("redis://[::1]:7/2", {"host": "::1", "port": 7, "db": 2}),
        ("redis://h/0\n", {"host": "h", "port": 6379, "db": 0}),
        ("redis://h/0?socket_timeout=1&retry_on_timeout=yes&protocol=3", {"host": "h", "port": 6379, "db": 0}),
    ],
)
def test_a_url_names_the_server_and_the_user(url: str, where: dict[str, Any]):
    assert connects_to(url) == where


@pytest.mark.parametrize(
    ("place", "db"),
    [
        ("redis://h", 0),
        ("redis://h/7", 7),
        ("redis://h?db=7", 7),
        ("unix:///tmp/r.sock?db=2", 2),
        ("redis+sentinel://h/service/4", 4),
        ("redis+sentinel://h/service?db=4", 4),
        ("redis+cluster://h", 0),
        ("embedded://", 0),
        (redis.Redis(db=3), 3),
        (redis.asyncio.Redis(db=3), 3),
        (redis.Redis(), 0),
        (redis.sentinel.Sentinel([("h", 1)]).master_for("service", db=5), 5),
        (redis.sentinel.Sentinel([("h", 1)]).master_for("service"), 0),
    ],
)
def test_its_database_is_known_without_connecting(place: object, db: int):
    assert Address(place).db == db
    assert Queue("mail", redis=place).settings.keys.events == f"queue:mail:db{db}:events".replace("db0:", "").replace(
        "queue:mail", "queue:{mail}" if Address(place).is_cluster else "queue:mail"
    )


def test_a_client_whose_database_is_not_a_number_is_refused():
    with pytest.raises(UsageError, match="database must be a number, got 'first'"):
        Queue("mail", redis=redis.Redis(db="first"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        *("http://h", "h:6379", "", "redis:/h", "redis://h:port", "redis://h:99999", "unix://", "mem://", "redis//h"),
        *("redis://h/mail", "redis://h/-1", "redis://a:1,b:2", "redis://::1", "redis://h/0#1"),
    ],
)
def test_an_invalid_url_is_refused(url: str):
    with pytest.raises(UsageError, match="URL"):
        Address(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("rediss://h?ssl_cert_reqs=NONE", "ssl_cert_reqs must be required, optional, none; got 'NONE'"),
        ("rediss+cluster://a,b?ssl_cert_reqs=0", "ssl_cert_reqs must be required, optional, none; got '0'"),
        ("rediss+sentinel://h/main?ssl_cert_reqs=No", "ssl_cert_reqs must be required, optional, none; got 'No'"),
        ("rediss://h?ssl_certs=x", "there is no option ssl_certs"),
        ("redis://h?ssl_cert_reqs=none", "ssl_cert_reqs: these options need TLS"),
        ("unix:///tmp/r.sock?ssl_ca_certs=x", "ssl_ca_certs: these options need TLS"),
        ("rediss://h?ssl_min_version=TLSv1_2", "the value of ssl_min_version is invalid"),
        ("redis://h?db=x", "the value of db is invalid"),
        ("redis://a..b:1", "the host must be a name or an address"),
        (f"redis://{'a' * 64}", "the host must be a name or an address"),
    ],
)
def test_a_url_with_options_that_no_connection_accepts_is_refused(url: str, reason: str):
    with pytest.raises(UsageError, match=f"Redis URL '.*{re.escape(reason)}"):
        Address(url)


def test_a_url_may_set_the_lowest_tls_version():
    assert Address("rediss://h?ssl_min_version=771")._target.settings["ssl_min_version"] == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("place", [5, b"redis://h", ["redis://h"], object()])
def test_only_urls_and_clients_are_accepted(place: object):
    with pytest.raises(UsageError, match="redis must be a URL or a redis-py client"):
        Address(place)


def test_without_an_argument_the_environment_names_the_server(monkeypatch: pytest.MonkeyPatch):
    assert Address().is_default
    assert Address().label == "redis://localhost:6379/0"
    monkeypatch.setenv("REDIS_URL", "redis://general/1")
    assert (Address().label, Address().is_default) == ("redis://general:6379/1", False)
    monkeypatch.setenv("SCHEDQ_REDIS_URL", "redis://special/2")
    assert Address().label == "redis://special:6379/2"
    assert Address("redis://given/3").label == "redis://given:6379/3"


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
@pytest.mark.parametrize("url", ["redis://ada:pw@h:7/3", "rediss://h", "unix:///tmp/r.sock"])
def test_of_a_client_only_the_address_and_the_user_are_used(kind: Any, url: str):
    client = kind.from_url(url, socket_timeout=0.1, decode_responses=False, protocol=3, retry_on_error=[OSError])

    address = Address(client)
    made = address.find("").connection("name")

    assert address.label == Address(url).label
    assert connects_to(client) == connects_to(url)
    assert made.socket_timeout == 5.0
    assert made.retry.get_retries() == 0


@pytest.mark.parametrize(
    ("url", "label", "way"),
    [
        ("redis+cluster://h", "redis+cluster://h:6379", {}),
        ("redis+cluster://a:1,b:2,[::1]:3/0", "redis+cluster://a:1,b:2,[::1]:3", {}),
        ("rediss+cluster://ada:p%40ss@a:1,b", "rediss+cluster://a:1,b:6379", {"username": "ada", "password": "p@ss"}),
        (
            "rediss+cluster://h?ssl_cert_reqs=none&socket_timeout=1",
            "rediss+cluster://h:6379",
            {"ssl_cert_reqs": "none"},
        ),
        ("redis+sentinel://a/main", "redis+sentinel://a:26379/main", {"db": 0}),
        ("redis+sentinel://:pw@a:1,b:2/main/3", "redis+sentinel://a:1,b:2/main/3", {"password": "pw", "db": 3}),
        ("redis+sentinel://a/main?db=3", "redis+sentinel://a:26379/main/3", {"db": 3}),
        ("rediss+sentinel://a/my%20main", "rediss+sentinel://a:26379/my main", {"db": 0}),
    ],
)
def test_a_url_may_name_a_cluster_or_sentinels(url: str, label: str, way: dict[str, Any]):
    address = Address(url)

    assert address.label == label
    assert address.is_cluster == ("cluster" in url)
    assert address._target.template.settings == way


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a:1,b:2,[::1]:3", (("a", 1), ("b", 2), ("::1", 3))),
        ("[::1]:3,a", (("::1", 3), ("a", None))),
        ("[::1],[2001:db8::2]:7,[fe80::1%25eth0]", (("::1", None), ("2001:db8::2", 7), ("fe80::1%eth0", None))),
        ("Redis-1.Example.ORG:", (("redis-1.example.org", None),)),
        ("", (("", None),)),
    ],
)
def test_a_list_of_hosts_may_have_ipv6_addresses_anywhere(text: str, hosts: tuple[tuple[str, int | None], ...]):
    assert hosts_of(text) == hosts


@pytest.mark.parametrize(
    "text", ["::1", "[::1", "::1]", "[::1]7", "[a]:1", "[]", "a:b", "a:1:2", "a:65536", "a:-1", "a:²", "a[::1]"]
)
def test_an_invalid_list_of_hosts_is_refused(text: str):
    with pytest.raises(UsageError, match="can't be read"):
        Address(f"redis+cluster://b:1,{text}")


@pytest.mark.parametrize("url", ["redis+cluster://a:1,b:2,[::1]:3", "rediss+sentinel://u:p@a:1,[::1]:3/main"])
def test_a_list_of_hosts_is_never_parsed_by_the_standard_library(url: str, monkeypatch: pytest.MonkeyPatch):
    """Releases of 2025 and later reject an address in brackets next to other hosts."""

    def strict(url: str, *args: Any) -> Any:
        assert "," not in url
        return urllib.parse.SplitResult(*REAL_SPLIT(url, *args))

    monkeypatch.setattr(urllib.parse, "urlsplit", strict)

    assert "[::1]:3" in Address(url).label


def test_sentinels_have_their_own_user():
    address = Address("redis+sentinel://ada:one@h/main?sentinel_username=sam&sentinel_password=two")

    (sentinel,) = address._target.sentinels
    assert sentinel.settings == {"host": "h", "port": 26379, "username": "sam", "password": "two"}
    (sentinel,) = Address("redis+sentinel://ada:one@h/main")._target.sentinels
    assert sentinel.settings == {"host": "h", "port": 26379}


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis+cluster://h/3", "a cluster has database 0 only, not 3"),
        ("redis+cluster://h?db=3", "a cluster has database 0 only, not 3"),
        ("redis+cluster://", "a host is missing"),
        ("redis+cluster://a:1,,b:2", "a host is missing"),
        ("redis+cluster://a:port", "can't be read"),
        ("redis+cluster://a:99999", "can't be read"),
        ("redis+sentinel://a:1,b:2", "names no service; write redis\\+sentinel://HOST:26379/SERVICE"),
        ("rediss+sentinel://a/", "names no service; write rediss\\+sentinel://HOST:26379/SERVICE"),
        ("redis+sentinel://a/main/x", "must be a number, not 'x'"),
        ("redis+sentinel:///main", "a host is missing"),
        ("unix+cluster:///tmp/s", "unknown Redis URL scheme in 'unix\\+cluster:"),
    ],
)
def test_an_invalid_url_of_several_hosts_is_refused(url: str, reason: str):
    with pytest.raises(UsageError, match=reason):
        Address(url)


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_a_queue_knows_from_its_url_whether_its_keys_share_a_slot(kind: str):
    queue = Queue("mail", redis=f"redis+{kind}://h/0")

    assert queue.settings.tagged == (kind == "cluster")
    assert queue.aio.settings is queue.settings
    assert queue.settings.keys.pending == ("queue:{mail}:pending" if kind == "cluster" else "queue:mail:pending")


SECRETS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=6, max_size=20).map("zq".__add__)


@given(
    SECRETS,
    st.sampled_from(
        [
            *(
                "redis://u:{}@h:port/0",
                "redis://:{}@h:99999",
                "http://u:{}@h",
                "{}@h:x",
                "redis//u:{}@h",
                "unix://u:{}@",
            ),
            *("redis+cluster://u:{}@h:1,i:port", "redis+cluster://u:{}@h/3", "redis+sentinel://u:{}@h"),
            *("redis+sentinel://h?sentinel_password={}", "redis+sentinel://h:port/s?sentinel_password={}"),
        ]
    ),
)
def test_an_error_about_a_url_never_shows_its_password(secret: str, url: str):
    with pytest.raises(UsageError) as refused:
        Address(url.format(secret))

    assert secret not in str(refused.value) + repr(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    "url", ["redis://ada:{}@h/0", "redis+cluster://:{}@h", "redis+sentinel://a:{0}@h/main?sentinel_password={0}"]
)
@given(secret=SECRETS)
def test_no_text_that_is_shown_contains_the_password(url: str, secret: str):
    queue = Queue("mail", redis=url.format(secret))

    assert secret not in repr(queue) + repr(queue.address) + queue.address.label + repr(queue.address._target)


def test_equal_addresses_compare_equal():
    assert Address("redis://h/0") == Address("redis://h:6379/0")
    assert Address("redis://h/1") != Address("redis://h/2")
    assert len({Address("redis://h/1"), Address("redis://h/1"), Address("redis://h/2")}) == 2
