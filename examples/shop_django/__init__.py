"""A small Django site whose tasks run on schedq: `schedq worker shop_django.worker:queue` next to the site's server."""
