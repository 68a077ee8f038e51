"""Where Redis is: URLs, client objects, the environment; and passwords that are never shown."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st

from schedq import Queue, UsageError
from schedq.connection.address import Address


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCHEDQ_REDIS_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)


def connects_to(place: object) -> dict[str, Any]:
    """What a connection is made with, of the settings that say where."""
    made = Address(place).connection("name")
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
        ("redis://h/0?socket_timeout=1&retry_on_timeout=yes&protocol=3", {"host": "h", "port": 6379, "db": 0}),
    ],
)
def test_a_url_says_where(url: str, where: dict[str, Any]):
    assert connects_to(url) == where


@pytest.mark.parametrize(
    "url", ["http://h", "h:6379", "", "redis:/h", "redis://h:port", "redis://h:99999", "unix://", "mem://", "redis//h"]
)
def test_a_url_that_makes_no_sense_is_refused(url: str):
    with pytest.raises(UsageError, match="URL"):
        Address(url)


@pytest.mark.parametrize("place", [5, b"redis://h", ["redis://h"], object()])
def test_what_is_no_place_is_refused(place: object):
    with pytest.raises(UsageError, match="redis must be a URL or a redis-py client"):
        Address(place)


def test_without_an_argument_the_environment_says_where(monkeypatch: pytest.MonkeyPatch):
    assert Address().is_default
    assert Address().label == "redis://localhost:6379/0"
    monkeypatch.setenv("REDIS_URL", "redis://general/1")
    assert (Address().label, Address().is_default) == ("redis://general:6379/1", False)
    monkeypatch.setenv("SCHEDQ_REDIS_URL", "redis://special/2")
    assert Address().label == "redis://special:6379/2"
    assert Address("redis://given/3").label == "redis://given:6379/3"


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
@pytest.mark.parametrize("url", ["redis://ada:pw@h:7/3", "rediss://h", "unix:///tmp/r.sock"])
def test_a_client_is_taken_for_where_it_connects_only(kind: Any, url: str):
    client = kind.from_url(url, socket_timeout=0.1, decode_responses=False, protocol=3, retry_on_error=[OSError])

    address = Address(client)
    made = address.connection("name")

    assert address.label == Address(url).label
    assert connects_to(client) == connects_to(url)
    assert made.socket_timeout == 5.0
    assert made.retry.get_retries() == 0


SECRETS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=6, max_size=20).map("zq".__add__)


@given(
    SECRETS,
    st.sampled_from(
        ["redis://u:{}@h:port/0", "redis://:{}@h:99999", "http://u:{}@h", "{}@h:x", "redis//u:{}@h", "unix://u:{}@"]
    ),
)
def test_an_error_about_a_url_never_shows_its_password(secret: str, url: str):
    with pytest.raises(UsageError) as refused:
        Address(url.format(secret))

    assert secret not in str(refused.value) + repr(refused.value)
    assert refused.value.__cause__ is None


@given(SECRETS)
def test_nothing_that_is_shown_has_the_password(secret: str):
    queue = Queue("mail", redis=f"redis://ada:{secret}@example.org/0")

    assert secret not in repr(queue) + repr(queue.address) + queue.address.label


def test_equal_places_are_equal():
    assert Address("redis://h/0") == Address("redis://h:6379/0")
    assert Address("redis://h/1") != Address("redis://h/2")
    assert len({Address("redis://h/1"), Address("redis://h/1"), Address("redis://h/2")}) == 2
