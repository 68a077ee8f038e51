"""What a worker runs: `schedq worker shop_django.worker:queue`."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop_django.settings")
django.setup()

from shop_django import tasks  # noqa: E402 - tasks can be imported only now

queue = tasks.send_receipt.get_backend().application("shop-mails")
