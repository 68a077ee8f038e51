"""The queues of TASKS as attributes of this module, with the tasks that run their jobs: what `schedq_worker` loads."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

import django
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from schedq.cli.queues import load_queue
from schedq.integrations.django.backend import SchedqBackend, task_backends
from schedq.queue.queue import Queue, QueueBase

DEFAULTS: Final[dict[str, Any]] = {
    "DASHBOARD_URL": "",
    "OUTBOX_DATABASES": (),
    "OUTBOX_POLL": 0.5,
    "OUTBOX_KEEP": 86_400,
    "QUEUES": (),
}
"""What the site's setting SCHEDQ may have."""


def setting(name: str) -> Any:
    """Return a value of SCHEDQ, or its default.

    Raises:
        ImproperlyConfigured: SCHEDQ has a name that is not known.
    """
    given = getattr(settings, "SCHEDQ", {})
    if unknown := sorted(given.keys() - DEFAULTS.keys()):
        raise ImproperlyConfigured(f"SCHEDQ has {', '.join(unknown)}; it may have {', '.join(DEFAULTS)}")
    return given.get(name, DEFAULTS[name])


def path_of(name: str) -> str:
    """Return the path of a queue of TASKS as `schedq worker` takes it. `*WEIGHT` may follow the name."""
    return f"{__name__}:{name.replace('.', '%2E')}"


def queue_names() -> list[str]:
    """Return the names of the queues of all schedq backends in TASKS, sorted."""
    return sorted({name for backend in backends() for name in backend.queues})


def backends() -> list[SchedqBackend]:
    """Return the backends in TASKS that are of schedq."""
    return [backend for backend in task_backends.all() if isinstance(backend, SchedqBackend)]


def site_queues() -> list[QueueBase]:
    """Return the queues of TASKS, and those that SCHEDQ["QUEUES"] names as `module:object`, each once."""
    own = [load_queue(path) for path in setting("QUEUES")]
    found = [*(backend.queue(name) for backend in backends() for name in sorted(backend.queues)), *own]
    return [*{(queue.name, queue.address.label): queue for queue in reversed(found)}.values()][::-1]


def __getattr__(name: str) -> Queue:
    name = unquote(name)
    if not name.startswith("__") and not apps.ready:
        django.setup()  # in a child process, or under `schedq worker`
    for backend in () if name.startswith("__") else backends():
        if name in backend.queues:
            autodiscover_modules("tasks")
            return backend.application(name)
    raise AttributeError(f"TASKS has no queue {name!r} of schedq")
