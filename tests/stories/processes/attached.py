"""Observers and middleware for workers of `app`, named on the command line."""

from __future__ import annotations

from typing import Any

from schedq import AttemptEnd, AttemptFacts, CallNext, Observer
from schedq.testing import as_job
from tests.stories.processes.app import note


class Watch(Observer):
    """Records each notification. A worker creates its own instance."""

    name = "watch"

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        with as_job(attempt.job.id):
            note(f"{self.name} {end.outcome}")


class Named(Watch):
    """Needs an argument."""

    def __init__(self, name: str) -> None:
        self.name = name


class Broken(Watch):
    """Raises an error when it is created."""

    def __init__(self) -> None:
        raise LookupError("no such host")


named = Named("named")


async def outer(attempt: AttemptFacts, call_next: CallNext) -> Any:
    """Middleware."""
    note("+outer")
    return [await call_next()]


class Inner:
    """Middleware that is an object. A worker creates its own instance."""

    async def __call__(self, attempt: AttemptFacts, call_next: CallNext) -> Any:
        note("+inner")
        return [await call_next()]


def plain(attempt: AttemptFacts, call_next: CallNext) -> Any:
    """Not middleware, because it is not async."""
