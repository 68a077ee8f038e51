"""The site, and below /ops/schedq/ the dashboard, for users who may see the queues in the admin.

uvicorn shop.asgi:application
"""

import os

from asgiref.sync import sync_to_async
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
site = ASGIStaticFilesHandler(get_asgi_application())

from django.conf import settings  # noqa: E402 - after the setup, as models are imported
from django.contrib.auth import get_user  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.http import HttpRequest  # noqa: E402

from schedq.dashboard import create_app  # noqa: E402


@sync_to_async
def operator(request) -> str | None:
    """The name of the logged-in user, if that user may see the queues."""
    asked = HttpRequest()
    asked.session = SessionStore(request.cookies.get(settings.SESSION_COOKIE_NAME))
    user = get_user(asked)
    return user.get_username() if user.is_active and user.has_perm("schedq.view_queues") else None


dashboard = create_app(settings.TASKS["default"]["OPTIONS"]["redis"], auth=operator, read_only=True)


async def application(scope, receive, send) -> None:
    """Pass a request to the dashboard or to the site."""
    if scope["type"] == "http" and scope["path"].startswith("/ops/schedq/"):
        await dashboard({**scope, "root_path": "/ops/schedq"}, receive, send)
    else:
        await site(scope, receive, send)
