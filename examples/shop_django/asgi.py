"""For ASGI servers: `uvicorn shop_django.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop_django.settings")
application = get_asgi_application()
