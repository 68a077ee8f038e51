"""The Django application that brings the outbox's table."""

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """Named `schedq.integrations.django.outbox` in INSTALLED_APPS."""

    name = "schedq.integrations.django.outbox"
    label = "schedq_outbox"
    verbose_name = "schedq outbox"
    default_auto_field = "django.db.models.BigAutoField"
