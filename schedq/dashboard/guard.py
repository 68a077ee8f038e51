"""Who may come in, and what an answer must carry: the one door that every request of the dashboard passes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schedq.dashboard.hosts import Hosts, is_loopback
from schedq.dashboard.seal import Seal, Throttle, is_nonce, is_same, new_nonce

MOST_BODY: Final = 1 << 20
"""Bytes of a form: a thousand selected jobs have room in it."""
_MOST_FIELDS: Final = 2000
FORM_COOKIE: Final = "schedq_form"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Not "no-referrer": browsers would send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_FORWARDED_HTTPS: Final = re.compile(r'(?:^|;)\s*proto="?https"?\s*(?:;|$)', re.IGNORECASE)
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")

Form = Mapping[str, list[str]]
Admission = str | None | Response
"""Who it is, for the log; None: nobody who may come in; or what to answer instead, such as a redirect to a login."""
Auth = Callable[[Request], Admission | Awaitable[Admission]]


class Refusal(Exception):  # noqa: N818 - it is an answer
    """A request is not served.

    Attributes:
        status: the HTTP status.
        text: why, and what to do about it.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may come in.

    Attributes:
        hosts: names that may be asked for.
        seal: of cookies and forms.
        token: what to show, or None.
        auth: the host application's own say, or None.
    """

    hosts: Hosts
    seal: Seal
    token: str | None
    auth: Auth | None


class Guard:
    """Lets through what it may; everything behind it may trust `form(request)` and `who(request)`."""

    def __init__(self, app: ASGIApp, rules: Rules, refuse: Callable[[Request, Refusal], Response]) -> None:
        self._app = app
        self._rules = rules
        self._refuse = refuse
        self.throttle = Throttle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        scope["schedq.nonce"] = nonce = request.cookies.get(FORM_COOKIE, "")
        if not is_nonce(nonce):
            scope["schedq.nonce"] = new_nonce()
        armed = self._armed(send, request, has_nonce=is_nonce(nonce))
        try:
            answer = await self._examine(request)
        except Refusal as refusal:
            answer = self._refuse(request, refusal)
        except ClientDisconnect:
            return  # in the midst of a form
        if answer is not None:
            await answer(scope, receive, armed)
        else:
            await self._app(scope, receive, armed)

    def _armed(self, send: Send, request: Request, *, has_nonce: bool) -> Send:
        """`send`, with the headers that every answer has."""

        async def armed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
                if not has_nonce and headers.get("content-type", "").startswith("text/html"):
                    answer = Response()
                    set_cookie(answer, request, FORM_COOKIE, request.scope["schedq.nonce"], None)
                    headers.append("Set-Cookie", answer.headers["set-cookie"])
            await send(message)

        return armed

    async def _examine(self, request: Request) -> Response | None:
        """None to let it through, or what to answer.

        Raises:
            Refusal: what it says.
        """
        if len(request.headers.getlist("host")) != 1 or not self._rules.hosts.allows(request.headers["host"]):
            raise Refusal(400, "This name is not one that the dashboard answers to. Start it with --allow-host NAME.")
        if request.method not in ("GET", "HEAD", "POST"):
            raise Refusal(405, f"{request.method} is not a method of the dashboard.")
        path = inner_path(request)
        if request.method == "POST":
            await self._take_form(request)
        if path == "/login" or path.startswith("/static/"):
            return None
        answer = await self._admit(request)
        request.scope["schedq.is_admitted"] = answer is None
        return answer

    async def _take_form(self, request: Request) -> None:
        check_origin(request.headers)
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
            raise Refusal(415, "A form is sent as application/x-www-form-urlencoded.")
        found: dict[str, list[str]] = {}
        try:
            text = (await _body(request)).decode()
            for name, value in parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"):
                found.setdefault(name, []).append(value)
        except ValueError as error:
            raise Refusal(400, "This form can't be read.") from error
        token = found.get("csrf", [""])[0]
        nonce = request.cookies.get(FORM_COOKIE, "")
        if not self._rules.seal.is_form_token(nonce, token):
            raise Refusal(
                403, "This form is not one that was made for you, or is outdated. Reload the page, try again."
            )
        request.scope["schedq.form"] = found

    async def _admit(self, request: Request) -> Response | None:
        rules = self._rules
        if rules.auth is not None:
            said = rules.auth(request)
            said = await said if inspect.isawaitable(said) else said
            if isinstance(said, Response):
                return said
            if not said:
                raise Refusal(403, "You may not see this dashboard.")
            request.scope["schedq.who"] = str(said)
        elif rules.token is not None:
            return await self._admit_token(request)
        elif not _is_near(request):
            raise Refusal(403, "Without a token or an own auth hook the dashboard serves this machine only.")
        return None

    async def _admit_token(self, request: Request) -> Response | None:
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            await self.check_token(request, _as_sent(shown.strip()))
            return None
        if self._rules.seal.is_session(request.cookies.get(self._rules.seal.cookie, "")):
            return None
        if request.method != "POST" and "text/html" in request.headers.get("accept", ""):
            wanted = inner_path(request) + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"{base(request)}/login?next={quote(wanted, safe='/')}", 303)
        raise Refusal(401, "Show the token: log in, or send it as Authorization: Bearer TOKEN.")

    async def check_token(self, request: Request, shown: str) -> None:
        """Check a token that a caller shows.

        The right one always passes: behind a proxy all callers have one address, and nobody may lock out the others.

        Raises:
            Refusal: it is wrong; if this address has shown many wrong ones, that is said late.
        """
        if self._rules.token is not None and is_same(shown, self._rules.token):
            return
        caller = request.client.host if request.client else ""
        self.throttle.note_wrong(caller)
        if not self.throttle.is_slow(caller):
            raise Refusal(401, "This is not the token.")
        await self.throttle.delay()
        raise Refusal(429, "This is not the token, and there were too many wrong ones from your address.")


def check_origin(headers: Headers) -> None:
    """Make sure that a form was sent by a page of this very host.

    Raises:
        Refusal: it was not, or nothing says so.
    """
    source = headers.get("origin") or headers.get("referer") or ""
    try:
        parts = urlsplit(source)
    except ValueError:
        parts = urlsplit("")
    site = headers.get("sec-fetch-site", "same-origin")
    is_ours = parts.scheme in ("http", "https") and parts.netloc.lower() == headers.get("host", "").lower()
    if not is_ours or site not in ("same-origin", "none"):
        raise Refusal(403, "This form was sent from another site.")


def base(request: Request) -> str:
    """Where the dashboard is mounted; '' at the root."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def inner_path(request: Request) -> str:
    """The path below the place where the dashboard is mounted."""
    return str(request.scope["path"]).removeprefix(base(request)) or "/"


def form(request: Request) -> Form:
    """The fields of the form that was sent."""
    found: Form = request.scope["schedq.form"]
    return found


def is_admitted(request: Request) -> bool:
    """Whether the caller may see what is behind the door, such as where Redis is."""
    return bool(request.scope.get("schedq.is_admitted"))


def who(request: Request) -> str:
    """Who is asking, as the auth hook said; '' if nobody did."""
    return str(request.scope.get("schedq.who", ""))


def set_cookie(answer: Response, request: Request, name: str, value: str, seconds: int | None) -> None:
    """Set a cookie that scripts can't read and other sites can't have sent; 0 seconds delete it."""
    answer.set_cookie(
        name,
        value,
        max_age=seconds,
        path=base(request) or "/",
        httponly=True,
        samesite="strict",
        secure=_is_over_tls(request),
    )


def _as_sent(header: str) -> str:
    """What a header says, if its bytes are UTF-8: Starlette reads all as Latin-1."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def _is_over_tls(request: Request) -> bool:
    """Whether the browser speaks TLS, to us or to a proxy before us.

    The word of a proxy, or of the browser itself, is taken without asking who it is: one who lies gets a cookie that
    the browser shows less often.
    """
    headers = request.headers
    if request.url.scheme == "https" or headers.get("x-forwarded-ssl", "").lower() == "on":
        return True
    if headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower() == "https":
        return True
    if _FORWARDED_HTTPS.search(headers.get("forwarded", "").partition(",")[0]):
        return True
    source = headers.get("origin") or headers.get("referer") or ""
    return source.lower().startswith("https://") and _netloc(source) == headers.get("host", "").lower()


def _netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""


def _is_near(request: Request) -> bool:
    """Whether the caller is on this machine; what a proxy passes on may come from anywhere."""
    is_passed_on = any(name in request.headers for name in _FORWARDED)
    return not is_passed_on and (request.client is None or is_loopback(request.client.host))


async def _body(request: Request) -> bytes:
    """The body, read up to the limit.

    Raises:
        Refusal: it is longer.
    """
    said = request.headers.get("content-length", "0")
    parts: list[bytes] = []
    length = int(said) if said.isdigit() else 0
    if length <= MOST_BODY:
        length = 0
        async for part in request.stream():
            parts.append(part)
            length += len(part)
            if length > MOST_BODY:
                break
    if length > MOST_BODY:
        raise Refusal(413, f"A form may have at most {MOST_BODY:,} bytes.")
    return b"".join(parts)
