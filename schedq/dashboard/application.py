"""The ASGI application: routes behind the guard, pages drawn whole or as streams, mistakes told in words."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from schedq import __version__
from schedq.dashboard.acts import Acts
from schedq.dashboard.guard import Auth, Guard, Refusal, Rules, base, form, inner_path, is_admitted, set_cookie, who
from schedq.dashboard.hosts import Hosts
from schedq.dashboard.intents import DEEDS
from schedq.dashboard.live import Live, Regions
from schedq.dashboard.pages import PAGES
from schedq.dashboard.screens import Screens, View, static_files
from schedq.dashboard.seal import SESSION_S, Seal
from schedq.dashboard.visits import Visits
from schedq.errors import Conflict, SchedqError, StoreUnavailable, UsageError

Page = Callable[[Request, Visits], Awaitable[View]]
_NOTE_COOKIE: Final = "schedq_note"
_TITLES: Final = {
    400: "Refused",
    401: "Log in",
    403: "Refused",
    404: "Not found",
    405: "Refused",
    409: "Redis holds something else",
    413: "Too large",
    415: "Refused",
    429: "Wait",
    503: "Redis does not answer",
}


class Dashboard:
    """The dashboard as an ASGI application; made by `create_app`.

    It keeps nothing but connections, so it may be ended and started again at any time.
    """

    def __init__(self, visits: Visits, rules: Rules, *, read_only: bool, title: str) -> None:
        self._visits = visits
        self._rules = rules
        self._live = Live()
        self._files = static_files()
        self._acts = Acts(visits)
        self._read_only = read_only
        labels = {action: deed.label for action, deed in DEEDS.items()}
        constants = {
            "labels": labels,
            "version": __version__,
            "title": title,
            "read_only": read_only,
        }
        self._screens = Screens(**constants)
        self._router = Router(self._routes(), lifespan=self._lifespan)
        self._guard = Guard(self._router, rules, self._refused)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI has it."""
        await self._guard(scope, receive, send)

    def end_streams(self) -> None:
        """End all live streams, so that a server can stop at once."""
        self._live.end()

    async def aclose(self) -> None:
        """End streams and what still runs, and close the connections; a host that runs no lifespan calls it."""
        self._live.end()
        await self._acts.aclose()
        await self._visits.aclose()

    # -- routes

    def _routes(self) -> list[Route]:
        routes = [Route(path, self._page(page), methods=["GET"]) for path, page in PAGES.items()]
        routes.append(Route("/static/{file}", self._static))
        if self._rules.token is not None and self._rules.auth is None:
            routes.append(Route("/login", self._login, methods=["GET", "POST"]))
            routes.append(Route("/logout", self._logout, methods=["POST"]))
        if not self._read_only:
            routes.append(Route("/queues/{name}/confirm", self._plain(self._acts.confirm), methods=["POST"]))
            routes.append(Route("/queues/{name}/act", self._act, methods=["POST"]))
            routes.append(Route("/errands/{errand}", self._page(self._acts.errand), methods=["GET"]))
            routes.append(Route("/errands/{errand}/stop", self._stop, methods=["POST"]))
        routes.append(Route("/{path:path}", self._nothing, methods=["GET", "POST"]))
        return routes

    def _page(self, page: Page) -> ASGIApp:
        """A page, or the stream of its living parts for who asks for that."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive)
            if "text/event-stream" not in request.headers.get("accept", ""):
                await (await self._drawn(request, page))(scope, receive, send)
            elif self._live.is_full:
                full = PlainTextResponse("too many streams", 503, {"Retry-After": "30"})
                await full(scope, receive, send)
            else:

                async def draw() -> tuple[Regions, float]:
                    view = await page(request, self._visits)
                    return self._screens.living(view, **self._common(request)), view.every_s

                key = f"{base(request)} {inner_path(request)}?{request.url.query}"
                await self._live.serve(key, draw, receive, send)

        return _Endpoint(app)

    def _plain(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await self._drawn(request, page)

        return endpoint

    async def _drawn(self, request: Request, page: Page) -> Response:
        try:
            view = await page(request, self._visits)
        except SchedqError as error:
            view = _mistake(error)
        except Refusal as refusal:
            return self._refused(request, refusal)
        return self._answer(request, view)

    def _answer(self, request: Request, view: View) -> Response:
        cookie = request.cookies.get(_NOTE_COOKIE, "")
        said = self._rules.seal.noted(cookie) if cookie else ""
        answer = HTMLResponse(self._screens.page(view, said=said, **self._common(request)), view.status)
        if cookie:
            set_cookie(answer, request, _NOTE_COOKIE, "", 0)
        return answer

    def _common(self, request: Request) -> dict[str, Any]:
        """What every page knows; nothing of it but `csrf` is one browser's own, and that is in no living part."""
        return {
            "base": base(request),
            "where": self._visits.label if is_admitted(request) else "",
            "csrf": self._rules.seal.form_token(request.scope["schedq.nonce"]),
            "who": who(request),
            "has_login": self._rules.token is not None and self._rules.auth is None and is_admitted(request),
        }

    def _refused(self, request: Request, refusal: Refusal) -> Response:
        answer = self._answer(request, _told(refusal.status, refusal.text))
        if refusal.status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    async def _nothing(self, request: Request) -> Response:
        return self._answer(request, _told(404, "There is no such page."))

    async def _static(self, request: Request) -> Response:
        file = self._files.get(request.path_params["file"])
        if file is None:
            return await self._nothing(request)
        headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.body, media_type=file.media, headers=headers)

    # -- acting

    async def _act(self, request: Request) -> Response:
        try:
            path, said = await self._acts.act(request)
            answer = RedirectResponse(base(request) + path, 303)
            if said:
                set_cookie(answer, request, _NOTE_COOKIE, self._rules.seal.note(said), 60)
            return answer
        except SchedqError as error:
            return self._answer(request, _mistake(error))
        except Refusal as refusal:
            return self._refused(request, refusal)

    async def _stop(self, request: Request) -> Response:
        self._acts.stop(request.path_params["errand"])
        return RedirectResponse(f"{base(request)}/errands/{request.path_params['errand']}", 303)

    # -- logging in

    async def _login(self, request: Request) -> Response:
        wanted = _local(request.query_params.get("next", "/"))
        if request.method != "POST":
            return self._answer(request, View("login.html", {"next": wanted, "problem": ""}))
        fields = form(request)
        wanted = _local(fields.get("next", ["/"])[0])
        try:
            await self._guard.check_token(request, fields.get("token", [""])[0].strip())
        except Refusal as refusal:
            return self._answer(request, View("login.html", {"next": wanted, "problem": refusal.text}, refusal.status))
        answer = RedirectResponse(base(request) + wanted, 303)
        set_cookie(answer, request, self._rules.seal.cookie, self._rules.seal.session(), SESSION_S)
        return answer

    async def _logout(self, request: Request) -> Response:
        answer = RedirectResponse(f"{base(request)}/login", 303)
        set_cookie(answer, request, self._rules.seal.cookie, "", 0)
        return answer

    @asynccontextmanager
    async def _lifespan(self, _app: object) -> AsyncIterator[None]:
        yield
        await self.aclose()


class _Endpoint:
    """An ASGI application as a route's endpoint: Starlette takes a function for one that answers a request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def create_app(
    redis: object = None,
    *,
    token: str | None = None,
    auth: Auth | None = None,
    read_only: bool = False,
    allow_hosts: Iterable[str] = (),
    secret: str | None = None,
    title: str = "schedq",
) -> Dashboard:
    """The dashboard, to be served alone or mounted into an application.

    Without `token` and `auth` it answers callers on this machine only.

    Args:
        redis: where it is, as `Queue` takes it.
        token: what a browser shows in the login form, or a program as `Authorization: Bearer TOKEN`.
        auth: the application's own say instead, a function, plain or async, of the request: who it is (for the log),
            None to refuse, or a response to send, such as a redirect to the application's login.
        read_only: without any route that changes something.
        allow_hosts: names and addresses under which it is reached, beside the local ones; `*` for any IP address.
        secret: what forms and cookies are sealed with; the same in all processes that serve it. Otherwise the token,
            else a new one for each process.
        title: what its pages are called.

    Raises:
        UsageError: an argument makes no sense, or lets in everybody.
    """
    names = tuple(allow_hosts)
    if token is not None and not token.strip():
        raise UsageError("the token is empty")
    if token is not None and auth is not None:
        raise UsageError("give a token or an auth hook, not both")
    if secret is not None and not secret:
        raise UsageError("the secret is empty")
    seal = Seal(secret or token or secrets.token_hex(32))
    any_address = "*" in names
    hosts = Hosts((name for name in names if name != "*"), any_address=any_address)
    rules = Rules(hosts, seal, None if token is None else token.strip(), auth)
    return Dashboard(Visits(redis), rules, read_only=read_only, title=title)


def _told(status: int, text: str) -> View:
    return View("told.html", {"heading": _TITLES.get(status, "Refused"), "text": text}, status)


def _mistake(error: SchedqError) -> View:
    """The page for what Redis, or the reader, got wrong."""
    if isinstance(error, StoreUnavailable):
        return _told(503, f"{error}. Nothing is lost by that; reload the page when Redis is back.")
    return _told(409 if isinstance(error, Conflict) else 400 if isinstance(error, UsageError) else 500, str(error))


def _local(path: str) -> str:
    """A path of this dashboard, to go on to; anything else leads to the first page."""
    is_ours = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if is_ours else "/"
