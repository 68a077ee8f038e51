"""How a child process finds the queues and the middleware of its worker: by the names of modules and variables."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from schedq.errors import UsageError
from schedq.queue.middleware import Middleware
from schedq.queue.queue import QueueBase


class Loaded(NamedTuple):
    """What a child needs of the application."""

    queues: Sequence[QueueBase]
    middleware: Sequence[Middleware]


Load = Callable[[], tuple[Sequence[QueueBase], Sequence[Middleware]]]
"""Imports the application in a child; pickled by name, with names as arguments."""


class Application(NamedTuple):
    """What a child is started with.

    Attributes:
        load: imports the application.
        worker: the id of the worker.
        prepare: called first, for instance to set up logging; None: nothing.
    """

    load: Load
    worker: str
    prepare: Callable[[], object] | None = None


def found_in_modules(queues: Sequence[QueueBase], middleware: Sequence[Middleware]) -> Load:
    """Return how a child imports these queues: each must be a variable of a module.

    Raises:
        UsageError: one of them is not.
    """
    return partial(_load, tuple(map(_place, queues)), tuple(middleware))


def _place(queue: QueueBase) -> tuple[str, str]:
    for name, module in list(sys.modules.items()):
        for variable, value in list(getattr(module, "__dict__", {}).items()):
            if value is queue:
                return name, variable
    raise UsageError(
        f"queue {queue.name}: a child process could not import it, because it is no variable of a module; "
        "isolated tasks need a queue that is defined at the top of a module"
    )


def _load(places: Sequence[tuple[str, str]], middleware: Sequence[Middleware]) -> Loaded:
    return Loaded([attrgetter(name)(importlib.import_module(module)) for module, name in places], middleware)
