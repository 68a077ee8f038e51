"""Mounted into the applications of others, which say who may come in."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from schedq import Queue
from schedq.dashboard import Dashboard, create_app
from tests.dashboard.conftest import CSRF
from tests.servers import Server


def admitted(request: Request) -> str | None:
    """The host application's own say."""
    return request.headers.get("x-user")


def made(store: Server) -> Dashboard:
    return create_app(store.own_url, auth=admitted, allow_hosts=["app.example.org"])


async def used(app: Any, dashboard: Dashboard) -> None:
    """Read and act below the place where it is mounted."""
    transport = httpx.ASGITransport(app)
    headers = {"x-user": "ada"}
    async with httpx.AsyncClient(transport=transport, base_url="https://app.example.org", headers=headers) as client:
        assert "Path=/ops/schedq" in (await client.get("/ops/schedq/")).headers["set-cookie"]
        for path in ("/", "/queues/mail", "/queues/mail/jobs", "/static/dashboard.css", "/api/queues"):
            assert (await client.get(f"/ops/schedq{path}")).status_code == 200, path
        page = await client.get("/ops/schedq/queues/mail")
        assert 'href="/ops/schedq/static/dashboard.css"' in page.text
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert (await client.get("/ops/schedq/", headers={"x-user": ""})).status_code == 403
        assert (await client.get("/ops/schedq/queues/mail/nothing")).status_code == 404

        token = CSRF.search(page.text)
        assert token
        data = {"csrf": token[1], "do": "pause", "back": "/queues/mail"}
        done = await client.post(
            "/ops/schedq/queues/mail/act", data=data, headers={"origin": "https://app.example.org"}
        )
        assert (done.status_code, done.headers["location"]) == (303, "/ops/schedq/queues/mail")
        assert "Secure" in done.headers["set-cookie"]
    await dashboard.aclose()


def test_into_starlette(store: Server, queue: Queue):
    queue.enqueue(1)
    dashboard = made(store)
    routes = [Route("/", lambda request: PlainTextResponse("app")), Mount("/ops/schedq", app=dashboard)]

    asyncio.run(used(Starlette(routes=routes), dashboard))

    assert queue.stats()["paused_since_ms"]


def test_into_fastapi(store: Server, queue: Queue):
    queue.enqueue(1)
    dashboard = made(store)
    app = FastAPI()
    app.mount("/ops/schedq", dashboard)

    asyncio.run(used(app, dashboard))

    assert queue.stats()["paused_since_ms"]


def test_it_runs_next_to_django(store: Server, queue: Queue):
    """Django's ASGI application has no mounts, so a function checks the path before it, as the handbook shows."""
    from django.conf import settings
    from django.core.asgi import get_asgi_application

    queue.enqueue(1)
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="test")
    django = get_asgi_application()
    dashboard = made(store)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/ops/schedq/"):
            await dashboard({**scope, "root_path": "/ops/schedq"}, receive, send)
        else:
            await django(scope, receive, send)

    async def both() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="https://app.example.org") as client:
            assert (await client.get("/elsewhere")).status_code == 404
        await used(app, dashboard)

    asyncio.run(both())

    assert queue.stats()["paused_since_ms"]


def test_it_serves_one_loop_after_the_other(store: Server, queue: Queue):
    """As the tests of a host application may run one for each request."""
    queue.enqueue(1)
    dashboard = made(store)

    async def look() -> int:
        transport = httpx.ASGITransport(dashboard)
        headers = {"x-user": "ada"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            status = (await client.get("/queues/mail")).status_code
        await dashboard.aclose()
        return status

    assert [asyncio.run(look()), asyncio.run(look())] == [200, 200]


urlpatterns: list[Any] = []
