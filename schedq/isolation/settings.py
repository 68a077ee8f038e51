"""The options of a worker's child processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from schedq.errors import UsageError
from schedq.model.checks import whole_number

LEAST_MEMORY: Final = 16 * 1024**2
"""The smallest memory limit of a child, in bytes: what an interpreter needs by itself."""


@dataclass(frozen=True, slots=True)
class IsolationSettings:
    """How the child processes of a worker are ended and replaced.

    Attributes:
        kill_after: seconds between SIGTERM and SIGKILL for a child that is to end.
        jobs_per_child: attempts that a child runs before another one replaces it; None for no limit.
        memory_limit: bytes of resident memory; a child above it is ended, or replaced if it is idle. None: no limit.
        prepare: called first in each child, for instance to set up logging.
        load: imports the application in a child, and returns a pair: its queues and the worker's middleware. By
            default the queues are looked up as variables of modules, and the middleware is pickled.

    Both functions are pickled by name, with their arguments if they are partials.

    Raises:
        UsageError: a number is out of range.
    """

    kill_after: float = 5.0
    jobs_per_child: int | None = None
    memory_limit: int | None = None
    prepare: Callable[[], object] | None = None
    load: Callable[[], Any] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.kill_after <= 3600:
            raise UsageError(f"kill_after must be 0 to 3,600 seconds, got {self.kill_after!r}")
        if self.jobs_per_child is not None:
            whole_number("jobs_per_child", self.jobs_per_child, 1, 10**12)
        if self.memory_limit is not None:
            whole_number("memory_limit", self.memory_limit, LEAST_MEMORY, 2**50)
