"""Authentication, form checks and security headers: every request of the dashboard passes through this middleware."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schedq.dashboard.hosts import Hosts, is_loopback
from schedq.dashboard.proxies import TrustedProxy, as_sent
from schedq.dashboard.signing import Signer, Throttle, is_nonce, is_same, new_nonce

MOST_BODY: Final = 1 << 20
"""Maximum size of a form in bytes, enough for a thousand selected jobs."""
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
"""The user's name, for the log; None to refuse; or a response to send instead, such as a redirect to a login page."""
Auth = Callable[[Request], Admission | Awaitable[Admission]]


class Refusal(Exception):  # noqa: N818 - becomes a response
    """A request is refused.

    Attributes:
        status: the HTTP status.
        text: the reason, and what to do about it.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that decide whether a request is allowed.

    Attributes:
        hosts: allowed Host headers.
        signer: signs cookies and forms.
        token: the secret token, or None.
        auth: the host application's own check, or None.
        proxy: the proxy that names users in a header, or None.
    """

    hosts: Hosts
    signer: Signer
    token: str | None
    auth: Auth | None
    proxy: TrustedProxy | None = None


class SecurityMiddleware:
    """Passes valid requests on, so that pages can trust `form_fields(request)` and `who(request)`."""

    def __init__(self, app: ASGIApp, rules: Rules, refuse: Callable[[Request, Refusal], Response]) -> None:
        self._app = app
        self._rules = rules
        self._refuse = refuse
        self.throttle = Throttle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request, and pass it on or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        scope["schedq.nonce"] = nonce = request.cookies.get(FORM_COOKIE, "")
        if not is_nonce(nonce):
            scope["schedq.nonce"] = new_nonce()
        send_with_headers = self._with_headers(send, request, has_nonce=is_nonce(nonce))
        try:
            response = await self._check(request)
        except Refusal as refusal:
            response = self._refuse(request, refusal)
        except ClientDisconnect:
            return  # while sending a form
        if response is not None:
            await response(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def _with_headers(self, send: Send, request: Request, *, has_nonce: bool) -> Send:
        """Wrap `send` to add the headers that every response has."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
                if not has_nonce and headers.get("content-type", "").startswith("text/html"):
                    response = Response()
                    set_cookie(response, request, FORM_COOKIE, request.scope["schedq.nonce"], None)
                    headers.append("Set-Cookie", response.headers["set-cookie"])
            await send(message)

        return send_with_headers

    async def _check(self, request: Request) -> Response | None:
        """None to pass the request on, or the response to send.

        Raises:
            Refusal: it is refused.
        """
        if len(request.headers.getlist("host")) != 1 or not self._rules.hosts.allows(request.headers["host"]):
            raise Refusal(400, "This host name is not allowed. Start the dashboard with --allow-host NAME.")
        if request.method not in ("GET", "HEAD", "POST"):
            raise Refusal(405, f"The dashboard does not support the method {request.method}.")
        path = inner_path(request)
        if request.method == "POST":
            await self._read_form(request)
        if path == "/login" or path.startswith("/static/"):
            return None
        response = await self._authenticate(request)
        request.scope["schedq.is_authenticated"] = response is None
        return response

    async def _read_form(self, request: Request) -> None:
        check_origin(request.headers)
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
            raise Refusal(415, "Forms must be sent as application/x-www-form-urlencoded.")
        found: dict[str, list[str]] = {}
        try:
            text = (await _body(request)).decode()
            for name, value in parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"):
                found.setdefault(name, []).append(value)
        except ValueError as error:
            raise Refusal(400, "This form can't be read.") from error
        token = found.get("csrf", [""])[0]
        nonce = request.cookies.get(FORM_COOKIE, "")
        if not self._rules.signer.is_form_token(nonce, token):
            raise Refusal(
                403, "This form is outdated, or was created for another browser. Reload the page and try again."
            )
        request.scope["schedq.form"] = found

    async def _authenticate(self, request: Request) -> Response | None:
        rules = self._rules
        if rules.proxy is not None and rules.proxy.sent(request):
            return await self._authenticate_proxy(request, rules.proxy)
        if rules.auth is not None:
            admission = rules.auth(request)
            admission = await admission if inspect.isawaitable(admission) else admission
            if isinstance(admission, Response):
                return admission
            if not admission:
                raise Refusal(403, "You do not have access to this dashboard.")
            request.scope["schedq.who"] = str(admission)
        elif rules.token is not None:
            return await self._authenticate_token(request)
        elif rules.proxy is not None:
            raise Refusal(403, "This dashboard is reached only through the proxy in front of it.")
        elif not _is_local(request):
            raise Refusal(403, "Without a token or an auth hook, the dashboard serves only clients on its own machine.")
        return None

    async def _authenticate_proxy(self, request: Request, proxy: TrustedProxy) -> Response | None:
        problem = proxy.problem(request)
        if not problem:
            request.scope["schedq.who"] = proxy.user(request)
        elif (
            self._rules.token is not None and "authorization" in request.headers and proxy.header not in request.headers
        ):
            return await self._authenticate_token(request)  # a program behind the same proxy
        else:
            raise Refusal(403, problem)
        return None

    async def _authenticate_token(self, request: Request) -> Response | None:
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            await self.check_token(request, as_sent(shown.strip()))
            return None
        if self._rules.signer.is_session(request.cookies.get(self._rules.signer.cookie, "")):
            return None
        if request.method != "POST" and not is_api(request) and "text/html" in request.headers.get("accept", ""):
            wanted = inner_path(request) + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"{base(request)}/login?next={quote(wanted, safe='/')}", 303)
        raise Refusal(401, "A token is required: log in, or send it as Authorization: Bearer TOKEN.")

    async def check_token(self, request: Request, shown: str) -> None:
        """Check the token that a client sent.

        The correct token always passes: behind a proxy all clients share one address, and none may lock out the others.

        Raises:
            Refusal: it is wrong; after many wrong ones from this address the response is delayed.
        """
        if self._rules.token is not None and is_same(shown, self._rules.token):
            return
        caller = request.client.host if request.client else ""
        self.throttle.note_wrong(caller)
        if not self.throttle.is_slow(caller):
            raise Refusal(401, "The token is wrong.")
        await self.throttle.delay()
        raise Refusal(429, "The token is wrong, and there were too many wrong tokens from your address.")


def check_origin(headers: Headers) -> None:
    """Check that a form was sent by a page of this host.

    Raises:
        Refusal: it was not, or the headers do not say.
    """
    source = headers.get("origin") or headers.get("referer") or ""
    parts = _split(source)
    site = headers.get("sec-fetch-site", "same-origin")
    is_ours = parts.scheme in ("http", "https") and parts.netloc.lower() == headers.get("host", "").lower()
    if not is_ours or site not in ("same-origin", "none"):
        raise Refusal(403, "This form was sent from another site.")


def base(request: Request) -> str:
    """The path at which the dashboard is mounted; '' at the root."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def inner_path(request: Request) -> str:
    """The request's path relative to where the dashboard is mounted."""
    return str(request.scope["path"]).removeprefix(base(request)) or "/"


def is_api(request: Request) -> bool:
    """Whether the request is for the API, whose replies are JSON."""
    return inner_path(request).startswith("/api/")


def form_fields(request: Request) -> Form:
    """The fields of the submitted form."""
    found: Form = request.scope["schedq.form"]
    return found


def is_authenticated(request: Request) -> bool:
    """Whether the caller is authenticated, and may see details such as the address of Redis."""
    return bool(request.scope.get("schedq.is_authenticated"))


def who(request: Request) -> str:
    """The user's name from the auth hook or the proxy; '' without one."""
    return str(request.scope.get("schedq.who", ""))


def set_cookie(response: Response, request: Request, name: str, value: str, seconds: int | None) -> None:
    """Set a cookie that scripts can't read and that is not sent with requests from other sites; 0 seconds delete it."""
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=base(request) or "/",
        httponly=True,
        samesite="strict",
        secure=_is_over_tls(request),
    )


def _is_over_tls(request: Request) -> bool:
    """Whether the browser uses TLS, either to the dashboard or to a proxy in front of it.

    The headers are trusted without a check: a client that lies only restricts its own cookie.
    """
    headers = request.headers
    source = _split(headers.get("origin") or headers.get("referer") or "")
    return (
        request.url.scheme == "https"
        or headers.get("x-forwarded-ssl", "").lower() == "on"
        or headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower() == "https"
        or _FORWARDED_HTTPS.search(headers.get("forwarded", "").partition(",")[0]) is not None
        or (source.scheme == "https" and source.netloc.lower() == headers.get("host", "").lower())
    )


def _split(url: str) -> SplitResult:
    """The parts of a URL; all empty if it is invalid."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _is_local(request: Request) -> bool:
    """Whether the client is on this machine; requests from a proxy may come from anywhere."""
    is_passed_on = any(name in request.headers for name in _FORWARDED)
    return not is_passed_on and (request.client is None or is_loopback(request.client.host))


async def _body(request: Request) -> bytes:
    """The body, up to the limit.

    Raises:
        Refusal: it is longer.
    """
    declared = request.headers.get("content-length", "0")
    parts: list[bytes] = []
    length = int(declared) if declared.isdigit() else 0
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
