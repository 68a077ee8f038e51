"""The settings of the site. Without SCHEDQ_REDIS_URL it starts a server of its own below `.schedq`."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).parents[1]
SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "for-this-example-only")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "/static/"
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "schedq.integrations.django",
    "schedq.integrations.django.outbox",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", BASE_DIR / "shop.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},  # writers wait for each other
    }
}

TASKS = {
    "default": {
        "BACKEND": "schedq.integrations.django.backend.SchedqBackend",
        "QUEUES": ["shop-mails", "default"],
        "OPTIONS": {
            "redis": os.environ.get("SCHEDQ_REDIS_URL", f"embedded://{BASE_DIR / '.schedq'}"),
            "max_attempts": 3,
            "outbox": True,
            "language": True,
            "time_zone": True,
        },
    }
}
SCHEDQ = {"DASHBOARD_URL": "/ops/schedq/"}
