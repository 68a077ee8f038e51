"""The web dashboard: `create_app` makes the ASGI application, `schedq dashboard` serves it (extra `dashboard`)."""

from __future__ import annotations

try:
    from schedq.dashboard.application import Dashboard, create_app
    from schedq.dashboard.security import Auth
except ModuleNotFoundError as error:
    raise ImportError(f"the dashboard needs {error.name}: pip install 'schedq[dashboard]'") from error

__all__ = ["Auth", "Dashboard", "create_app"]
