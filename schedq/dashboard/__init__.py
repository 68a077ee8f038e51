"""The web dashboard, extra `dashboard`: `create_app` returns an ASGI application; `schedq dashboard` serves it."""

from __future__ import annotations

try:
    from schedq.dashboard.application import Dashboard, create_app
    from schedq.dashboard.security import Auth
except ModuleNotFoundError as error:
    raise ImportError(f"the dashboard needs {error.name}: pip install 'schedq[dashboard]'") from error

__all__ = ["Auth", "Dashboard", "create_app"]
