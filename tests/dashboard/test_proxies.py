"""Logins by a proxy: its header counts from its address only, and its users are named in the log."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import redis
from starlette.requests import Request

from schedq import Queue, UsageError
from schedq.dashboard import create_app
from schedq.dashboard.proxies import MOST_NAME, TrustedProxy
from tests.cases import for_each
from tests.dashboard.conftest import TOKEN, Served, Visitor, fetched

Serve = Callable[..., Served]
SSO: dict[str, Any] = {"user_header": "X-Forwarded-User", "trusted_proxies": ["127.0.0.0/8"]}
ELSEWHERE: dict[str, Any] = {**SSO, "trusted_proxies": ["10.0.0.0/8"]}
ADA = {"x-forwarded-user": "ada"}
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("options", "headers", "code", "named"),
    [
        (SSO, ADA, 200, ""),
        (SSO, {}, 403, "sent no user in the header X-Forwarded-User: log in there"),
        (SSO, {"x-forwarded-user": ""}, 403, "sent no user"),
        (SSO, {"x-user": "ada"}, 403, "sent no user"),
        (SSO, {"x-forwarded-user": "a" * (MOST_NAME + 1)}, 403, "more than 200 characters"),
        (SSO, [("x-forwarded-user", "ada"), ("x-forwarded-user", "eve")], 403, "more than once"),
        (ELSEWHERE, ADA, 403, "only through the proxy"),
        (ELSEWHERE, ADA | {"x-forwarded-for": "10.0.0.1", "forwarded": "for=10.0.0.1"}, 403, "only through the proxy"),
        (ELSEWHERE, {}, 403, "only through the proxy"),
        (ELSEWHERE | {"token": TOKEN}, ADA, 401, "A token is required"),
        (ELSEWHERE | {"token": TOKEN}, ADA | BEARER, 200, ""),
        (SSO | {"token": TOKEN}, {}, 403, "sent no user"),
        (SSO | {"token": TOKEN}, BEARER, 200, ""),
        (SSO | {"token": TOKEN}, {"authorization": "Bearer wrong"}, 401, "token is wrong"),
        (SSO | {"token": TOKEN}, ADA | {"authorization": "Bearer of the proxy"}, 200, ""),
        (SSO | {"token": TOKEN}, BEARER | {"x-forwarded-user": ""}, 403, "sent no user"),
    ],
    ids=str,
)
def test_the_header_counts_from_the_proxy_only(
    options: dict[str, Any], headers: Any, code: int, named: str, serve: Serve, queue: Queue
) -> None:
    queue.enqueue(1)
    url = serve(**options).url

    for path in ("/queues/mail", "/api/queues/mail"):
        answer = fetched(url + path, headers=headers)
        assert (answer.status_code, named in answer.text) == (code, True), answer.text
        assert code == 200 or "ada" not in answer.text
    assert fetched(f"{url}/queues/mail", headers={"accept": "text/html"}).status_code in (303, 403)


def test_its_users_are_on_the_page_and_in_the_log(serve: Serve, queue: Queue, raw: redis.Redis) -> None:
    queue.enqueue(1)
    visitor = Visitor(serve(**SSO, token=TOKEN).url, **ADA)

    assert '<span class="tag">ada</span>' in visitor.page("/")
    assert "/logout" not in visitor.page("/")
    visitor.do("pause")

    assert {fields.get("who") for _, fields in raw.xrange("queue:mail:log")} - {None} == {"ada"}
    assert fetched(f"{visitor.origin}/queues/mail/act", headers=ADA).status_code == 404


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (b"<b>\x85\x9b31m", "<b>\\x85\\x9b31m"),
        ("\u202egpj.exe".encode(), "\\u202egpj.exe"),
        ("Åse Ñandú".encode(), "Åse Ñandú"),
        (b"Jos\xe9", "José"),
        (b"\ttabbed\x7f ", "tabbed\\x7f"),
    ],
    ids=str,
)
def test_control_characters_of_a_name_are_escaped(sent: bytes, shown: str) -> None:
    scope: Any = {"type": "http", "headers": [(b"x-forwarded-user", sent)], "client": ("127.0.0.1", 1)}
    proxy = TrustedProxy("X-Forwarded-User", ["127.0.0.1"])

    assert (proxy.problem(Request(scope)), proxy.user(Request(scope))) == ("", shown)


def test_where_a_proxy_may_be() -> None:
    def sent(networks: list[str], host: str | None) -> bool:
        scope: Any = {"type": "http", "headers": [], "client": None if host is None else (host, 1)}
        return TrustedProxy("x-user", networks).sent(Request(scope))

    assert sent(["10.0.0.0/8", "192.0.2.1"], "192.0.2.1")
    assert sent(["10.0.0.0/8"], "10.255.0.1")
    assert sent(["10.0.0.0/8"], "::ffff:10.0.0.1")
    assert sent(["fd00::/8"], "fd00::1%eth0")
    assert sent(["unix"], None)
    assert sent(["unix"], "")
    assert not sent(["10.0.0.0/8"], "11.0.0.1")
    assert not sent(["10.0.0.0/8"], "::1")
    assert not sent(["10.0.0.0/8"], None)
    assert not sent(["10.0.0.0/8"], "10.0.0.1.evil.example")
    assert not sent(["unix"], "127.0.0.1")


@for_each(
    [
        ({"user_header": "X-User"}, "give both"),
        ({"trusted_proxies": ["10.0.0.0/8"]}, "give both"),
        ({"user_header": "", "trusted_proxies": ["10.0.0.0/8"]}, "give both"),
        (SSO | {"user_header": "X User"}, "'X User' is not the name of a header"),
        (SSO | {"trusted_proxies": ["10.0.0.1/8"]}, "'10.0.0.1/8' is no address or network"),
        (SSO | {"trusted_proxies": ["proxy.example"]}, "'proxy.example' is no address"),
        (SSO | {"trusted_proxies": ["0.0.0.0/0"]}, "would let everyone choose a name"),
        (SSO | {"trusted_proxies": "::/0"}, "would let everyone choose a name"),
        (SSO | {"auth": lambda request: "me"}, "not both"),
    ]
)
def test_options_that_make_no_sense_are_refused(case: tuple[dict[str, Any], str]) -> None:
    options, named = case
    with pytest.raises(UsageError, match=re.escape(named)):
        create_app("redis://127.0.0.1:1/0", **options)
