"""The queues of TASKS as attributes of this module, with the tasks that run their jobs: what `schedq_worker` loads."""

from __future__ import annotations

from urllib.parse import unquote

from django.utils.module_loading import autodiscover_modules

from schedq.integrations.django.backend import SchedqBackend, task_backends
from schedq.queue.queue import Queue


def path_of(name: str) -> str:
    """Return the path of a queue of TASKS as `schedq worker` takes it. `*WEIGHT` may follow the name."""
    return f"{__name__}:{name.replace('.', '%2E')}"


def queue_names() -> list[str]:
    """Return the names of the queues of all schedq backends in TASKS, sorted."""
    return sorted({name for backend in _backends() for name in backend.queues})


def __getattr__(name: str) -> Queue:
    name = unquote(name)
    for backend in () if name.startswith("__") else _backends():
        if name in backend.queues:
            autodiscover_modules("tasks")
            return backend.application(name)
    raise AttributeError(f"TASKS has no queue {name!r} of schedq")


def _backends() -> list[SchedqBackend]:
    return [backend for backend in task_backends.all() if isinstance(backend, SchedqBackend)]
