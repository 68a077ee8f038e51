"""The Django application that brings the management command."""

from django.apps import AppConfig


class SchedqConfig(AppConfig):
    """Named `schedq.integrations.django` in INSTALLED_APPS."""

    name = "schedq.integrations.django"
    label = "schedq"
    verbose_name = "schedq"
