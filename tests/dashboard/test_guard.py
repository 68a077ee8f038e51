"""Access to the dashboard, and the headers of every response."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx
import pytest
import redis
from starlette.requests import Request
from starlette.responses import RedirectResponse

from schedq import Queue, UsageError, __version__
from schedq.dashboard import create_app
from schedq.dashboard.hosts import Hosts, is_loopback
from schedq.dashboard.security import MOST_BODY
from schedq.dashboard.signing import Signer
from tests.dashboard.conftest import NO_TLS, TOKEN, Served, Visitor, fetched
from tests.servers import Server

Serve = Callable[..., Served]
PAGES = ("/", "/queues/mail", "/nothing/here", "/static/dashboard.css", "/queues/mail/jobs/unknown", "/queues/:bad:")
PATHS = (*PAGES, "/api/queues", "/api/queues/mail", "/api/nothing", "/api/openapi.json")
BEARER = {"authorization": f"Bearer {TOKEN}"}
WRONG = {"authorization": "Bearer wrong"}


@pytest.mark.parametrize("path", PATHS)
def test_every_response_has_the_headers_that_keep_a_browser_safe(path: str, visitor: Visitor, queue: Queue):
    headers = visitor.get(path).headers

    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == ("no-cache" if "static" in path else "no-store")


# -- names


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "1.2.3.4"])
def test_an_unknown_host_name_is_refused(host: str, visitor: Visitor):
    answer = visitor.get("/", headers={"host": host})

    assert answer.status_code == 400
    assert "Queues" not in answer.text


def test_local_and_allowed_host_names_are_served(serve: Serve):
    visitor = Visitor(serve(allow_hosts=["queues.example.org"]).url)

    for host in ("localhost:1", "127.0.0.1", "[::1]:8090", "Queues.example.org"):
        assert visitor.get("/", headers={"host": host}).status_code == 200, host


def test_any_ip_address_is_accepted_only_if_configured():
    assert Hosts(any_address=True).allows("192.168.1.7:80")
    assert not Hosts(any_address=True).allows("evil.example")
    assert not Hosts().allows("192.168.1.7:80")


@pytest.mark.parametrize("name", ["http://a", "a:80", "a/b", "", "a b"])
def test_what_can_not_be_a_host_is_refused_at_once(name: str):
    with pytest.raises(UsageError, match="must be a name or an address"):
        create_app(allow_hosts=[name])


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False)],
)
def test_clients_on_this_machine_are_distinguished_from_others(address: str, expected: bool):
    assert is_loopback(address) is expected


def test_without_a_token_requests_through_a_proxy_are_refused(visitor: Visitor):
    assert visitor.get("/", headers={"x-forwarded-for": "10.0.0.1"}).status_code == 403


# -- the token


def test_without_the_token_nothing_is_shown(serve: Serve, queue: Queue):
    queue.enqueue({"secret": "payload"})
    served = serve(token=TOKEN)
    visitor = Visitor(served.url)

    for path in ("/", "/queues/mail/jobs"):
        page = visitor.get(path)
        assert (page.status_code, page.headers["location"].partition("?")[0]) == (303, "/login")
    assert fetched(served.url + "/").status_code == 401
    assert visitor.get("/", headers={"accept": "text/event-stream"}).status_code == 401


def test_the_token_is_shown_in_a_form_or_by_a_program_in_a_header(serve: Serve, queue: Queue):
    url = serve(token=TOKEN).url
    visitor = Visitor(url)

    wrong = visitor.post("/login", {"csrf": visitor.token("/login"), "token": "wrong"})
    assert (wrong.status_code, "token is wrong" in wrong.text) == (401, True)
    right = visitor.post("/login", {"csrf": visitor.token("/login"), "token": TOKEN, "next": "/queues/mail"})
    cookie = right.headers["set-cookie"]

    assert (right.status_code, right.headers["location"]) == (303, "/queues/mail")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert TOKEN not in cookie
    assert "mail" in visitor.page("/queues/mail")
    assert fetched(url, headers=BEARER).status_code == 200
    assert fetched(url, headers=WRONG).status_code == 401
    assert fetched(f"{url}/?token={TOKEN}").status_code == 401


def test_logging_out_ends_it(serve: Serve, queue: Queue):
    visitor = Visitor(serve(token=TOKEN).url)
    visitor.post("/login", {"csrf": visitor.token("/login"), "token": TOKEN})
    assert visitor.get("/").status_code == 200

    visitor.post("/logout", {"csrf": visitor.token("/")})

    assert visitor.get("/").status_code == 303


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_program_may_show_a_token_that_is_not_ascii(encoding: str, serve: Serve, queue: Queue):
    url = serve(token="s\xe9same ouvre-toi").url

    assert fetched(url, headers={b"authorization": "Bearer s\xe9same ouvre-toi".encode(encoding)}).status_code == 200
    assert fetched(url, headers={b"authorization": "Bearer s\xe8same".encode(encoding)}).status_code == 401


def test_a_session_is_invalid_with_another_token_or_when_it_has_expired(monkeypatch: pytest.MonkeyPatch):
    session = Signer(TOKEN).session()
    assert Signer(TOKEN).is_session(session)
    assert not Signer("another").is_session(session)
    assert not Signer(TOKEN).is_session(session + "0")
    assert not Signer(TOKEN).is_session("9" * 12 + session[10:])

    monkeypatch.setattr("schedq.dashboard.signing.SESSION_S", -1)

    assert not Signer(TOKEN).is_session(Signer(TOKEN).session())


def test_guessing_tokens_is_slowed_down_and_the_right_one_passes(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    served = serve(token=TOKEN)
    monkeypatch.setattr(served.dashboard._security.throttle, "_window_s", 3600)
    monkeypatch.setattr(served.dashboard._security.throttle, "_delay_s", 0.3)
    for _ in range(10):
        assert fetched(served.url, headers=WRONG).status_code == 401

    began = time.monotonic()
    assert fetched(served.url, headers=WRONG).status_code == 429
    assert time.monotonic() - began >= 0.3

    assert fetched(served.url, headers=BEARER).status_code == 200
    visitor = Visitor(served.url)
    answer = visitor.post("/login", {"csrf": visitor.token("/login"), "token": TOKEN})
    assert answer.status_code == 303


def test_only_authenticated_users_see_where_redis_is(serve: Serve, store: Server):
    address = store.socket_path
    behind_a_token, behind_a_hook = (
        serve(token=TOKEN).url,
        serve(auth=lambda request: request.headers.get("x-user")).url,
    )
    html = {"accept": "text/html"}

    outside = [
        fetched(f"{behind_a_token}/login", headers=html),
        fetched(f"{behind_a_token}/", headers={"accept": "*/*"}),
        fetched(f"{behind_a_token}/", headers={**html, "host": "evil.example"}),
        fetched(f"{behind_a_token}/login", headers={**html, **BEARER, "host": "evil.example"}),
        httpx.post(f"{behind_a_token}/login", headers=html, data={"token": "wrong"}, timeout=60, verify=NO_TLS),
        httpx.put(f"{behind_a_token}/", headers=html, timeout=60, verify=NO_TLS),
        fetched(f"{behind_a_hook}/", headers=html),
    ]

    for answer in outside:
        assert address not in answer.text
        assert __version__ not in answer.text
    assert address in fetched(f"{behind_a_token}/", headers={**html, **BEARER}).text
    assert address in fetched(f"{behind_a_hook}/", headers={**html, "x-user": "ada"}).text


@pytest.mark.parametrize(
    "headers",
    [
        {"x-forwarded-proto": "https"},
        {"x-forwarded-proto": "https, http"},
        {"forwarded": 'for=10.0.0.1;proto="https";host=queues.example, for=10.0.0.2;proto=http'},
        {"x-forwarded-ssl": "on"},
        {"host": "localhost", "origin": "https://localhost"},
    ],
    ids=str,
)
def test_behind_tls_every_cookie_is_secure(headers: dict[str, str], serve: Serve):
    visitor = Visitor(serve(token=TOKEN).url)
    csrf = visitor.token("/login")

    answer = visitor.post("/login", {"csrf": csrf, "token": TOKEN}, **headers)

    assert answer.status_code == 303
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    "headers", [{}, {"x-forwarded-proto": "http"}, {"forwarded": "for=1.2.3.4;proto=http"}], ids=str
)
def test_without_tls_cookies_are_not_secure_because_browsers_would_not_return_them(
    headers: dict[str, str], serve: Serve
):
    visitor = Visitor(serve(token=TOKEN).url)

    answer = visitor.post("/login", {"csrf": visitor.token("/login"), "token": TOKEN}, **headers)

    assert answer.status_code == 303
    assert "Secure" not in answer.headers["set-cookie"]


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_the_login_leads_nowhere_else(wanted: str, serve: Serve):
    visitor = Visitor(serve(token=TOKEN).url)

    answer = visitor.post("/login", {"csrf": visitor.token("/login"), "token": TOKEN, "next": wanted})

    assert answer.headers["location"] == "/"


# -- an auth hook of one's own


def test_an_own_hook_decides_who_has_access_and_its_names_are_logged(serve: Serve, queue: Queue, raw: redis.Redis):
    async def auth(request: Request):
        name = request.headers.get("x-user")
        return RedirectResponse("/elsewhere") if name == "nobody" else name

    url = serve(auth=auth).url
    queue.enqueue(1)

    assert fetched(url).status_code == 403
    assert fetched(url, headers={"x-user": "nobody"}).headers["location"] == "/elsewhere"
    Visitor(url, **{"x-user": "ada"}).do("pause")
    assert any(fields.get("who") == "ada" for _, fields in raw.xrange("queue:mail:log"))


def test_settings_that_contradict_each_other_or_let_everyone_in_are_refused():
    with pytest.raises(UsageError, match="not both"):
        create_app(token="t", auth=lambda request: "me")
    with pytest.raises(UsageError, match="empty"):
        create_app(token=" ")
    with pytest.raises(UsageError, match="empty"):
        create_app(secret="")


# -- forms


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "", "referer": ""},
        {"origin": "", "referer": "http://evil.example/"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_form_from_another_site_is_refused(headers: dict[str, str], visitor: Visitor, queue: Queue):
    queue.enqueue(1)

    answer = visitor.post("/queues/mail/act", {"do": "pause"}, **headers)

    assert answer.status_code == 403
    assert queue.stats()["paused_since_ms"] is None


@pytest.mark.parametrize("csrf", ["", "0" * 64, "ä"])
def test_a_form_without_its_token_is_refused(csrf: str, visitor: Visitor, queue: Queue):
    answer = visitor.post("/queues/mail/act", {"do": "pause", "csrf": csrf})

    assert answer.status_code == 403
    assert queue.stats()["paused_since_ms"] is None


def test_a_token_is_one_browsers_own(visitor: Visitor, queue: Queue):
    other = Visitor(visitor.origin)

    assert other.post("/queues/mail/act", {"do": "pause", "csrf": visitor.token()}).status_code == 403


def test_nothing_changes_on_get(visitor: Visitor, queue: Queue, raw: redis.Redis):
    queue.enqueue(1)
    visitor.page("/")
    before = {key: raw.dump(key) for key in raw.keys("*")}

    for path in ("confirm", "act", "act?do=pause"):
        assert visitor.get(f"/queues/mail/{path}").status_code == 404
    for path in ("", "/jobs", "/failed", "/delayed", "/schedules", "/workers", "/log"):
        visitor.page(f"/queues/mail{path}")

    assert {key: raw.dump(key) for key in raw.keys("*")} == before


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(method: str, visitor: Visitor):
    assert visitor.http.request(method, "/").status_code == 405


def test_a_body_that_is_too_large_or_no_form_is_refused(visitor: Visitor):
    origin = {"origin": visitor.origin, "content-type": "application/x-www-form-urlencoded"}

    long = visitor.http.post("/queues/mail/act", content=b"a" * (MOST_BODY + 1), headers=origin)
    chunked = visitor.http.post("/queues/mail/act", content=iter([b"a" * 65_536] * 17), headers=origin)
    many = visitor.http.post("/queues/mail/act", content="&".join(["a=1"] * 3000), headers=origin)
    other = visitor.http.post("/queues/mail/act", json={"do": "pause"}, headers={"origin": visitor.origin})

    assert [answer.status_code for answer in (long, chunked, many, other)] == [413, 413, 400, 415]
