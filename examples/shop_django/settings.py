"""The minimal settings of a site."""

import os

SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "for-this-example-only")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop_django.urls"
INSTALLED_APPS = ["schedq.integrations.django", "shop_django"]
USE_TZ = True
DATABASES: dict[str, object] = {}

TASKS = {
    "default": {
        "BACKEND": "schedq.integrations.django.backend.SchedqBackend",
        "QUEUES": ["shop-mails", "default"],
        "OPTIONS": {"redis": os.environ.get("SCHEDQ_REDIS_URL"), "max_attempts": 3},
    }
}
