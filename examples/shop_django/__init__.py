"""A small Django site whose tasks run on schedq: `django-admin schedq_worker` next to the site's server."""
