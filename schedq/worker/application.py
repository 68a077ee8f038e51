"""How a child process finds the queues and the middleware of its worker: by the names of modules and variables."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from schedq.errors import UsageError
from schedq.queue.middleware import Middleware
from schedq.queue.queue import QueueBase


class Loaded(NamedTuple):
    """What a child needs of the application.

    Attributes:
        queues: the queues, with their tasks.
        middleware: the worker's middleware.
        imported: the modules that were imported for it, as far as that is known.
    """

    queues: Sequence[QueueBase]
    middleware: Sequence[Middleware]
    imported: Sequence[str] = ()


_MAIN: Final = ("__main__", "__mp_main__")
"""Names of the module that the program began with. `multiprocessing` runs it in each child, unless it has no file."""
Load = Callable[[], Loaded | tuple[Sequence[QueueBase], Sequence[Middleware]]]
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

    The child imports the modules of their tasks, too.

    Raises:
        UsageError: one of them is not.
    """
    return partial(_load, tuple(map(_place, queues)), tuple(middleware), _task_modules(queues))


def _place(queue: QueueBase) -> tuple[str, str]:
    found = list(_variables(queue))
    for place in found:
        if place[0] not in _MAIN:
            return place
    if found:
        return found[0]
    raise UsageError(
        f"queue {queue.name}: a child process could not import it, because it is no variable of a module; "
        "isolated tasks need a queue that is defined at the top of a module"
    )


def _variables(wanted: object) -> Iterator[tuple[str, str]]:
    """The modules, and their variables, that have this value."""
    for name, module in list(sys.modules.items()):
        for variable, value in list(getattr(module, "__dict__", {}).items()):
            if value is wanted:
                yield name, variable


def _task_modules(queues: Sequence[QueueBase]) -> tuple[str, ...]:
    """The modules that register functions of these queues."""
    found = {_module_of(each) for queue in queues for each in queue.registry.registered}
    return tuple(sorted(name for name in found if name in sys.modules and name not in _MAIN))


def _module_of(registered: Any) -> str:
    """The module that defines a task, or another one that has it, because the function may come from a library."""
    own: str = registered.__module__
    if any(value is registered for value in list(getattr(sys.modules.get(own), "__dict__", {}).values())):
        return own
    return next((name for name, _ in _variables(registered) if name not in _MAIN), own)


def _load(places: Sequence[tuple[str, str]], middleware: Sequence[Middleware], modules: Sequence[str]) -> Loaded:
    queues = [attrgetter(variable)(importlib.import_module(name)) for name, variable in places]
    imported = {name for name, _ in places}
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:  # it came into the worker otherwise than by its name
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
        else:
            imported.add(name)
    return Loaded(queues, middleware, sorted(imported))
