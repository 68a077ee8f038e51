"""A model without a table, for the admin page and its permission `schedq.view_queues`."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models


class _Nothing(models.Manager):
    def get_queryset(self) -> Any:
        """Return what sends no SQL, so that `dumpdata` finds nothing."""
        return super().get_queryset().none()


class SiteQueues(models.Model):
    """The queues of the site."""

    objects: ClassVar[Any] = _Nothing()

    class Meta:
        """The only permission is to look."""

        managed = False
        base_manager_name = "objects"
        default_permissions = ()
        permissions = (("view_queues", "Can view queues"),)
        verbose_name = verbose_name_plural = "queues"
