"""The Django application that brings the management commands and the admin page."""

from django.apps import AppConfig


class SchedqConfig(AppConfig):
    """Named `schedq.integrations.django` in INSTALLED_APPS."""

    name = "schedq.integrations.django"
    label = "schedq"
    verbose_name = "schedq"
    default_auto_field = "django.db.models.BigAutoField"
