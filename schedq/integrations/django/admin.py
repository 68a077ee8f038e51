"""A page of Django's admin with the queues' figures and links to the dashboard. It changes nothing."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import path

from schedq.errors import SchedqError
from schedq.integrations.django.models import SiteQueues
from schedq.integrations.django.queues import setting, site_queues
from schedq.queue.queue import QueueBase

_SAFE: Final = ("GET", "HEAD")


@admin.register(SiteQueues)
class QueuesAdmin(admin.ModelAdmin):
    """For users with the permission `schedq.view_queues`. There is no other."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Whether the user may see the page."""
        return bool(request.user.has_perm("schedq.view_queues"))

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def get_urls(self) -> list[Any]:
        """Return the only page."""
        return [path("", self.admin_site.admin_view(self.show), name="schedq_sitequeues_changelist")]

    def show(self, request: HttpRequest) -> HttpResponse:
        """Show the page; while Redis is unavailable, it says so."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in _SAFE:
            return HttpResponseNotAllowed(_SAFE)
        context = {
            **self.admin_site.each_context(request),
            "title": "Queues",
            "opts": self.opts,
            "rows": _rows(site_queues()),
            "dashboard": setting("DASHBOARD_URL"),
        }
        return TemplateResponse(request, "schedq/queues.html", context)


def _rows(queues: list[QueueBase]) -> list[dict[str, Any]]:
    """Return name, link, figures or error of each queue. A Redis that is unavailable is asked once."""
    dashboard, found, unavailable = setting("DASHBOARD_URL").rstrip("/"), list[dict[str, Any]](), dict[str, str]()
    for queue in queues:
        row: dict[str, Any] = {"name": queue.name, "link": dashboard and f"{dashboard}/queues/{quote(queue.name)}"}
        found.append(row)
        where = queue.address.label
        if where not in unavailable:
            try:
                row["stats"] = stats = queue.blocking.stats()
            except SchedqError as error:
                unavailable[where] = str(error)
            else:
                oldest_ms = stats.outbox_oldest_ms
                row["outbox_lag_s"] = None if oldest_ms is None else max(0, stats.now_ms - oldest_ms) // 1000
        row["error"] = unavailable.get(where, "")
    return found
