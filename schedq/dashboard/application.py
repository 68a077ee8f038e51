"""The ASGI application: routes behind the security middleware, pages as HTML or live streams, errors as pages."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from schedq import handbook
from schedq.dashboard import across, api, new_job, search
from schedq.dashboard.action_table import ACTIONS
from schedq.dashboard.actions import ActionRoutes
from schedq.dashboard.hosts import Hosts
from schedq.dashboard.live import LiveStreams, Regions
from schedq.dashboard.pages import PAGES, Page
from schedq.dashboard.proxies import TrustedProxy
from schedq.dashboard.queue_pool import QueuePool
from schedq.dashboard.rendering import PageData, Renderer, static_files
from schedq.dashboard.security import (
    Auth,
    Refusal,
    Rules,
    SecurityMiddleware,
    base,
    form_fields,
    inner_path,
    is_api,
    is_authenticated,
    set_cookie,
    who,
)
from schedq.dashboard.signing import SESSION_S, Signer
from schedq.errors import Conflict, JobGone, SchedqError, StoreUnavailable, UsageError

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
    503: "Redis is unavailable",
}


_PAGES: Final = {**PAGES, **across.PAGES, "/search": search.search}


class Dashboard:
    """The dashboard as an ASGI application; `create_app` creates it.

    Connections are its only state, so it can be restarted at any time.
    """

    def __init__(self, pool: QueuePool, rules: Rules, *, read_only: bool, title: str) -> None:
        self._pool = pool
        self._rules = rules
        self._live = LiveStreams()
        self._files = static_files()
        self._actions = ActionRoutes(pool)
        self._read_only = read_only
        self._title = title
        labels = {action: spec.label for action, spec in ACTIONS.items()}
        self._renderer = Renderer(labels=labels, version=version("schedq"), title=title, read_only=read_only)
        router = Router(self._routes(), lifespan=self._lifespan)
        app = ExceptionMiddleware(router, {SchedqError: self._on_error, Refusal: self._on_error})
        self._security = SecurityMiddleware(app, rules, self._refused)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI request."""
        await self._security(scope, receive, send)

    def end_streams(self) -> None:
        """End all live streams, so that a server can stop quickly."""
        self._live.end()

    async def aclose(self) -> None:
        """End streams and running actions, and close the connections; for hosts without ASGI lifespan support."""
        self._live.end()
        await self._actions.background.aclose()
        await self._pool.aclose()

    # -- routes

    def _routes(self) -> list[Route]:
        routes = [Route("/help/{picture}.svg", self._picture, methods=["GET"])]
        routes += [Route(path, partial(self._show, page), methods=["GET"]) for path, page in _PAGES.items()]
        routes.append(Route("/static/{file}", self._static))
        routes.append(Route("/api/openapi.json", partial(api.openapi, self._title), methods=["GET"]))
        routes += [
            Route(path, partial(api.serve, self._pool, route), methods=["GET"]) for path, route in api.ROUTES.items()
        ]
        if self._rules.token is not None and self._rules.auth is None:
            routes.append(Route("/login", self._login, methods=["GET", "POST"]))
            routes.append(Route("/logout", self._logout, methods=["POST"]))
        if not self._read_only:
            routes.append(
                Route("/queues/{name}/confirm", partial(self._whole, self._actions.confirm), methods=["POST"])
            )
            routes.append(Route("/queues/{name}/new", self._new, methods=["GET", "POST"]))
            routes.append(Route("/queues/{name}/act", self._act, methods=["POST"]))
            routes.append(Route("/errands/{id}", partial(self._show, self._actions.progress), methods=["GET"]))
            routes.append(Route("/errands/{id}/stop", self._stop, methods=["POST"]))
        routes.append(Route("/{path:path}", self._not_found, methods=["GET", "POST"]))
        return routes

    async def _show(self, page: Page, request: Request) -> ASGIApp:
        """The page, or for clients that accept an event stream, the stream of its live regions."""
        if "text/event-stream" not in request.headers.get("accept", ""):
            return await self._whole(page, request)
        if self._live.is_full:
            return PlainTextResponse("too many streams", 503, {"Retry-After": "30"})

        async def render() -> tuple[Regions, float]:
            data = await page(request, self._pool)
            return self._renderer.live_regions(data, **self._common(request)), data.every_s

        return partial(self._live.serve, f"{base(request)} {inner_path(request)}?{request.url.query}", render)

    async def _whole(self, page: Page, request: Request) -> Response:
        data = await page(request, self._pool)
        return RedirectResponse(base(request) + data.location, 303) if data.location else self._respond(request, data)

    async def _on_error(self, request: Request, error: Exception) -> Response:
        """The page for a refusal, or for an error of Redis or of the request."""
        if isinstance(error, Refusal):
            return self._refused(request, error)
        if isinstance(error, StoreUnavailable):
            said = str(error).rstrip(".")  # errors of connections end with a full stop, others don't
            text = f"{said}. No jobs are lost; reload the page when Redis is available again."
            return self._respond(request, _message(503, text))
        statuses = {Conflict: 409, UsageError: 400, JobGone: 404}
        status = next((code for kind, code in statuses.items() if isinstance(error, kind)), 500)
        return self._respond(request, _message(status, str(error)))

    def _respond(self, request: Request, data: PageData) -> Response:
        if is_api(request):
            return api.json_response({"error": data.context["text"]}, data.status)
        cookie = request.cookies.get(_NOTE_COOKIE, "")
        notice = self._rules.signer.read_note(cookie) if cookie else ""
        response = HTMLResponse(self._renderer.page(data, notice=notice, **self._common(request)), data.status)
        if cookie:
            set_cookie(response, request, _NOTE_COOKIE, "", 0)
        return response

    def _common(self, request: Request) -> dict[str, Any]:
        """Variables of every template; only `csrf` differs between browsers, and no live region contains it."""
        return {
            "base": base(request),
            "where": self._pool.label if is_authenticated(request) else "",
            "csrf": self._rules.signer.form_token(request.scope["schedq.nonce"]),
            "who": who(request),
            "has_login": self._rules.token is not None
            and self._rules.auth is None
            and is_authenticated(request)
            and not who(request),
        }

    def _refused(self, request: Request, refusal: Refusal) -> Response:
        response = self._respond(request, _message(refusal.status, refusal.text))
        if refusal.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response

    async def _not_found(self, request: Request) -> Response:
        return self._respond(request, _message(404, "There is no such page."))

    async def _static(self, request: Request) -> Response:
        file = self._files.get(request.path_params["file"])
        if file is None:
            return await self._not_found(request)
        headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.body, media_type=file.media, headers=headers)

    async def _picture(self, request: Request) -> Response:
        try:
            return Response(handbook.picture(request.path_params["picture"]), media_type="image/svg+xml")
        except KeyError:
            return await self._not_found(request)

    # -- actions

    async def _act(self, request: Request) -> Response:
        return self._redirect(request, *await self._actions.act(request))

    async def _new(self, request: Request) -> Response:
        found = await new_job.answer(request, self._pool)
        return self._respond(request, found) if isinstance(found, PageData) else self._redirect(request, *found)

    def _redirect(self, request: Request, path: str, notice: str) -> Response:
        response = RedirectResponse(base(request) + path, 303)
        if notice:
            set_cookie(response, request, _NOTE_COOKIE, self._rules.signer.note(notice), 60)
        return response

    async def _stop(self, request: Request) -> Response:
        self._actions.background.stop(request.path_params["id"])
        return RedirectResponse(f"{base(request)}/errands/{request.path_params['id']}", 303)

    # -- logging in

    async def _login(self, request: Request) -> Response:
        wanted = _local(request.query_params.get("next", "/"))
        if request.method != "POST":
            return self._respond(request, PageData("login.html", {"next": wanted, "problem": ""}))
        fields = form_fields(request)
        wanted = _local(fields.get("next", ["/"])[0])
        try:
            await self._security.check_token(request, fields.get("token", [""])[0].strip())
        except Refusal as refusal:
            return self._respond(
                request, PageData("login.html", {"next": wanted, "problem": refusal.text}, refusal.status)
            )
        response = RedirectResponse(base(request) + wanted, 303)
        set_cookie(response, request, self._rules.signer.cookie, self._rules.signer.session(), SESSION_S)
        return response

    async def _logout(self, request: Request) -> Response:
        response = RedirectResponse(f"{base(request)}/login", 303)
        set_cookie(response, request, self._rules.signer.cookie, "", 0)
        return response

    @asynccontextmanager
    async def _lifespan(self, _app: object) -> AsyncIterator[None]:
        yield
        await self.aclose()


def create_app(
    redis: object = None,
    *,
    token: str | None = None,
    auth: Auth | None = None,
    user_header: str | None = None,
    trusted_proxies: Iterable[str] = (),
    read_only: bool = False,
    allow_hosts: Iterable[str] = (),
    secret: str | None = None,
    title: str = "schedq",
) -> Dashboard:
    """Create the dashboard, to be served on its own or mounted into an application.

    Without `token` and `auth` it serves only clients on this machine.

    Args:
        redis: as in `Queue`.
        token: the secret that users type into the login form, or programs send as `Authorization: Bearer TOKEN`.
        auth: the application's own check, instead of a token: a sync or async function of the request. It returns the
            user's name (for the log), None to refuse, or a response to send, such as a redirect to a login page.
        user_header: the header in which a proxy sends the name of the user whom it has authenticated.
        trusted_proxies: addresses and networks of that proxy, or `unix` for a Unix socket. The header counts only from
            there; others need the token.
        read_only: leave out every route that changes something.
        allow_hosts: host names and addresses that clients may use, besides the local ones; `*` for any IP address.
        secret: signs forms and cookies; must be the same in all processes that serve the dashboard. Defaults to the
            token, else to a random one per process.
        title: title of the pages.

    Raises:
        UsageError: an argument is invalid, or would give everyone access.
    """
    proxies = [trusted_proxies] if isinstance(trusted_proxies, str) else [*trusted_proxies]
    proxy = TrustedProxy(user_header, proxies) if user_header is not None or proxies else None
    rules = _rules([*allow_hosts], token, auth, secret, proxy)
    return Dashboard(QueuePool(redis), rules, read_only=read_only, title=title)


def _rules(
    names: list[str], token: str | None, auth: Auth | None, secret: str | None, proxy: TrustedProxy | None
) -> Rules:
    if token is not None and not token.strip():
        raise UsageError("the token is empty")
    if auth is not None and (token is not None or proxy is not None):
        raise UsageError(f"give {'a token' if proxy is None else 'a user header'} or an auth hook, not both")
    if secret is not None and not secret:
        raise UsageError("the secret is empty")
    signer = Signer(secret or token or secrets.token_hex(32))
    hosts = Hosts((name for name in names if name != "*"), any_address="*" in names)
    return Rules(hosts, signer, None if token is None else token.strip(), auth, proxy)


def _message(status: int, text: str) -> PageData:
    return PageData("message.html", {"heading": _TITLES.get(status, "Refused"), "text": text}, status)


def _local(path: str) -> str:
    """The path, if it can be redirected to within this dashboard; else `/`."""
    is_ours = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if is_ours else "/"
