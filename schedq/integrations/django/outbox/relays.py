"""The relays of a site: one for each database that has an outbox, for the queues of TASKS and of SCHEDQ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from django.apps import apps

from schedq.integrations.django.outbox import DjangoOutbox
from schedq.integrations.django.queues import backends, setting, site_queues
from schedq.integrations.outbox import Relay


def site_relays() -> list[Relay]:
    """Return a relay for each database; none if the outbox is not installed."""
    if not apps.is_installed("schedq.integrations.django.outbox"):
        return []
    found = site_queues()
    databases = [*(setting("OUTBOX_DATABASES") or [DjangoOutbox().database])]
    databases += [backend.outbox.database for backend in backends() if backend.outbox is not None]
    times = {"poll": setting("OUTBOX_POLL"), "keep": setting("OUTBOX_KEEP")}
    return [DjangoOutbox(database).relay(found, **times) for database in dict.fromkeys(databases)] if found else []


def send_outbox() -> int:
    """Send the rows that are ready, and return how many; for tests, which have no running relay.

    Raises:
        SchedqError: Redis is unavailable or refuses. The rows stay. Errors of the database are raised unchanged.
    """
    return sum(relay.send() for relay in site_relays())


@contextmanager
def relaying() -> Iterator[None]:
    """Run the site's relays in threads of this process."""
    with ExitStack() as stack:
        for relay in site_relays():
            stack.enter_context(relay.running())
        yield
