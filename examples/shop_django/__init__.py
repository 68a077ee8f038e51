"""A small Django site whose tasks run on schedq: `schedq worker shop_django.worker:queue` beside the site's server."""
